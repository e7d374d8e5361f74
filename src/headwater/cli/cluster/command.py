"""`headwater cluster`: inspect a cluster, wait for it, drain a node, and compare replicas."""

import json
import time
from collections.abc import Callable
from typing import Any

import click

from headwater.cli.commands import JSON, Verbs
from headwater.cli.connecting import Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import columns, counted, facts, note, span
from headwater.cli.tree import not_installed
from headwater.client import Admin, ClientError, RetryPolicy, ServerUnavailable, TransportFailed

ANSWER_SECONDS = 5.0
SILENT_SECONDS = 2.0
"""A member that was not heard from for this long counts as silent."""
POLL_SECONDS = 0.2
DRAIN_SECONDS = 30.0
RIGHT = (False, False, True, True, True, False)
"""Which columns of the members are numbers."""
ATTEMPTS_MAX = 3
"""How often a checkpoint is repeated because a node was writing an image just then."""
TIMEOUT = click.option(
    "--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds to wait."
)
NOT_IMPLEMENTED = "not_implemented"


def sees(server: Server) -> dict[str, Any]:
    """Return the view of the cluster that the node at the server's URL has."""
    with server.admin() as admin:
        return admin.cluster()


def addresses(view: dict[str, Any]) -> dict[str, str]:
    """Return the members' URLs by their names."""
    return {member["name"]: member["address"] for member in view["members"]}


def silent(view: dict[str, Any]) -> list[str]:
    """Return the members that have not been heard from lately."""
    return [
        member["name"]
        for member in view["members"]
        if member["silent_seconds"] is None or member["silent_seconds"] > SILENT_SECONDS
    ]


def ask_node(server: Server, address: str, timeout_seconds: float = ANSWER_SECONDS) -> Admin:
    """Return a client for one node, with the same credential for all."""
    return Admin(
        address,
        headers=server.destination.headers,
        token=server.destination.credential,
        retry=RetryPolicy(attempts_max=1, connect_attempts_max=1),
        timeout_seconds=timeout_seconds,
    )


