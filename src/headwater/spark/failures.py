"""What can go wrong between Spark and a server. All errors can be pickled: Spark passes them between processes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headwater.client import ClientError, Forbidden, RequestRefused, ResponseIncomplete, Unauthorized
from headwater.protocol import offsets
from headwater.protocol.refusals import Code

NO_RIGHT = "ask for the right, or give the option tokenFile (or token) with a token that has it"
NO_TOKEN = "give the option tokenFile (or token) with a valid token"


class LinkFailed(Exception):
    """The server gave no usable answer, however often it was asked."""


class LinkRefused(Exception):
    """The server refused: `status`, `code`, the whole `problem`, and the stream's end if the response has it."""

    def __init__(self, message: str, status: int, problem: Mapping[str, Any], next_offset: int | None = None) -> None:
        # All of them are arguments of the exception, so that it can be pickled.
        super().__init__(message, status, dict(problem), next_offset)
        self.status, self.problem, self.next_offset = status, problem, next_offset
        self.code: str | None = problem.get("code")
        self.detail: str = problem.get("detail") or problem.get("title") or "no reason given"

    def __str__(self) -> str:
        return str(self.args[0])


class LogChanged(LinkFailed):
    """The server has another log than the one that a checkpoint names: it was restored from a backup, or replaced."""


class ScanBroken(LinkFailed):
    """A response ended before it was complete; what had arrived of it is valid."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as the link's."""
    try:
        yield
    except RequestRefused as error:
        if error.code == Code.INCARNATION_CHANGED:
            raise other_log() from error
        next_offset = offsets.parse(error.next_offset or "")
        raise LinkRefused(_advised(error), error.status, error.problem, next_offset) from error
    except ResponseIncomplete as error:
        raise ScanBroken(str(error)) from error
    except ClientError as error:
        raise LinkFailed(str(error)) from error


def other_log() -> LogChanged:
    """The error for numbers that came from another log."""
    return LogChanged(
        "The server was restored from a backup, or replaced, since this query last read from it, so the checkpoint's "
        "offsets mean nothing there; start a new query with a new checkpoint."
    )


def _advised(error: RequestRefused) -> str:
    """The message, and for a refused token the option that would help."""
    advice = None
    if isinstance(error, Forbidden) or error.code == "producer_forbidden":
        advice = NO_RIGHT
    elif isinstance(error, Unauthorized):
        advice = NO_TOKEN
    return str(error) if advice is None else f"{str(error).rstrip('.')}; {advice}."
