"""The lease of a command that reads a lake: as long as it runs, the lake's server keeps the objects that it reads."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from headwater.cli.connecting import check_url, retry_policy
from headwater.cli.failures import fail_request
from headwater.cli.printing import note
from headwater.client import Admin, ClientError

LEASE_SECONDS = 600
"""How long a command that was killed delays deletions."""
RENEW_SECONDS = 60.0
RETRY_SECONDS = 10.0

SERVER = click.option(
    "--server",
    metavar="URL",
    callback=check_url,
    help="URL of the lake's server: it keeps what this command reads, however long that takes.",
)


@contextmanager
def leased(server: str | None, headers: Mapping[str, str], renew_seconds: float = RENEW_SECONDS) -> Iterator[None]:
    """Hold a lease for as long as the block runs; a catalog that is read in the block is no older than the lease."""
    if server is None:
        yield
        return
    lease, ended = f"lake-command-{secrets.token_hex(8)}", threading.Event()
    with Admin(server, headers=headers, retry=retry_policy(RETRY_SECONDS)) as admin:
        try:
            admin.lease(lease, LEASE_SECONDS)
        except ClientError as error:
            fail_request(error, server, "NAME")
        renewing = threading.Thread(target=_renew, args=(admin, lease, ended, renew_seconds), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            _give_back(admin, lease)


def _renew(admin: Admin, lease: str, ended: threading.Event, pause_seconds: float) -> None:
    while not ended.wait(pause_seconds):
        try:
            admin.lease(lease, LEASE_SECONDS, renew=True)
        except ClientError as error:
            note(f"The lease could not be renewed, so the server may delete what this command reads: {error}")


def _give_back(admin: Admin, lease: str) -> None:
    try:
        admin.forget_consumer(lease)
    except ClientError as error:
        note(f"The lease could not be given back; it ends by itself in {LEASE_SECONDS} seconds: {error}")
