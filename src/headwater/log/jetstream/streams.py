"""The JetStream stream of a shard: its names, what is needed of a NATS server, and the calls of its API."""

from typing import Any, NamedTuple

import msgspec

from headwater.log.jetstream.client import Client
from headwater.log.jetstream.wire import Message, ServerInfo

VERSION_MIN = (2, 15)
"""The oldest NATS server that is supported: older ones are not tested."""
REPLICAS = 3
API_SECONDS = 2.0
"""How long a call of the API may take before it is repeated."""
LOG_ID_KEY = "headwater.log_id"
"""The metadata that says which log a stream holds."""
MESSAGE_OVERHEAD_BYTES = 64
"""Roughly what a message takes in a stream in addition to its payload."""

NOT_FOUND = 10059
NAME_IN_USE = 10058
NOT_CLUSTERED = 10074
NO_STORAGE = frozenset({10023, 10047, 10028})
FULL = 10077
"""Error codes of the API."""
NO_PEERS = 10005
STARTING = frozenset({503, NO_PEERS, 10008, 10009})
"""Those that a cluster returns while its servers start, or while they have no leader."""


class LogRefused(Exception):
    """The log cannot be used; the message is one sentence for a person."""


class LogBehind(Exception):
    """The log no longer holds the next message that is needed; only an image can bridge the gap."""


class LogChanged(Exception):
    """The stream is not the one that this node has followed: acknowledged messages are missing, or differ."""