class ClusterVerbs(Verbs):
    """All verbs; `rescue` is imported on demand, because it alone needs the packages of the server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "rescue"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "rescue":
            return super().get_command(ctx, cmd_name)
        try:
            from headwater.cli.cluster.rescue import rescue  # noqa: PLC0415
        except ModuleNotFoundError as error:
            return not_installed("cluster rescue", error)
        return rescue


@click.group(cls=ClusterVerbs)
def cluster() -> None:
    """Operate a cluster. Exit codes: 0 healthy, 1 not healthy, 2 wrong usage."""


@cluster.verb("headwater cluster status", "headwater cluster status --json | jq .keeper")
@JSON
@connected
def status(server: Server, as_json: bool) -> None:
    """Show the members and the state of NATS.

    Also shows the node that does the background work. Exits with 1 if there is a problem.
    """
    view = sees(server)
    problems = problems_of(view)
    if as_json:
        click.echo(json.dumps(view | {"problems": problems}))
    else:
        _print(view)
        for problem in problems:
            note(f"Problem: {problem}")
    if problems:
        raise SystemExit(1)


def problems_of(view: dict[str, Any]) -> list[str]:
    """Return one sentence for each problem of a cluster."""
    problems = [str(view[name]) for name in ("outage", "shortage") if view.get(name) is not None]
    if view["keeper"] is None:
        problems.append("No node does the background work.")
    problems += [f"Member {name} is silent." for name in silent(view)]
    return problems


def _standing(view: dict[str, Any]) -> str:
    """Return what a node does; a member that is cut off from the log does not serve."""
    return "not serving" if view["standing"] == "serving" and view["outage"] is not None else str(view["standing"])


def _print(view: dict[str, Any]) -> None:
    age = view["image_age_seconds"]
    rows = [
        ("node", f"{view['node']} ({_standing(view)})"),
        ("log", f"{view['log_id']} at message {view['applied']:,} of {view['known']:,}"),
        ("background work", view["keeper"] or "no node"),
        ("level", str(view["level"])),
        ("NATS leader", view["leader"] or "none known"),
        ("replica lag", "unknown" if view["replica_lag"] is None else f"{view['replica_lag']:,} messages"),
        ("image age", "no image" if age is None else span(age)),
    ]
    facts(rows)
    table = (
        (
            member["name"],
            member["address"],
            "?" if member["applied"] is None else f"{member['applied']:,}",
            "?" if member["clock_offset_ms"] is None else f"{member['clock_offset_ms']:,} ms",
            str(member["level"]),
            "never" if member["silent_seconds"] is None else f"{member['silent_seconds']:.1f} s ago",
        )
        for member in view["members"]
    )
    columns(("MEMBER", "ADDRESS", "APPLIED", "CLOCK", "LEVEL", "HEARD"), table, RIGHT, head=True)


@cluster.verb("headwater cluster wait-ready --nodes 3 --timeout 60", name="wait-ready")
@click.option(
    "--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many members there must be."
)
@TIMEOUT
@JSON
@connected
def wait_ready(server: Server, nodes: int, timeout: float, as_json: bool) -> None:
    """Wait until enough members serve.

    All members must respond, and one must do the background work. Exits with 1 after the timeout.
    """
    problems: list[str] = []
    members = 0

    def ready() -> bool:
        nonlocal problems, members
        try:
            view = sees(server)
        except (ServerUnavailable, TransportFailed) as error:
            if isinstance(error, ServerUnavailable) and error.code == NOT_IMPLEMENTED:
                raise  # Not a node of a cluster, however long we wait.
            problems = [f"{server.url} does not answer."]
            return False
        members = len(view["members"])
        missing = nodes - members
        problems = problems_of(view) + ([_missing(missing, nodes)] if missing > 0 else [])
        return not problems

    done = _wait(ready, timeout)
    if as_json:
        click.echo(json.dumps({"ready": done, "problems": problems}))
    elif done:
        click.echo(f"The cluster is ready with {counted(members, 'member')}.")
    if not done:
        fail(f"The cluster is not ready after {timeout:g} s: {' '.join(problems)}", "not_ready")


def _missing(missing: int, nodes: int) -> str:
    return f"{missing} of {nodes} members {'is' if missing == 1 else 'are'} missing."


@cluster.verb("headwater cluster drain n2")
@click.argument("node")
@JSON
@connected
def drain(server: Server, node: str, as_json: bool) -> None:
    """Let NODE finish its requests, leave the cluster and stop."""
    members = addresses(sees(server))
    if node not in members:
        fail(f"{node} is not a member; the members are {', '.join(sorted(members)) or 'none'}.", "not_a_member")
    with ask_node(server, members[node]) as admin:
        admin.drain()
    others = {name: address for name, address in members.items() if name != node}

    def gone() -> bool:
        for address in others.values() or ():
            try:
                with ask_node(server, address) as admin:
                    return node not in addresses(admin.cluster())
            except ClientError:
                continue
        return not others

    done = _wait(gone, DRAIN_SECONDS)
    if as_json:
        click.echo(json.dumps({"node": node, "left": done}))
    elif done:
        click.echo(f"{node} has left the cluster.")
    if not done:
        fail(f"{node} is still a member after {DRAIN_SECONDS:g} s.", "not_left")


@cluster.verb("headwater cluster verify")
@TIMEOUT
@JSON
@connected
def verify(server: Server, timeout: float, as_json: bool) -> None:
    """Compare the state of all members.

    Every member hashes its state at one position of the log. Exits with 1 if any differs or does not answer.
    """
    for _ in range(ATTEMPTS_MAX):
        digests = _digests(server, timeout)
        if "busy" not in digests.values():
            break
    answered = {digest for digest in digests.values() if digest is not None}
    missing = sorted(name for name, digest in digests.items() if digest is None or digest == "busy")
    same = len(answered) == 1 and not missing
    if as_json:
        click.echo(json.dumps({"same": same, "digests": digests}))
    else:
        rows = ((name, digest or "no answer") for name, digest in sorted(digests.items()))
        columns(("MEMBER", "SHA-256"), rows, (False, False), head=True)
    if missing:
        fail(f"Members that did not answer: {', '.join(missing)}.", "no_answer")
    if not same:
        fail("The members differ in what they hold; restart those that differ, so that they load an image.", "differ")
    if not as_json:
        click.echo(f"The state of {counted(len(digests), 'member')} is the same.")


def _digests(server: Server, timeout: float) -> dict[str, str | None]:
    """Return the hash of each member at a new checkpoint; None for a member that does not answer."""
    with server.admin() as admin:
        view = admin.cluster()
        members = addresses(view)
        try:
            checkpoint = admin.checkpoint()
        except ServerUnavailable:
            if (known := compared_at(view)) is None:
                raise
            checkpoint = known
    digests: dict[str, str | None] = dict.fromkeys(members)

    def complete() -> bool:
        for name, address in members.items():
            if digests[name] is None:
                digests[name] = _digest(server, address, checkpoint)
        return None not in digests.values()

    _wait(complete, timeout)
    return digests


def compared_at(view: dict[str, Any]) -> str | None:
    """Return the checkpoint at which a node found a difference and stopped serving; it makes no new ones."""
    latest = view["checkpoint"]
    return str(latest["id"]) if latest is not None and latest["id"] in str(view["outage"]) else None


def _digest(server: Server, address: str, checkpoint: str) -> str | None:
    try:
        with ask_node(server, address) as admin:
            found = admin.cluster()["checkpoint"]
    except ClientError:
        return None
    if found is None or found["id"] != checkpoint:
        return None
    return "busy" if found["failed"] else found["sha256"]


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True
