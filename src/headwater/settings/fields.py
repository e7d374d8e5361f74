"""Every setting, once: its type, limits, unit, choices, default and help."""

import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headwater.settings.modes import Mode, mode_of

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s\[\]:/]+)):(?P<port>[0-9]{1,5})")

KIB = 1024
MIB = 1024 * KIB

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Addresses that mean all of a machine's."""


def about(help: str, **limits: Any) -> Meta:
    """Describe a setting, and add limits to those of its type."""
    return Meta(description=help, **limits)


Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(extra={"unit": "bytes"})]
Size = Annotated[Bytes, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]


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
    """Everything that an operator may choose."""

    host: Annotated[str, about("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, about("Port to listen on; 0 picks a free one.")] = 4437
    data: Annotated[str, about("Directory of the journal and its images.")] = "data"
    workers: Annotated[
        Count, about("How many processes serve, to use several cores; each holds all streams' metadata.", le=64)
    ] = 1
    memory: Annotated[bool, about("Keep everything in memory and nothing on disk.")] = False
    lake: Annotated[
        str,
        about("Where history is stored: a folder or s3://bucket/prefix. Empty: the folder lake in the data directory."),
    ] = ""
    cluster: Annotated[
        str,
        about("Comma-separated NATS servers of a cluster, such as nats://a:4222,nats://b:4222. Empty: no cluster."),
    ] = ""
    cluster_name: Annotated[
        str, about("Prefix of this cluster's stream in NATS, so that several clusters can share NATS servers.")
    ] = ""
    cluster_log_bytes: Annotated[
        Bytes,
        about(
            "Size of the log in NATS, which reserves it on every server; counts when the log is created.", ge=64 * MIB
        ),
    ] = 2048 * MIB
    node: Annotated[
        str, about("Name of this node in the cluster; each running process needs its own. Empty: made from the host's.")
    ] = ""
    node_url: Annotated[
        str,
        about("URL under which operators and other nodes reach this one. Empty: made from --public-url, or --host."),
    ] = ""
    level_max: Annotated[
        int,
        about("Highest level of commands this node uses; 0: the newest. A lower one keeps the way back open.", ge=0),
    ] = 0
    retention: Annotated[
        Literal["snapshot", "explicit"],
        about("When history is trimmed: whenever a snapshot that covers it is published, or only on explicit request."),
    ] = "snapshot"
    private: Annotated[bool, about("Let only clients cache responses, not shared caches such as a CDN.")] = False
    attachments: Annotated[bool, about("Make browsers download byte streams instead of showing them.")] = False
    auth: Annotated[str, about("File that says who may do what; see `headwater token`.")] = ""
    no_auth: Annotated[bool, about("Let everybody do everything, on any address: a proxy in front decides.")] = False
    hosts: Annotated[
        str,
        about(
            "Comma-separated names under which clients call this server, besides localhost and addresses; * for all."
        ),
    ] = ""
    proxies: Annotated[
        str,
        about(
            "Comma-separated networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, such as "
            "10.0.0.0/8."
        ),
    ] = ""
    audit: Annotated[
        str, about("File for the audit log. Empty: with --auth it goes to standard error, else there is none.")
    ] = ""
    address_connections_max: Annotated[
        int, Meta(ge=0), about("Maximum number of connections from one address; 0 for no limit of their own.")
    ] = 0
    public_url: Annotated[
        str,
        about("Origin under which clients reach this server, such as https://streams.example, if a proxy hides it."),
    ] = ""
    cors_origins: Annotated[
        str,
        about(
            "Origins whose pages may use this server: a comma-separated list, * to let all pages read, or auto: pages "
            "of this machine in local mode, else all."
        ),
    ] = "auto"
    cors_expose: Annotated[
        str, about("Comma-separated response headers that pages may read in addition to Headwater's own.")
    ] = ""
    mount: Annotated[
        str,
        Meta(extra={"repeatable": True}),
        about(
            "Further path where streams are found as below /v1/stream, such as /api/streams; join several by commas."
        ),
    ] = ""
    tls_cert: Annotated[
        str, about("File with the certificate chain for TLS, PEM; give --tls-key too. Empty: plain HTTP.")
    ] = ""
    tls_key: Annotated[str, about("File with the private key of the certificate, PEM, without a passphrase.")] = ""
    tls_client_ca: Annotated[
        str, about("File with the authorities whose client certificates are believed, PEM. Empty: none is requested.")
    ] = ""
    tls_client: Annotated[
        Literal["required", "optional"],
        about("Whether each client must present a certificate, if --tls-client-ca is given."),
    ] = "required"
    tls_min: Annotated[Literal["1.2", "1.3"], about("Oldest version of TLS that is accepted.")] = "1.2"
    ops: Annotated[
        str,
        about("Address of a listener for operators, such as 127.0.0.1:4438; then metrics and status are only there."),
    ] = ""
    log_format: Annotated[
        Literal["human", "json"],
        about(
            "Format of the log on standard error. With json every line is a JSON object, the first and the last too."
        ),
    ] = "human"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("Least severe level that is logged.")] = (
        "info"
    )
    access_log: Annotated[bool, about("Log every request.")] = False
    long_poll_seconds: Annotated[Seconds, about("How long a long-poll waits for data.")] = 20.0
    sse_seconds: Annotated[Seconds, about("How long an SSE connection lasts before the client has to reconnect.")] = (
        60.0
    )
    heartbeat_seconds: Annotated[Seconds, about("How often an idle SSE connection gets a comment.")] = 15.0
    page_bytes: Annotated[
        Size, about("Maximum size of one catch-up response; a larger JSON message has a response of its own.")
    ] = MIB
    segment_bytes: Annotated[Bytes, about("Size of a journal file.", ge=64 * KIB)] = 64 * MIB
    image_log_bytes: Annotated[Size, about("How much is written to the journal between two images.")] = 64 * MIB
    hot_bytes_max: Annotated[Size, about("How much memory hot data may take before appends wait for the lake.")] = (
        512 * MIB
    )
    flush_seconds: Annotated[Seconds, about("Age at which data in memory is flushed to the lake.")] = 300.0
    flush_bytes_min: Annotated[Bytes, about("Minimum amount of data in memory for a flush because of age.", ge=0)] = (
        64 * KIB
    )
    flush_bytes_max: Annotated[Size, about("Amount of data in memory that starts a flush at once.")] = 64 * MIB
    flush_journal_bytes: Annotated[Size, about("Amount of journal since the last flush that starts the next one.")] = (
        256 * MIB
    )
    flush_segment_bytes: Annotated[Size, about("Approximate payload of one object in the lake.")] = 32 * MIB
    flush_concurrency: Annotated[Count, about("How many objects are built and uploaded at the same time.", le=16)] = 2
    flush_at_stop: Annotated[bool, about("Flush everything to the lake before the server stops.")] = False
    lake_history_seconds: Annotated[
        Seconds, about("How long snapshots of the lake's tables are kept, and with them the objects they list.")
    ] = 86_400.0
    erase_seconds: Annotated[
        Seconds, about("Within which time deleted, expired and trimmed messages are gone from the lake's objects.")
    ] = 604_800.0
    connections_max: Annotated[
        Count, about("Maximum number of open connections; beyond it only /healthz, /readyz and /metrics answer.")
    ] = 20_000
    receiving_bytes_max: Annotated[
        Bytes,
        about("How much memory request bodies may take together; those larger than 64KiB count.", ge=32 * MIB),
    ] = 256 * MIB
    sending_bytes_max: Annotated[
        Size, about("How much memory responses to clients that do not read may take before only short ones are sent.")
    ] = 256 * MIB
    header_seconds: Annotated[Seconds, about("How long a client may take to send the headers of a request.")] = 10.0
    body_seconds: Annotated[Seconds, about("How long a client may pause within the body of a request.")] = 30.0
    idle_seconds: Annotated[Seconds, about("How long a connection may stay open without a request.")] = 75.0
    slow_reader_seconds: Annotated[
        Seconds, about("How long a reader may take nothing from a full socket before it is disconnected.")
    ] = 30.0
    drain_seconds: Annotated[Seconds, about("How long running requests may take to finish at shutdown.")] = 10.0

    @property
    def mode(self) -> Mode:
        """Who decides what clients may do."""
        return mode_of(auth=self.auth, no_auth=self.no_auth)

    @property
    def data_directory(self) -> Path:
        return Path(self.data)

    @property
    def ops_address(self) -> tuple[str, int] | None:
        """Where operators are served, if apart from clients."""
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
        """Where the lake is; empty if nothing is kept."""
        return "" if self.memory else self.lake or str(self.data_directory / "lake")
