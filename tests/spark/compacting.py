"""A compaction of a server's lake, when a test wants one."""

from headwater.lake.compaction import RewriteLimits
from headwater.lake.rewriting import Cuts, Keep
from headwater.lake.scanning import read_catalog, read_forks, read_graves
from headwater.lake.stores import open_store
from headwater.spark.jobs.compact_plan import Dead, plan_rewrites
from headwater.spark.jobs.compact_task import carry_out
from headwater.spark.link import Link

EVERYTHING = 2**63 - 1


def compact(link: Link) -> int:
    """Rewrite what is worth it, and wait for a catalog that tells of it; how many rewrites were swapped in."""
    link.flush()
    store = open_store(link.status()["lake"]["url"])
    catalog = read_catalog(store)
    assert catalog is not None
    lowest = min((positions["0"] for positions in link.readers().values()), default=EVERYTHING)
    dead = Dead(read_graves(store, catalog), read_forks(store, catalog))
    swapped = 0
    for planned in plan_rewrites(catalog, lowest, RewriteLimits(small_bytes=1)):
        keep, cuts = Keep(dead.below, lowest), Cuts(1024 * 1024, 10_000)
        swapped += carry_out(planned, store, keep, cuts, link.swap).what == "swapped"
    link.flush()
    return swapped
