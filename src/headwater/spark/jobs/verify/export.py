"""The export to verify: what it should hold, and how far it has come."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from headwater.spark.jobs.export.job import open_table
from headwater.spark.jobs.export.ledger import IDENTITY_KEY, all_columns, export_id_of, read_json
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import Table, TableFile, TableOptions
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.paths import open_location
from headwater.spark.jobs.report import JobFailed

CHOICE = ("bucket", "prefix", "streams", "streamsPattern")
_BATCH = re.compile(r"(?:^|/)batch-(\d{10})-[^/]+$")
TIMES = ("startingTimestamp", "endingTimestamp")
"""The options of the source that select what an export holds."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export and its current state."""

    location: str
    origin: Origin
    position: int
    """The position of the log up to which it is complete; -1 if it is empty."""
    since: int | None
    until: int | None
    """The time range of its messages, in microseconds since 1970."""
    shapes: Sequence[tuple[int, Shape]]
    """Its columns in addition to those of the lake, each with the batch from which on they were these."""
    table: Table

    def files(self) -> dict[Shape, list[TableFile]]:
        """The files of its table, by the columns that they have."""
        found: dict[Shape, list[TableFile]] = {self.shapes[0][1]: []}
        for file in self.table.files():
            found.setdefault(self._shape_of(file), []).append(file)
        return found

    def _shape_of(self, file: TableFile) -> Shape:
        """The columns of a file, by the batch in its name; a file that another tool has made may be of any batch."""
        if len(self.shapes) == 1:
            return self.shapes[0][1]
        batch = _BATCH.search(file.key)
        if batch is None:
            return Shape()
        return next(shape for first, shape in reversed(self.shapes) if first <= int(batch[1]))


def open_export(url: str, origin: Origin, catalog: str | None = None, table: str | None = None) -> Export:
    """The export at a URL; JobFailed if there is none, or if it is of other streams than the origin."""
    store = open_location(url)
    identity = read_json(store, IDENTITY_KEY)
    if identity is None:
        raise JobFailed(
            f"There is no export at {store.location}; create one with `headwater spark export --to {store.location}`."
        )
    selection = identity["selection"]
    origin = chosen(origin, selection, store.location)
    times = replace(origin, options={name: selection[name] for name in TIMES if name in selection}).parsed()
    with origin.link() as link:
        log_id = link.log_id()
    if log_id != identity["log_id"]:
        raise JobFailed(
            f"The export at {store.location} is from another server than {origin.url}; pass that server as --url."
        )
    opened = open_table(identity["format"], store, TableOptions(export_id_of(identity), StructType([]), catalog, table))
    # Read before the files are listed, so that they are complete up to this position.
    position = opened.position
    reached = -1 if position is None else position
    shapes = [(batch, Shape(**shape)) for batch, shape in all_columns(store)]
    return Export(store.location, origin, reached, times.since, times.until, shapes, opened)


def chosen(origin: Origin, selection: Mapping[str, str], where: str) -> Origin:
    """The origin with the export's selection of streams, which need not be given again."""
    given = {name: value for name, value in origin.source_options().items() if name in CHOICE}
    wanted = {name: value for name, value in selection.items() if name in CHOICE}
    if given and given != wanted:
        raise JobFailed(f"The export at {where} is of {json.dumps(wanted)}; select the same streams, or none.")
    return replace(
        origin,
        bucket=wanted.get("bucket"),
        prefix=wanted.get("prefix"),
        streams=json.loads(wanted.get("streams", "[]")),
        pattern=wanted.get("streamsPattern"),
    )
