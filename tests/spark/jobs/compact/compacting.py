"""Compaction of a server's lake on demand."""

from headwater.lake.catalog import Catalog, read_catalog, read_forks, read_tombstones
from headwater.lake.compaction.rewriting import Cuts, Keep
from headwater.spark.jobs.compact import Dead, carry_out, plan_rewrites
from headwater.spark.link import Link
from headwater.storage.opening import open_store

EVERYTHING = 2**63 - 1


def listed(link: Link) -> set[str]:
    """The segments of the lake after a flush."""
    link.flush()
    return {one.key for one in _catalog(link).segments}


def _catalog(link: Link) -> Catalog:
    catalog = read_catalog(open_store(link.status()["lake"]["url"]))
    assert catalog is not None
    return catalog


def compact(link: Link) -> None:
    """Rewrite what is worth it, unless the server does so first, and write a catalog."""
    link.flush()
    store, catalog = open_store(link.status()["lake"]["url"]), _catalog(link)
    lowest = min((positions["0"] for positions in link.consumers().values()), default=EVERYTHING)
    dead = Dead(read_tombstones(store, catalog), read_forks(store, catalog))
    for planned in plan_rewrites(catalog, lowest):
        outcome = carry_out(planned, store, Keep(dead.below, lowest), Cuts(1024 * 1024, 10_000), link.swap)
        assert outcome.what != "failed", outcome.detail
    link.flush()
