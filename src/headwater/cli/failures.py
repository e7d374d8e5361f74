"""What goes wrong, as one sentence that says what to do next."""

import sys
from typing import NoReturn

import click

from headwater.client import (
    ClientError,
    OffsetTrimmed,
    OutcomeUnknown,
    ProducerFenced,
    ProtocolViolation,
    RequestRefused,
    ServerUnavailable,
    TransportFailed,
)

NEXT_STEPS = {
    "stream_not_found": "There is no stream {name} at {url}; make it with `headwater create {name}`.",
    "stream_gone": "The stream {name} was deleted and lives on in its forks only; read one of those.",
    "stream_exists": "The stream {name} is there with another configuration; look at it with `headwater head {name}`.",
    "stream_closed": "Stream {name} is closed and takes nothing more; write to another one.",
    "bucket_not_found": "There is no bucket {bucket} at {url}; make it with `headwater bucket make {bucket}`.",
    "bucket_exists": "The bucket {bucket} is there already; look at it with `headwater bucket show {bucket}`.",
    "bucket_not_empty": "The bucket {bucket} is not empty; see what it holds with `headwater ls {bucket}`.",
    "snapshot_not_found": "There is no such snapshot of {name}; publish one with `headwater snapshot put {name}`.",
    "offset_beyond_tail": "The stream {name} does not reach that far; see where it ends with `headwater head {name}`.",
    "producers_too_many": "The stream {name} knows as many producers as it can; append without --producer.",
    "draining": "The server at {url} is about to end; try again in a moment.",
}
"""By the code of a refusal, where a command line has a better next step than what the server says to any client."""


def fail(told: str) -> NoReturn:
    """End with exit code 1 and say why."""
    click.echo(f"Error: {told}", err=True)
    sys.exit(1)


def sentence(error: ClientError, url: str, name: str) -> str:
    """What a failed request means to whoever typed the command."""
    match error:
        case OutcomeUnknown():
            return (
                f"The server at {url} gave no answer, so part of it may be written or not; look with "
                f"`headwater head {name}`, and append with --producer to be able to try again."
            )
        case TransportFailed(sent=False):
            return (
                f"No server answers at {url}; start one with `headwater serve`, or name another with --url or "
                "HEADWATER_URL."
            )
        case TransportFailed():
            return f"The server at {url} stopped answering; try again, or look into it with `headwater doctor`."
        case ProtocolViolation():
            return f"What {url} answers is not the protocol of durable streams; check --url ({_plain(str(error))})."
        case RequestRefused():
            return _refused(error, url, name)
    return f"{_plain(str(error))}."


def _refused(error: RequestRefused, url: str, name: str) -> str:
    said = _plain(error.detail or error.title or f"{url} answered with {error.status} and no reason")
    code = error.code or ("stream_not_found" if error.status == 404 else "")
    if code in NEXT_STEPS:
        bucket = name.partition("/")[0]
        return NEXT_STEPS[code].format(name=name, bucket=bucket, url=url)
    match error:
        case OffsetTrimmed():
            earliest = error.earliest_offset or "a later one"
            return (
                f"{name} no longer holds that offset; begin with --offset {earliest}, or `headwater bootstrap {name}`."
            )
        case ProducerFenced():
            following = "a higher one" if error.current_epoch is None else f"--epoch {error.current_epoch + 1}"
            return f"Another run has taken this producer of {name} over; stop it, then take over with {following}."
        case ServerUnavailable():
            return f"The server at {url} cannot do this now, try again later: {said}."
        case RequestRefused(status=401 | 403):
            return f"{url} does not allow this; give a token with --header 'Authorization: Bearer ...' ({said})."
    return f"{said}."


def _plain(text: str) -> str:
    """A remark as a part of a sentence; the sentences of a longer one are joined."""
    return " ".join(text.split()).rstrip(".").replace(". ", "; ")
