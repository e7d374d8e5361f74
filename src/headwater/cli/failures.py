"""Failures: one sentence that says what to do next, or one JSON object for a program."""

import json
import re
import sys
from http import HTTPStatus
from typing import NoReturn

import click

from headwater.client import (
    ClientError,
    Forbidden,
    HostRefused,
    OffsetTrimmed,
    OutcomeUnknown,
    ProducerEpochUsed,
    ProducerFenced,
    ProtocolViolation,
    QuotaExceeded,
    RateLimited,
    RequestRefused,
    ServerUnavailable,
    TransportFailed,
    Unauthorized,
)
from headwater.client.urls import split_urls
from headwater.protocol.names import DEFAULT_BUCKET

NEXT_STEPS = {
    "stream_not_found": "There is no stream {name} at {url}; create it with `headwater create {name}`.",
    "stream_gone": "Stream {name} was deleted, and only its forks still hold its data; read one of them.",
    "stream_closed": "Stream {name} is closed and cannot be appended to; write to another one.",
    "bucket_not_found": "There is no bucket {bucket} at {url}; create it with `headwater bucket create {bucket}`.",
    "bucket_exists": "Bucket {bucket} already exists; see it with `headwater bucket show {bucket}`.",
    "bucket_not_empty": "Bucket {bucket} is not empty; list its streams with `headwater ls {bucket}`.",
    "snapshot_not_found": "There is no such snapshot of {name}; publish one with `headwater snapshot create {name}`.",
    "offset_beyond_tail": "The offset is beyond the end of {name}; see where that is with `headwater show {name}`.",
    "producers_too_many": "Stream {name} cannot remember another producer; append without --producer.",
    "token_expired": "The token for {url} has expired; get a new one, and run `headwater login {url}`.",
    "draining": "The server at {url} is shutting down; try again in a moment.",
}
"""By the code of a refusal, where the next step for a person at a command line differs from that of an HTTP client."""

EXISTING_VERBS = frozenset({"rm", "show", "close", "read", "bootstrap"})
"""Verbs for which a missing stream or bucket is a wrong name: creating it would not help."""

