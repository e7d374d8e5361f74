"""Open a lake that the command line names; a lease keeps its objects for as long as a command reads them."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import pyarrow as pa

from headwater.cli.connecting import check_url, retry_policy
from headwater.cli.failures import fail, fail_request
from headwater.cli.printing import note
from headwater.client import Admin, ClientError
from headwater.lake.catalog import Catalog, ForkRow, ListedSegment, read_catalog, read_forks, read_tombstones
from headwater.lake.damage import LakeDamaged
from headwater.lake.segments.reader import SegmentDamaged
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

NEXT_STEP = "run `headwater lake verify` to see what else is wrong"
REPLACED = "the server may have replaced it since, so try again, with --server for a long command"
LEASE_SECONDS = 600
"""How long the lease of a killed command delays deletions."""
RENEW_SECONDS = 60.0
RETRY_SECONDS = 10.0

SERVER = click.option(
    "--server",
    metavar="URL",
    callback=check_url,
    help="URL of the lake's server: it keeps what this command reads, however long that takes.",
)
DATA = click.option(
    "--data", type=click.Path(path_type=Path), help="Data directory of a server that keeps its lake there."
)


class OpenLake(NamedTuple):
    """A lake as of its newest catalog."""

    store: Store
    catalog: Catalog
    tombstones: pa.Table
    forks: list[ForkRow]


def find_store(url: str | None, data: Path | None) -> Store:
    """Return the store that the command line names."""
    if url is not None and data is None:
        place = url
    elif data is not None and url is None:
        place = str(data / "lake")
    else:
        raise click.UsageError("Name a lake: either its folder or s3://bucket/prefix, or --data DIR.")
    if place == "memory:":
        raise click.UsageError("A lake in memory exists only inside its server; name a folder or s3://bucket/prefix.")
    try:
        return open_store(place)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def failing() -> Iterator[None]:
    """End with one sentence if anything is wrong with the lake."""
    try:
        yield
    except (LakeDamaged, SegmentDamaged) as error:
        fail(f"{str(error).rstrip('.')}; {NEXT_STEP}.")
    except KeyMissing as error:
        fail(
            f"{str(error).rstrip('.')}, although the catalog lists it; {REPLACED}, and if that fails too, {NEXT_STEP}."
        )
    except StoreFailed as error:
        fail(f"{str(error).rstrip('.')}; check the URL, the permissions and, for S3, the AWS_ variables.")


def open_lake(store: Store) -> OpenLake:
    """Return the lake in a store, or end with a sentence if there is none."""
    catalog = read_catalog(store)
    if catalog is None:
        no_lake(store)
    return OpenLake(store, catalog, read_tombstones(store, catalog), read_forks(store, catalog))


def no_lake(store: Store) -> NoReturn:
    fail(f"There is no lake at {store.url}; check the URL, or write one with `headwater flush`.")


def segment_facts(listed: ListedSegment) -> dict[str, Any]:
    """Return all members of a segment in the catalog, without nesting."""
    members = {name: getattr(listed.segment, name) for name in listed.segment.__struct_fields__}
    return {"key": listed.key, "live_rows": listed.live_rows, **members}


# -- Leases ------------------------------------------------------------------------------------------------------------


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
            note(f"The lease could not be renewed, so the server may delete objects that this command reads: {error}")


def _give_back(admin: Admin, lease: str) -> None:
    try:
        admin.forget_consumer(lease)
    except ClientError as error:
        note(f"The lease could not be released; it expires in {LEASE_SECONDS} seconds: {error}")
