"""`headwater cluster rescue`: continue a cluster whose log in NATS is lost."""

import json
from typing import Any

import click

from headwater.backup.rescue import begin_anew, check_no_stream, continue_log, find_image
from headwater.cli.cluster.command import addresses, ask_node
from headwater.cli.commands import JSON, as_bytes, confirm, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import counted, moment
from headwater.client import TransportFailed
from headwater.client.urls import split_urls
from headwater.lake.ownership import LakeOwned
from headwater.log.jetstream.streams import ClusterConfig, LogRefused
from headwater.protocol.limits import MIB
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, StoreFailed

IMAGE_SECONDS_MAX = 600.0


@verb(
    "headwater cluster rescue --url http://n1:4437,http://n2:4437 --cluster nats://a:4222",
    "headwater cluster rescue --lake s3://bucket/prefix --cluster nats://a:4222 --yes",
)
@click.option("--cluster", "nats", required=True, help="Comma-separated NATS servers to hold the log.")
@click.option("--cluster-name", default="", help="Prefix of the cluster's stream in NATS.")
@click.option(
    "--cluster-log-bytes",
    "log_bytes",
    default="2GiB",
    show_default=True,
    callback=as_bytes(64 * MIB, 2**62),
    help="Size of the log in NATS.",
)
@click.option("--lake", default="", help="Continue from this object store alone, when no node is running.")
@click.option("--yes", is_flag=True, help="Accept the reported loss without confirmation.")
@JSON
@connected
def rescue(
    server: Server, *, nats: str, cluster_name: str, log_bytes: int, lake: str, yes: bool, as_json: bool
) -> None:
    """Continue a cluster after NATS has lost its log for good.

    While nodes still run, nothing that they acknowledged is lost: the one that has applied most stores an image, and a
    new stream continues behind it. With --lake, all nodes must have ended; what was acknowledged since the newest image
    is lost.
    """
    try:
        config = ClusterConfig([url.strip() for url in nats.split(",")], cluster_name, node="rescue")
        rescued = _from_lake(config, lake, log_bytes, yes) if lake else _from_nodes(server, config, log_bytes, yes)
    except (LogRefused, StoreFailed, KeyMissing, LakeOwned, ValueError) as error:
        fail(f"{str(error).rstrip('.')}.", "not_rescued")
    if as_json:
        click.echo(json.dumps(rescued))
    else:
        click.echo(
            f"Log {rescued['log_id']} continues at position {rescued['position'] + 1:,}; "
            "start every node that does not run."
        )


def _from_lake(config: ClusterConfig, lake: str, log_bytes: int, yes: bool) -> dict[str, Any]:
    store = open_store(lake)
    check_no_stream(config)
    found = find_image(store, config.shard)
    state = found.state
    _accept(
        f"The newest image has {counted(len(state.streams), 'stream')}; everything acknowledged after"
        f" {moment(state.now)} is lost.",
        yes,
    )
    log_id = begin_anew(config, store, found, log_bytes)
    return {"log_id": log_id, "position": state.position, "lost_since_us": state.now}


def _from_nodes(server: Server, config: ClusterConfig, log_bytes: int, yes: bool) -> dict[str, Any]:
    views, silent = _ask_all(server)
    if not views:
        fail(
            "No node answers; if none runs any more, rescue the cluster from its --lake.",
            "unreachable",
        )
    for view in views.values():
        if view["outage"] is None:
            fail(f"Node {view['node']} serves, so the log is not lost.", "not_lost")
    if len({view["log_id"] for view in views.values()}) > 1:
        fail("These nodes are of different clusters; check --url.", "different_logs")
    best = max(views, key=lambda url: int(views[url]["applied"]))
    if silent:
        _accept(f"{', '.join(silent)} cannot be asked; what only they have applied is lost.", yes)
    with ask_node(server, best, IMAGE_SECONDS_MAX) as admin:
        taken = admin.image()
    continue_log(config, taken["log_id"], taken["sequence"], log_bytes)
    return taken | {"node": views[best]["node"]}


def _ask_all(server: Server) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Ask the given nodes and the members that they name; return their views, and the URLs that do not answer."""
    views: dict[str, dict[str, Any]] = {}
    silent: list[str] = []
    left = list(split_urls(server.url))
    while left:
        url = left.pop()
        try:
            with ask_node(server, url) as admin:
                views[url] = admin.cluster()
        except TransportFailed:
            silent.append(url)
        else:
            known = {*views, *silent, *left}
            left += [address for address in addresses(views[url]).values() if address not in known]
    return views, sorted(silent)


def _accept(loss: str, yes: bool) -> None:
    if yes:
        click.echo(loss, err=True)
    else:
        confirm(f"{loss} Continue?", f"{loss.rstrip('.')}; accept that with --yes.")
