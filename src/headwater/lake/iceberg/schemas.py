"""The schemas of the tables, as Iceberg describes them, and of manifests and lists of manifests, in Avro."""

import json
from typing import Any

import pyarrow as pa

from headwater.lake.iceberg.avro import field, id_map, optional_field, record

_TYPES = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


def with_ids(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns have the ids 1, 2 and so on."""
    return pa.schema(
        [column.with_metadata({"PARQUET:field_id": str(number)}) for number, column in enumerate(schema, start=1)]
    )


def table_schema(schema: pa.Schema) -> dict[str, Any]:
    """Iceberg's description of a table's columns, whose ids are those of `with_ids`."""
    fields = [
        {"id": number, "name": column.name, "required": not column.nullable, "type": _TYPES[column.type]}
        for number, column in enumerate(schema, start=1)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


SORT_COLUMNS = ("bucket", "stream", "incarnation", "offset")
SORT_ORDER_ID = 1


def sort_order(schema: pa.Schema) -> dict[str, Any]:
    """Iceberg's description of the order that the rows of most files have; the table as a whole has none.

    A file whose entry does not name it has another order: that of whole names, in which `team-a/x` is before `team/x`.
    """
    fields = [
        {"source-id": number, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
        for number, column in enumerate(schema, start=1)
        if column.name in SORT_COLUMNS
    ]
    return {"order-id": SORT_ORDER_ID, "fields": fields}


DATA_FILE = record(
    "r2",
    field("content", 134, "int"),
    field("file_path", 100, "string"),
    field("file_format", 101, "string"),
    field("partition", 102, record("r102")),
    field("record_count", 103, "long"),
    field("file_size_in_bytes", 104, "long"),
    optional_field("column_sizes", 108, id_map(117, 118, "long")),
    optional_field("value_counts", 109, id_map(119, 120, "long")),
    optional_field("null_value_counts", 110, id_map(121, 122, "long")),
    optional_field("nan_value_counts", 137, id_map(138, 139, "long")),
    optional_field("lower_bounds", 125, id_map(126, 127, "bytes")),
    optional_field("upper_bounds", 128, id_map(129, 130, "bytes")),
    optional_field("key_metadata", 131, "bytes"),
    optional_field("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
    optional_field("equality_ids", 135, {"type": "array", "items": "int", "element-id": 136}),
    optional_field("sort_order_id", 140, "int"),
    optional_field("referenced_data_file", 143, "string"),
)
ENTRY = record(
    "manifest_entry",
    field("status", 0, "int"),
    optional_field("snapshot_id", 1, "long"),
    optional_field("sequence_number", 3, "long"),
    optional_field("file_sequence_number", 4, "long"),
    field("data_file", 2, DATA_FILE),
)
"""An entry of a manifest."""

_PARTITION = record(
    "r508",
    field("contains_null", 509, "boolean"),
    optional_field("contains_nan", 518, "boolean"),
    optional_field("lower_bound", 510, "bytes"),
    optional_field("upper_bound", 511, "bytes"),
)
LISTED = record(
    "manifest_file",
    field("manifest_path", 500, "string"),
    field("manifest_length", 501, "long"),
    field("partition_spec_id", 502, "int"),
    field("content", 517, "int"),
    field("sequence_number", 515, "long"),
    field("min_sequence_number", 516, "long"),
    field("added_snapshot_id", 503, "long"),
    field("added_files_count", 504, "int"),
    field("existing_files_count", 505, "int"),
    field("deleted_files_count", 506, "int"),
    field("added_rows_count", 512, "long"),
    field("existing_rows_count", 513, "long"),
    field("deleted_rows_count", 514, "long"),
    optional_field("partitions", 507, {"type": "array", "items": _PARTITION, "element-id": 508}),
    optional_field("key_metadata", 519, "bytes"),
)
"""An entry of a list of manifests."""


def manifest_header(schema: pa.Schema, content: str) -> dict[str, bytes]:
    """The metadata that every manifest of a table has."""
    return {
        "schema": json.dumps(table_schema(schema)).encode(),
        "schema-id": b"0",
        "partition-spec": b"[]",
        "partition-spec-id": b"0",
        "format-version": b"2",
        "content": content.encode(),
    }
