"""Which columns and rows a task returns."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import SCHEMA
from headwater.spark.options.source import Selection
from headwater.spark.source.filters import Conditions


class RowQuery(NamedTuple):
    """The columns to return, the selected streams, and the filters that Spark pushed down."""

    columns: frozenset[str]
    selection: Selection
    conditions: Conditions

    def columns_with(self, more: frozenset[str]) -> list[str]:
        """The columns to read: those returned, those that conditions check, and `more`; in the lake's order."""
        needed = self.columns | self.conditions.columns | more
        return [name for name in SCHEMA.names if name in needed]

    def matching_names(self, table: pa.Table) -> pa.Table:
        """The rows whose streams are selected; each distinct name is tested once."""
        names = pc.binary_join_element_wise(table["bucket"], table["stream"], "/")
        selected = [name for name in pc.unique(names).to_pylist() if self.selection.has(name)]
        return table.filter(pc.is_in(names, value_set=pa.array(selected, pa.string())))