_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (.+?)(?: \(_ssl|\.?$)")


def fail(detail: str, code: str = "failed", status: int | None = None) -> NoReturn:
    """Print the reason and exit with code 1."""
    context = click.get_current_context(silent=True)
    report(detail, code, status, as_json=context is not None and bool(context.params.get("as_json")))
    sys.exit(1)


def report(detail: str, code: str, status: int | None, *, as_json: bool) -> None:
    """Print an error to standard error: a sentence, or an object if the command was asked for JSON."""
    if as_json:
        click.echo(json.dumps({"error": code, "detail": detail, "status": status}, ensure_ascii=False), err=True)
    else:
        click.echo(f"Error: {detail}", err=True)


def fail_request(error: ClientError, url: str, name: str) -> NoReturn:
    """Exit because a request failed."""
    if isinstance(error, RequestRefused):
        fail(sentence(error, url, name), code_of(error), error.status)
    code = {ProtocolViolation: "protocol_violation", OutcomeUnknown: "outcome_unknown"}.get(type(error))
    fail(sentence(error, url, name), code or "unreachable")


def code_of(error: RequestRefused) -> str:
    """Return the code of a refusal; the answer to a HEAD has no body to carry it, so there the status decides."""
    if error.code is not None:
        return error.code
    if isinstance(error, Unauthorized) and 'error_description="expired"' in error.headers.get("www-authenticate", ""):
        return "token_expired"
    if isinstance(error, Forbidden):
        return "forbidden"
    return {401: "unauthorized", 404: "stream_not_found", 410: "stream_gone"}.get(error.status, "refused")


def sentence(error: ClientError, url: str, name: str) -> str:
    """Say what a failed request means to the person who typed the command."""
    match error:
        case OutcomeUnknown():
            asked = isinstance(error.__cause__, RequestRefused)
            why = "does not know what became of the write" if asked else "did not answer"
            return (
                f"The server at {url} {why}, so part of the data may have been written; check with "
                f"`headwater show {name}`, and append with --producer to be able to repeat the command safely."
            )
        case TransportFailed(sent=False):
            return _not_connected(str(error), url)
        case TransportFailed():
            return f"The server at {url} stopped answering; try again, or run `headwater doctor`."
        case ProtocolViolation():
            return f"{url} does not speak the durable streams protocol; check --url ({_clause(str(error))})."
        case RequestRefused():
            return _refused(error, url, name)
    return f"{_clause(str(error))}."


def _not_connected(reason: str, url: str) -> str:
    if found := _CERTIFICATE.search(reason):
        return (
            f"The certificate of {url} is not trusted ({found[1]}); set SSL_CERT_FILE to a file with the certificate "
            "of the authority that signed it."
        )
    if "SSL" in reason:
        return f"{url} does not speak TLS; try the URL with http://."
    urls = split_urls(url)
    none = (
        f"No server answers at {url}" if len(urls) == 1 else f"None of {len(urls)} servers answers ({', '.join(urls)})"
    )
    return f"{none}; start one with `headwater serve`, or name another with --url or HEADWATER_URL."


def _refused(error: RequestRefused, url: str, name: str) -> str:
    detail = _clause(error.detail or error.title or _unexplained(error, url, name))
    # The server names a stream with its bucket; a person typed it without one.
    detail = detail.replace(f"'{DEFAULT_BUCKET}/{name}'", name).replace(f"'{name}'", name)
    code = code_of(error)
    bucket, slash, _ = name.partition("/")
    context = click.get_current_context(silent=True)
    must_exist = context is not None and context.info_name in EXISTING_VERBS
    if code == "stream_not_found" and must_exist:
        return f"There is no stream {name} at {url}; list streams with `headwater ls{' ' + bucket if slash else ''}`."
    if code == "bucket_not_found" and must_exist:
        return f"There is no bucket {bucket} at {url}; check the name."
    if code == "stream_exists":
        return f"{detail} (`headwater show {name}` shows its options)."
    if code in NEXT_STEPS:
        return NEXT_STEPS[code].format(name=name, bucket=bucket, url=url)
    match error:
        case OffsetTrimmed():
            earliest = error.earliest_offset or "a later one"
            return (
                f"{name} no longer holds that offset; start with --offset {earliest}, or use "
                f"`headwater bootstrap {name}`."
            )
        case ProducerFenced():
            following = "a higher one" if error.current_epoch is None else f"--epoch {error.current_epoch + 1}"
            return f"Another run has taken over this producer of {name}; stop it, then take over with {following}."
        case ProducerEpochUsed():
            return (
                f"This producer has written something else to {name} in this epoch; repeat the input of that run, or "
                "begin another one with a higher --epoch."
            )
        case Unauthorized() | Forbidden() | HostRefused() | QuotaExceeded() | RateLimited():
            return _not_allowed(error, url, detail)
        case ServerUnavailable() if code != "not_implemented":
            return f"The server at {url} cannot do this now, try again later: {detail}."
    return f"{detail}."


def _unexplained(error: RequestRefused, url: str, name: str) -> str:
    """Say what is known of a refusal without a body, such as every answer to HEAD."""
    if error.status == HTTPStatus.BAD_REQUEST:
        return (
            f"{url} refuses the name {name}; a bucket with snapshots has 4 to 64 characters from a-z, 0-9, '_' and '-'"
        )
    return f"{url} answered with {error.status} and gave no reason"


def _not_allowed(error: RequestRefused, url: str, detail: str) -> str:
    """Explain a refusal by access rules: missing rights, exceeded limits, or an unknown host name."""
    match error:
        case Unauthorized(code="producer_forbidden") | Forbidden():
            return f"{url} does not allow this: {detail}; ask its operator for the right, or use another token."
        case Unauthorized():
            return (
                f"{url} needs a valid token ({detail}); run `headwater login {url}`, or set HEADWATER_TOKEN or "
                "--token-file."
            )
        case HostRefused():
            return (
                f"The server does not accept the host name in {url} ({detail}); use its IP address or localhost, or "
                "start it with --hosts and that name."
            )
        case QuotaExceeded():
            return f"{detail}; delete streams or trim them, or ask the operator of {url} for a larger quota."
    seconds = error.retry_after_seconds if isinstance(error, RateLimited) else None
    when = "later" if seconds is None else f"in {seconds:.0f} s"
    return f"{url} limits how much this token may do ({detail}); try again {when}, or raise --retry-seconds."


def _clause(text: str) -> str:
    """Turn a remark into a part of a sentence; several sentences are joined."""
    return " ".join(text.split()).rstrip(".").replace(". ", "; ")
