"""Server-sent events as the protocol defines them: `event: x` with a space, `data:` without one, LF line ends."""

import re
from base64 import b64encode

from headwater.protocol import incarnations

_LINE_END = re.compile(rb"\r\n|\r|\n")

HEARTBEAT = b": alive\n\n"
CREDENTIAL_EXPIRED = b'event: credential-expired\ndata:{"reason":"credential_expired"}\n\n'
"""The last event for a client that may no longer read; with a new credential it resumes after its last offset."""


def data_event(payload: bytes, event_id: str, *, text: bool) -> bytes:
    r"""One data event: text verbatim, one `data:` line per line; everything else as one base64 string.

    >>> data_event(b"a\r b", "7", text=True)
    b'event: data\ndata:a\ndata:  b\nid: 7\n\n'
    >>> data_event(b"\x00", "7", text=False)
    b'event: data\ndata:AA==\nid: 7\n\n'
    """
    lines = _data_lines(payload) if text else b"data:" + b64encode(payload)
    return b"event: data\n%b\nid: %b\n\n" % (lines, event_id.encode())


def event(name: str, text: bytes) -> bytes:
    r"""An event without an id.

    >>> event("batch", b'{"items":[\n1]}')
    b'event: batch\ndata:{"items":[\ndata:1]}\n\n'
    """
    return b"event: %b\n%b\n\n" % (name.encode(), _data_lines(text))


def _data_lines(text: bytes) -> bytes:
    if b"\n" in text or b"\r" in text:
        return b"\n".join(map(_data_line, _LINE_END.split(text)))
    return _data_line(text)


def _data_line(line: bytes) -> bytes:
    # Clients strip one leading space, so a line that begins with a space gets another one.
    return b"data: " + line if line[:1] == b" " else b"data:" + line


def control_event(
    next_offset: str,
    event_id: str,
    cursor: int | None,
    *,
    up_to_date: bool,
    closed: bool,
    records: tuple[int, int] | None = None,
) -> bytes:
    """The control event after every data event; a closed stream has no cursor, a JSON stream has record numbers."""
    fields = f'"streamNextOffset":"{next_offset}"'
    if records is not None:
        fields += f',"streamFirstRecord":{records[0]},"streamNextRecord":{records[1]}'
    if cursor is not None and not closed:
        fields += f',"streamCursor":"{cursor}"'
    if up_to_date:
        fields += ',"upToDate":true'
    if closed:
        fields += ',"streamClosed":true'
    return f"event: control\ndata:{{{fields}}}\nid: {event_id}\n\n".encode()


def event_id(next_offset: str, log_id: str, incarnation: int) -> str:
    """The id that `Last-Event-ID` returns: the offset to resume at, and the stream's incarnation.

    >>> event_id("00000000000000000042", "j", 7)
    '00000000000000000042/j-7'
    """
    return f"{next_offset}/{incarnations.render(log_id, incarnation)}"
