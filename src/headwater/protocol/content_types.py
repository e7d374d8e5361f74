"""Content types: stored exactly as sent, compared by media type without regard to case."""

import re

from headwater.protocol.limits import CONTENT_TYPE_BYTES_MAX
from headwater.protocol.remembering import remembered

DEFAULT = "application/octet-stream"
JSON = "application/json"
NDJSON = "application/x-ndjson"
ENVELOPES = "application/vnd.durable-stream-records+ndjson"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALID = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(;[\x20-\x7e\t]*)?")


def _is_valid(content_type: str) -> bool:
    """Whether it has the form `type/subtype`, optionally with parameters."""
    return len(content_type) <= CONTENT_TYPE_BYTES_MAX and _VALID.fullmatch(content_type) is not None


def _media_type(content_type: str) -> str:
    """The part that is compared.

    >>> media_type("Application/JSON; charset=utf-8")
    'application/json'
    """
    return content_type.partition(";")[0].strip().lower()


def _is_json(content_type: str) -> bool:
    return media_type(content_type) == JSON


def _is_text(content_type: str) -> bool:
    """Whether SSE events carry it verbatim; everything else is sent as base64."""
    media = media_type(content_type)
    return media == JSON or media.startswith("text/")


def _of_header(value: bytes) -> str:
    """The text of a header's value.

    >>> of_header(b" text/plain ")
    'text/plain'
    """
    return value.decode("latin-1").strip()


_remembered = remembered(entries_max=1024, length_max=CONTENT_TYPE_BYTES_MAX)

is_valid, media_type = _remembered(_is_valid), _remembered(_media_type)
is_json, is_text = _remembered(_is_json), _remembered(_is_text)
of_header = remembered(entries_max=1024, length_max=CONTENT_TYPE_BYTES_MAX)(_of_header)
