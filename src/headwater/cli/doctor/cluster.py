"""The checks of `headwater doctor` on the NATS servers of a cluster."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from headwater.cli.doctor.findings import Finding, Verdict
from headwater.log.jetstream.durability import NotVerified, judge_sync, monitor_url
from headwater.log.jetstream.streams import LogRefused, Place
from headwater.log.jetstream.visiting import Visit
from headwater.log.jetstream.wire import parse_address

ANSWER_SECONDS = 3.0
SERVERS_ENOUGH = 3


def nats_servers(urls: str, monitors: str | None) -> Iterator[Finding]:
    """Check that each NATS server can be used, that it syncs each message, and that one of them may be lost."""
    servers = [url.strip() for url in urls.split(",")]
    monitor_urls = monitors.split(",") if monitors else [monitor_url(url) for url in servers]
    clustered = False
    for url in servers:
        try:
            name = parse_address(url).name
        except ValueError as error:
            yield Finding("nats", "problem", str(error), "correct --cluster")
            continue
        try:
            with Visit(Place([url]), ANSWER_SECONDS) as visit:
                info = visit.client.info
        except LogRefused as error:
            yield _parted(f"nats {name}", "problem", error)
        else:
            clustered = clustered or bool(info.cluster)
            yield Finding(f"nats {name}", "ok", f"version {info.version} with JetStream")
    for url in monitor_urls:
        yield _sync(url.strip())
    if clustered and len(servers) >= SERVERS_ENOUGH:
        yield Finding("nats cluster", "ok", f"{len(servers)} servers")
    else:
        detail = f"{len(servers)} of at least {SERVERS_ENOUGH} servers that form a cluster"
        yield Finding("nats cluster", "warning", detail, "run three NATS servers, so that one may be lost")


def _sync(url: str) -> Finding:
    check = f"nats sync {urlsplit(url).netloc}"
    try:
        problem = judge_sync(url)
    except NotVerified as error:
        return _parted(check, "warning", error)
    return Finding(check, "ok", "each message") if problem is None else _parted(check, "problem", problem)


def _parted(check: str, verdict: Verdict, sentence: object) -> Finding:
    """A finding whose sentence ends with the advice."""
    detail, _, advice = str(sentence).rstrip(".").rpartition("; ")
    return Finding(check, verdict, detail, advice)
