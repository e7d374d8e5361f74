"""Every setting, once: its type, limits, unit, choices, default and help."""

import re
import socket
from enum import Enum
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s\[\]:/]+)):(?P<port>[0-9]{1,5})")

KIB = 1024
MIB = 1024 * KIB

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Addresses that stand for all addresses of a machine."""


def _setting(group: str, help: str, **limits: Any) -> Meta:
    """Describe a setting: the group that help and reference list it in, and limits beyond those of its type."""
    return Meta(description=help, extra={"group": group}, **limits)


_server = partial(_setting, "Server")
_cluster = partial(_setting, "Cluster")
_access = partial(_setting, "Access")
_tls = partial(_setting, "TLS")
_http = partial(_setting, "HTTP")
_connections = partial(_setting, "Connections")
_lake = partial(_setting, "Lake")
_journal = partial(_setting, "Journal")
_logs = partial(_setting, "Logs")

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(extra={"unit": "bytes"})]
Size = Annotated[Bytes, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]


class Mode(Enum):
    """How a server decides what clients may do."""

    LOCAL = "local"
    """Allow everything, but only to clients and pages on this machine."""
    GUARDED = "guarded"
    """Allow what the access file grants."""
    OPEN = "open"
    """Allow everything to every client; a proxy in front authenticates."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "")]
    [True, True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port; `ValueError` if it is not an address with a port.

    >>> parse_address("127.0.0.1:4438"), parse_address("[::1]:0")
    (('127.0.0.1', 4438), ('::1', 0))
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"{text!r} is not an address with a port")
    return found["bracketed"] or found["host"], int(found["port"])


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a server."""

    host: Annotated[str, _server("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, _server("Port to listen on; 0 picks a free one.")] = 4437
    ops: Annotated[
        str, _server("Address of a separate listener for metrics and status, such as 127.0.0.1:4438. Empty: none.")
    ] = ""
    workers: Annotated[
        Count, _server("Number of server processes; each holds the metadata of all streams in memory.", le=64)
    ] = 1
    data: Annotated[str, _server("Directory for the journal and its images.")] = "data"
    memory: Annotated[bool, _server("Keep everything in memory and write nothing to disk.")] = False
    lake: Annotated[
        str,
        _server(
            "Where to store history: a folder or s3://bucket/prefix. Empty: the folder lake in the data directory."
        ),
    ] = ""
    drain_seconds: Annotated[Seconds, _server("How long requests in progress may take to finish at shutdown.")] = 10.0

    cluster: Annotated[
        str,
        _cluster(
            "Comma-separated URLs of the cluster's NATS servers, such as nats://a:4222,nats://b:4222. Empty: no "
            "cluster."
        ),
    ] = ""
    cluster_name: Annotated[
        str, _cluster("Prefix of the cluster's stream in NATS, so that several clusters can share NATS servers.")
    ] = ""
    cluster_log_bytes: Annotated[
        Bytes,
        _cluster(
            "Size of the log, which every NATS server reserves; takes effect when the log is created.", ge=64 * MIB
        ),
    ] = 2048 * MIB
    node: Annotated[
        str,
        _cluster("Name of this node, unique among the cluster's running processes. Empty: derived from the host name."),
    ] = ""
    node_url: Annotated[
        str,
        _cluster("URL at which operators and other nodes reach this node. Empty: derived from --public-url or --host."),
    ] = ""
    level_max: Annotated[
        int,
        _cluster(
            "Highest command level to use (0 = newest). Set it during an upgrade to keep a downgrade possible.", ge=0
        ),
    ] = 0

    auth: Annotated[str, _access("Access file with tokens, keys and grants; see `headwater token`.")] = ""
    no_auth: Annotated[
        bool, _access("Allow every request on any address; for a server behind a proxy that authenticates.")
    ] = False
    hosts: Annotated[
        str,
        _access(
            "Comma-separated host names that clients may use for this server, besides localhost and IP addresses; * "
            "for any."
        ),
    ] = ""
    proxies: Annotated[
        str,
        _access(
            "Comma-separated networks of trusted proxies, such as 10.0.0.0/8; only their X-Forwarded-For and "
            "X-Forwarded-Proto headers are used."
        ),
    ] = ""
    audit: Annotated[
        str, _access("File for the audit log. Empty: standard error with --auth, otherwise no audit log.")
    ] = ""
    address_connections_max: Annotated[
        int, Meta(ge=0), _access("Maximum number of connections from one address; 0 for no limit.")
    ] = 0

    tls_cert: Annotated[str, _tls("File with the certificate chain, in PEM; needs --tls-key. Empty: plain HTTP.")] = ""
    tls_key: Annotated[str, _tls("File with the certificate's private key, in PEM, without a passphrase.")] = ""
    tls_client_ca: Annotated[
        str, _tls("File with the authorities that issue client certificates, in PEM. Empty: the server requests none.")
    ] = ""
    tls_client: Annotated[
        Literal["required", "optional"],
        _tls("Whether clients must present a certificate; applies with --tls-client-ca."),
    ] = "required"
    tls_min: Annotated[Literal["1.2", "1.3"], _tls("Oldest TLS version to accept.")] = "1.2"

    public_url: Annotated[
        str, _http("Origin at which clients reach this server through a proxy, such as https://streams.example.")
    ] = ""
    mount: Annotated[
        str,
        Meta(extra={"repeatable": True}),
        _http(
            "Additional path that serves streams as /v1/stream does, such as /api/streams; separate several by commas."
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        _http(
            "Origins whose pages may use this server: a comma-separated list, * to let all pages read, or auto, which "
            "allows pages from this machine in local mode and otherwise all."
        ),
    ] = "auto"
    cors_expose: Annotated[
        str, _http("Has no effect: pages that may read a response may read all its headers. Accepted for old commands.")
    ] = ""
    private: Annotated[bool, _http("Allow only clients to cache responses, not shared caches such as a CDN.")] = False
    attachments: Annotated[bool, _http("Make browsers download byte streams instead of showing them.")] = False
    retention: Annotated[
        Literal["snapshot", "explicit"],
        _http("When to trim history: as soon as a snapshot covers it, or only on explicit request."),
    ] = "snapshot"
    long_poll_seconds: Annotated[Seconds, _http("How long a long-poll waits for data.")] = 20.0
    sse_seconds: Annotated[Seconds, _http("How long an SSE connection lasts before the client has to reconnect.")] = (
        60.0
    )
    heartbeat_seconds: Annotated[Seconds, _http("Interval of heartbeat comments on an idle SSE connection.")] = 15.0
    page_bytes: Annotated[
        Size, _http("Maximum size of a catch-up response; a larger JSON message gets a response of its own.")
    ] = MIB

    connections_max: Annotated[
        Count, _connections("Maximum number of open connections; beyond it only /healthz, /readyz and /metrics answer.")
    ] = 20_000
    receiving_bytes_max: Annotated[
        Bytes, _connections("Memory limit for request bodies larger than 64KiB, all together.", ge=32 * MIB)
    ] = 256 * MIB
    sending_bytes_max: Annotated[
        Size, _connections("Memory limit for unsent responses, all together; beyond it only short ones are sent.")
    ] = 256 * MIB
    header_seconds: Annotated[Seconds, _connections("How long a client may take to send a request's headers.")] = 10.0
    body_seconds: Annotated[Seconds, _connections("How long a client may pause while it sends a request's body.")] = (
        30.0
    )
    idle_seconds: Annotated[Seconds, _connections("How long a connection may stay open without a request.")] = 75.0
    slow_reader_seconds: Annotated[
        Seconds, _connections("How long a client with a full socket may read nothing before it is disconnected.")
    ] = 30.0

    hot_bytes_max: Annotated[
        Size, _lake("Memory limit for data that is not in the lake yet; beyond it appends wait.")
    ] = 512 * MIB
    flush_seconds: Annotated[Seconds, _lake("Age at which data in memory is flushed to the lake.")] = 300.0
    flush_bytes_min: Annotated[Bytes, _lake("Minimum amount of data in memory to flush because of its age.", ge=0)] = (
        64 * KIB
    )
    flush_bytes_max: Annotated[Size, _lake("Amount of data in memory that starts a flush at once.")] = 64 * MIB
    flush_journal_bytes: Annotated[Size, _lake("Amount of journal since the last flush that starts the next one.")] = (
        256 * MIB
    )
    flush_segment_bytes: Annotated[Size, _lake("Approximate payload of one object in the lake.")] = 32 * MIB
    flush_concurrency: Annotated[Count, _lake("How many objects to build and upload at the same time.", le=16)] = 2
    flush_at_stop: Annotated[bool, _lake("Flush everything to the lake before the server stops.")] = False
    lake_history_seconds: Annotated[
        Seconds, _lake("How long to keep snapshots of the lake's tables and the objects that they list.")
    ] = 86_400.0
    erase_seconds: Annotated[
        Seconds, _lake("Deadline for physically removing deleted, expired and trimmed messages from the lake.")
    ] = 604_800.0

    journal_file_bytes: Annotated[Bytes, _journal("Size of a journal file.", ge=64 * KIB)] = 64 * MIB
    image_log_bytes: Annotated[Size, _journal("Amount of journal between two images of the state.")] = 64 * MIB

    log_format: Annotated[
        Literal["human", "json"], _logs("Format of the log on standard error; with json, every line is a JSON object.")
    ] = "human"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _logs("Least severe level to log.")] = "info"
    access_log: Annotated[bool, _logs("Log every request.")] = False

    @property
    def mode(self) -> Mode:
        """How the server decides what clients may do."""
        return Mode.GUARDED if self.auth else Mode.OPEN if self.no_auth else Mode.LOCAL

    @property
    def data_directory(self) -> Path:
        return Path(self.data)

    @property
    def ops_address(self) -> tuple[str, int] | None:
        """The address of the separate listener for operators, if there is one."""
        return parse_address(self.ops) if self.ops else None

    @property
    def cluster_urls(self) -> list[str]:
        """The NATS servers of the cluster."""
        return [url.strip() for url in self.cluster.split(",")] if self.cluster else []

    @property
    def cluster_servers(self) -> str:
        """The NATS servers of the cluster, without logins."""
        return ", ".join(url.rpartition("@")[2].rpartition("//")[2] for url in self.cluster_urls)

    @property
    def address(self) -> str:
        """The URL under which operators reach this node; by its host's name if it listens on all addresses."""
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        host = f"[{host}]" if ":" in host else host
        return self.node_url or self.public_url or f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def lake_url(self) -> str:
        """Where the lake is; empty for a server in memory."""
        return "" if self.memory else self.lake or str(self.data_directory / "lake")
