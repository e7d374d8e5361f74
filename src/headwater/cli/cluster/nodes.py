"""The nodes of a cluster, by what one of them says."""

from typing import Any

from headwater.cli.connecting import Server
from headwater.client import Admin, RetryPolicy

ANSWER_SECONDS = 5.0
SILENT_SECONDS = 2.0
"""A member that was not heard for so long counts as silent."""


def sees(server: Server) -> dict[str, Any]:
    """The cluster as the node at the server's URL sees it."""
    with server.admin() as admin:
        return admin.cluster()


def addresses(view: dict[str, Any]) -> dict[str, str]:
    """The members' URLs by their names."""
    return {member["name"]: member["address"] for member in view["members"]}


def silent(view: dict[str, Any]) -> list[str]:
    """The members that are not heard."""
    return [
        member["name"]
        for member in view["members"]
        if member["silent_seconds"] is None or member["silent_seconds"] > SILENT_SECONDS
    ]


def ask_node(server: Server, address: str) -> Admin:
    """One node, with the credential that is used for all."""
    return Admin(
        address,
        headers=server.destination.headers,
        token=server.destination.credential,
        retry=RetryPolicy(attempts_max=1, connect_attempts_max=1),
        timeout_seconds=ANSWER_SECONDS,
    )
