"""The NATS client protocol: commands to send, and a parser of what a server sends. Pure.

INFO {...}                                       what the server is; first, and whenever that changes
MSG subject sid [reply] bytes                    a message, then its payload
HMSG subject sid [reply] head-bytes bytes        a message with headers, then these and its payload
PING, PONG, +OK, -ERR 'reason'
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

END = b"\r\n"
PING = b"PING\r\n"
PONG = b"PONG\r\n"
LINE_BYTES_MAX = 64 * 1024
"""The longest line that is accepted; INFO with the addresses of many servers is the longest."""
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""The largest message that is accepted, far above the 1 MiB that servers accept by default."""
DEFAULT_PORT = 4222


class ProtocolBroken(Exception):
    """The server sent something that is not the NATS protocol."""


class Message(NamedTuple):
    """A message as it arrived; `head` are its raw headers, empty if it has none."""

    subject: bytes
    reply: bytes
    head: bytes
    data: bytes

    def header(self, name: bytes) -> bytes | None:
        """The value of a header.

        >>> Message(b"s", b"", b"NATS/1.0\\r\\nNats-Sequence: 7\\r\\n\\r\\n", b"").header(b"Nats-Sequence")
        b'7'
        """
        start = self.head.find(b"\r\n" + name + b":")
        if start < 0:
            return None
        start += len(name) + 3
        return self.head[start : self.head.find(END, start)].strip()

    @property
    def status(self) -> int | None:
        """The status of an answer without content, such as 404 and 503.

        >>> Message(b"s", b"", b"NATS/1.0 503\\r\\n\\r\\n", b"").status
        503
        """
        found = self.head[8:12].strip()
        return int(found) if found.isdigit() else None


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    server_name: str = ""
    version: str = ""
    jetstream: bool = False
    cluster: str = ""
    tls_required: bool = False


class Address(NamedTuple):
    """Where a server is, and how to log in."""

    host: str
    port: int
    tls: bool
    user: str | None
    password: str | None

    @property
    def name(self) -> str:
        """Host and port, without credentials."""
        return f"{self.host}:{self.port}"


def parse_address(url: str) -> Address:
    """The address in a URL; ValueError if it is not one.

    >>> parse_address("nats://a")
    Address(host='a', port=4222, tls=False, user=None, password=None)
    >>> parse_address("tls://me:secret@b:4333")
    Address(host='b', port=4333, tls=True, user='me', password='secret')
    """
    login, where = split_login(url)
    parts = urlsplit(where)
    if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"{where!r} is not the address of a NATS server, such as nats://host:4222")
    user, colon, password = login.partition(":")
    secrets = (unquote(user) or None, unquote(password) if colon else None)
    return Address(parts.hostname, parts.port or DEFAULT_PORT, parts.scheme == "tls", *secrets)


def split_login(url: str) -> tuple[str, str]:
    """The credentials in a URL, which may have characters that end the host elsewhere, and the URL without them.

    >>> split_login("nats://me:se#cr?et@a:4222"), split_login("a")
    (('me:se#cr?et', 'nats://a:4222'), ('', 'nats://a'))
    """
    scheme, _, rest = (url if "://" in url else f"nats://{url}").partition("://")
    login, _, where = rest.rpartition("@")
    return login, f"{scheme}://{where}"


def connect(address: Address, name: str) -> bytes:
    """The command that begins a session; a user without a password is a token."""
    login = {"auth_token": address.user} if address.password is None else {"user": address.user}
    fixed = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, "echo": True}
    fields = fixed | {"name": name, "lang": "python", "version": "1"} | (login if address.user else {})
    if address.password is not None:
        fields["pass"] = address.password
    return b"CONNECT " + msgspec.json.encode(fields) + END


def publish(subject: bytes, reply: bytes, data: bytes) -> list[bytes]:
    """The pieces of a publication, to be written in this order."""
    return [b"PUB %b %b %d\r\n" % (subject, reply, len(data)), data, END]


def subscribe(subject: bytes, sid: int) -> bytes:
    return b"SUB %b %d\r\n" % (subject, sid)


class Sink(Protocol):
    """Receives what a parser finds."""

    def on_message(self, sid: int, message: Message) -> None: ...

    def on_info(self, info: ServerInfo) -> None: ...

    def on_ping(self) -> None: ...

    def on_pong(self) -> None: ...

    def on_error(self, reason: str) -> None: ...


class Parser:
    """Cuts a server's bytes into messages and other commands, and hands each to the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._chunks: list[bytes] = []
        self._held = 0
        """The bytes in these chunks."""
        self._needed = 0
        """How many bytes must be there before another attempt makes sense."""
        self._others: dict[bytes, Callable[[bytes], None]] = {
            b"PING": lambda _: sink.on_ping(),
            b"PONG": lambda _: sink.on_pong(),
            b"+OK": lambda _: None,
            b"INFO": lambda rest: sink.on_info(_decode_info(rest)),
            b"-ERR": lambda rest: sink.on_error(rest.strip(b" '").decode(errors="replace")),
        }

    def feed(self, chunk: bytes) -> None:
        """Take in more bytes."""
        self._held += len(chunk)
        if self._held < self._needed:
            self._chunks.append(chunk)
            return
        data = b"".join((*self._chunks, chunk)) if self._chunks else chunk
        at, self._needed = self._parse(data)
        self._chunks = [data[at:]] if at < len(data) else []
        self._held = len(data) - at
        self._needed = max(self._needed - at, 0)

    def _parse(self, data: bytes) -> tuple[int, int]:
        """Hand over everything that is whole; return where the rest begins, and up to where it must be known."""
        at, length = 0, len(data)
        while at < length:
            end = data.find(END, at)
            if end < 0:
                if length - at > LINE_BYTES_MAX:
                    raise ProtocolBroken(f"a line has more than {LINE_BYTES_MAX} bytes")
                return at, length + 1
            line = data[at:end]
            if line.startswith((b"MSG ", b"HMSG ")):
                stop = self._parse_message(line.split(), data, end + 2)
                if stop > length:
                    return at, stop
                at = stop
            else:
                self._parse_other(line)
                at = end + 2
        return at, 0

    def _parse_message(self, words: list[bytes], data: bytes, start: int) -> int:
        """Hand over the message whose payload begins here, if it is all there; return where it ends."""
        sizes = 2 if words[0] == b"HMSG" else 1
        try:
            if len(words) not in (3 + sizes, 4 + sizes):
                raise ValueError
            sid, size = int(words[2]), int(words[-1])
            head_size = int(words[-2]) if sizes == 2 else 0
            reply = words[3] if len(words) == 4 + sizes else b""
        except ValueError as error:
            raise ProtocolBroken(f"{b' '.join(words)[:100]!r} is not a message") from error
        if not 0 <= head_size <= size <= MESSAGE_BYTES_MAX:
            raise ProtocolBroken(f"a message has {size} bytes, {head_size} of them headers")
        stop = start + size + 2
        if stop <= len(data):
            middle = start + head_size
            self._sink.on_message(sid, Message(words[1], reply, data[start:middle], data[middle : start + size]))
        return stop

    def _parse_other(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        handle = self._others.get(word.upper())
        if handle is None:
            raise ProtocolBroken(f"{line[:100]!r} is not a command")
        handle(rest)


def _decode_info(rest: bytes) -> ServerInfo:
    try:
        return msgspec.json.decode(rest, type=ServerInfo)
    except msgspec.MsgspecError as error:
        raise ProtocolBroken(f"INFO cannot be read: {error}") from error
