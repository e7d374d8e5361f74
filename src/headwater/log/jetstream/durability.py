"""Durability: whether NATS servers sync each message before they acknowledge it.

By default JetStream syncs every two minutes: a power failure of a majority would lose acknowledged messages. Only the
monitoring port tells. A client cannot ask for it: the system account, which answers, has no streams.
"""

import http.client
from urllib.parse import urlsplit

import msgspec

from headwater.log.jetstream.wire import split_login

MONITOR_PORT = 8222
"""Where NATS servers are monitored by default."""
ANSWER_SECONDS_MAX = 2.0
VARZ_BYTES_MAX = 1024 * 1024


class _JetStreamConfig(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _JetStream(msgspec.Struct, frozen=True):
    config: _JetStreamConfig | None = None


class _Varz(msgspec.Struct, frozen=True):
    server_name: str = ""
    jetstream: _JetStream = _JetStream()


class NotVerified(Exception):
    """A NATS server does not say how it syncs; the message is one sentence for a person."""


def monitor_url(server_url: str) -> str:
    """Where the monitoring port of a NATS server is, if it is the usual one.

    >>> monitor_url("nats://me:se#cret@a:4222")
    'http://a:8222'
    """
    host = urlsplit(split_login(server_url)[1]).hostname or ""
    return f"http://[{host}]:{MONITOR_PORT}" if ":" in host else f"http://{host}:{MONITOR_PORT}"


def judge_sync(url: str) -> str | None:
    """What is wrong with how a NATS server syncs, as one sentence; None if it syncs each message. Blocks.

    NotVerified if its monitoring port, at this URL, does not tell.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or MONITOR_PORT, timeout=ANSWER_SECONDS_MAX
    )
    try:
        connection.request("GET", "/varz")
        found = msgspec.json.decode(connection.getresponse().read(VARZ_BYTES_MAX), type=_Varz)
    except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
        raise NotVerified(
            f"Whether NATS syncs each message cannot be verified at {url} ({error}); set sync_interval to always,"
            " and enable the monitoring port with http: 8222."
        ) from error
    finally:
        connection.close()
    config = found.jetstream.config
    if config is None:
        return (
            f"The NATS server {found.server_name} runs without JetStream; add a jetstream block to its configuration."
        )
    if not config.sync_always:
        return (
            f"The NATS server {found.server_name} does not sync each message, so a power failure can lose what was"
            " acknowledged; set sync_interval to always in its jetstream block."
        )
    return None