class ApiRefused(Exception):
    """A call of the JetStream API failed."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"JetStream refused: {description} ({code})")
        self.code, self.description = code, description

    @property
    def lacks_storage(self) -> bool:
        """Whether the servers have no room for a stream; a cluster says so in words only."""
        return self.code in NO_STORAGE or (self.code == NO_PEERS and "insufficient storage" in self.description)

    @property
    def is_passing(self) -> bool:
        """Whether servers that start, or that elect a leader, fail like this."""
        return self.code in STARTING and not self.lacks_storage


class ClusterConfig(NamedTuple):
    """How a node reaches the log of its cluster, and as whom it takes part.

    The session distinguishes this process from others of the same name, earlier ones or started by mistake.
    """

    urls: list[str]
    cluster_name: str = ""
    shard: int = 0
    node: str = "n1"
    session: str = "1"
    address: str = ""
    """Where clients and other nodes reach it."""
    level: int = 0
    """The highest level of commands that it knows."""

    @property
    def stream(self) -> str:
        """The stream's name.

        >>> ClusterConfig(["nats://a"]).stream, ClusterConfig(["nats://a"], "blue").stream
        ('headwater-0', 'blue-headwater-0')
        """
        return "-".join(filter(None, (self.cluster_name, f"headwater-{self.shard}")))

    def subject(self, kind: str) -> bytes:
        """A subject of this log: `log` for messages to be stored, `decided` for those that are, `pulse` and `ask`."""
        return f"{self.stream}.{kind}".encode()


class _Failure(msgspec.Struct, frozen=True):
    err_code: int = 0
    code: int = 0
    description: str = ""


class _State(msgspec.Struct, frozen=True):
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class _Republish(msgspec.Struct, frozen=True):
    dest: str = ""


class _Config(msgspec.Struct, frozen=True):
    max_bytes: int = -1
    num_replicas: int = 1
    discard: str = ""
    allow_direct: bool = False
    deny_delete: bool = False
    republish: _Republish | None = None
    metadata: dict[str, str] = {}


class _Replica(msgspec.Struct, frozen=True):
    name: str = ""
    current: bool = False
    lag: int = 0


class _Group(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[_Replica] = []


class StreamInfo(msgspec.Struct, frozen=True):
    """What JetStream says of a stream. It may be out of date: a leader without a majority answers, too."""

    config: _Config = _Config()
    state: _State = _State()
    cluster: _Group | None = None

    @property
    def leader(self) -> str | None:
        """The server that leads the stream; None if there is one server only, or no leader."""
        return self.cluster.leader or None if self.cluster is not None else None

    @property
    def replica_lag(self) -> int:
        """How many messages the slowest replica is behind."""
        return max((replica.lag for replica in self.cluster.replicas), default=0) if self.cluster is not None else 0

    @property
    def log_id(self) -> str:
        return self.config.metadata.get(LOG_ID_KEY, "")

    def behind(self, applied: int) -> LogBehind | None:
        """Why a node that has applied this much cannot continue, if it cannot. Out of date or not, this is true."""
        if self.state.first_seq <= applied + 1:
            return None
        return LogBehind(f"The log begins at message {self.state.first_seq}, but message {applied + 1} is needed.")


class _Response(msgspec.Struct, frozen=True):
    error: _Failure | None = None


def configuration(config: ClusterConfig, log_id: str, max_bytes: int, replicas: int) -> dict[str, Any]:
    """The configuration of a new stream."""
    subject = config.subject("log").decode()
    return {
        "name": config.stream,
        "subjects": [subject],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_msgs": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        # Refuse new messages rather than drop old ones.
        "discard": "new",
        "deny_delete": True,
        "allow_direct": True,
        "republish": {"src": subject, "dest": config.subject("decided").decode()},
        "metadata": {LOG_ID_KEY: log_id},
    }


async def call(client: Client, subject: str, request: Any = None, timeout_seconds: float = API_SECONDS) -> bytes:
    """Make a call of the JetStream API; ApiRefused if it failed."""
    data = b"" if request is None else msgspec.json.encode(request)
    answer = await client.request(f"$JS.API.{subject}".encode(), data, timeout_seconds)
    if answer.status is not None:
        raise ApiRefused(answer.status, "JetStream does not answer")
    failure = msgspec.json.decode(answer.data, type=_Response).error
    if failure is not None:
        raise ApiRefused(failure.err_code or failure.code, failure.description)
    return answer.data


async def stream_info(client: Client, config: ClusterConfig) -> StreamInfo | None:
    """What JetStream says of the stream; None if there is none."""
    try:
        return msgspec.json.decode(await call(client, f"STREAM.INFO.{config.stream}"), type=StreamInfo)
    except ApiRefused as error:
        if error.code == NOT_FOUND:
            return None
        raise


async def create(client: Client, config: ClusterConfig, request: dict[str, Any]) -> None:
    """Create the stream with this configuration."""
    await call(client, f"STREAM.CREATE.{config.stream}", request)


async def purge(client: Client, config: ClusterConfig, upto: int) -> None:
    """Remove the messages up to a sequence."""
    await call(client, f"STREAM.PURGE.{config.stream}", {"seq": upto + 1}, 10.0)


def judge_server(info: ServerInfo) -> str | None:
    """Why a NATS server cannot be used, as one sentence; None if it can.

    >>> judge_server(ServerInfo("a", "2.9.1", jetstream=True))
    'The NATS server a has version 2.9.1, but Headwater needs 2.15 or later; upgrade it.'
    """
    numbers = info.version.split("-")[0].split(".")
    version = tuple(int(number) for number in numbers if number.isdigit())
    if version < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        name, found = info.server_name, info.version
        return f"The NATS server {name} has version {found}, but Headwater needs {least} or later; upgrade it."
    if not info.jetstream:
        return f"The NATS server {info.server_name} runs without JetStream; add a jetstream block to its configuration."
    return None


def judge_stream(info: StreamInfo, config: ClusterConfig) -> str | None:
    """Why a stream cannot hold a log, as one sentence; None if it can."""
    found = info.config
    if not info.log_id:
        return f"The stream {config.stream} was not created by Headwater; choose another --cluster-name."
    republish = "" if found.republish is None else found.republish.dest
    as_needed = found.discard == "new" and found.allow_direct and found.deny_delete and found.max_bytes > 0
    if not as_needed or republish != config.subject("decided").decode():
        return (
            f"The configuration of the stream {config.stream} was changed; restore discard, direct access and"
            " republish."
        )
    return None


def sequence_of(message: Message) -> int:
    """The sequence of a stored message, from its headers."""
    start = message.head.find(b"\r\nNats-Sequence:") + 16
    return int(message.head[start : message.head.find(b"\r\n", start)]) if start > 15 else 0


def acknowledged(data: bytes) -> int:
    """The sequence under which a message was stored; 0 if it was refused.

    >>> acknowledged(b'{"stream":"headwater-0","seq":7}'), acknowledged(b'{"error":{"code":503},"seq":0}')
    (7, 0)
    """
    start = data.find(b'"seq":') + 6
    if start < 6 or b'"error"' in data:
        return 0
    end = start
    while data[end : end + 1].isdigit():
        end += 1
    return int(data[start:end] or b"0")
