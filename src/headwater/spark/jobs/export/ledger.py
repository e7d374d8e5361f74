"""The ledger of an export: the files next to its table, in a folder that engines ignore.

    _headwater/export.json              the identity of the export, written once; any other export is rejected
    _headwater/columns/<number>.json    the columns of the table from a batch on, if they are others than before
    _headwater/query.json               the id of the query whose checkpoint belongs to the table
    _headwater/staged/<batch>-...       files that are not, or not yet, part of the table
    _headwater/audit/batch-<batch>.pq   the audit in Parquet: one row for every stream in a batch
    _headwater/batches/<batch>.json     Parquet tables: the manifest of a batch; creating it commits the batch
    _headwater/batches/<batch>.done     Parquet tables: all files of the batch have been moved to their final names
    _headwater/checkpoint/              the default checkpoint of the streaming query

Only files of the table have names that end in `.parquet`, because some engines check nothing else.
"""

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from headwater.spark.jobs.report import JobFailed
from headwater.storage.folder import FolderStore
from headwater.storage.store import KeyExists, KeyMissing, TableStore

FOLDER = "_headwater"
IDENTITY_KEY = f"{FOLDER}/export.json"
QUERY_KEY = f"{FOLDER}/query.json"
STAGED = f"{FOLDER}/staged/"
AUDIT = f"{FOLDER}/audit/"
COLUMNS = f"{FOLDER}/columns/"
CHECKPOINT = f"{FOLDER}/checkpoint"
VERSION = 1
SHAPE = "shape"
"""The property with the columns of a new table; see `Columns` for later ones."""

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")

WORDS = {
    "log_id": "an export from another server",
    "format": "an export in another format",
    "selection": "an export of other streams",
    "catalog": "an export to another catalog",
    "table": "an export to another table name",
    "name": "an export of another name",
}
"""How to describe an export that differs in one property."""


def read_json(store: TableStore, key: str) -> dict[str, Any] | None:
    """A JSON object, or None if the key does not exist."""
    try:
        found = json.loads(store.read(key))
    except KeyMissing:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise JobFailed(
            f"{key} at {store.location} is damaged: it is not a JSON object; restore it, or use another --to."
        )
    return found


def create_once(store: TableStore, key: str, data: bytes) -> None:
    """Create an object, unless another run has created one; that one counts."""
    with suppress(KeyExists):
        store.create(key, data)


class Claim(NamedTuple):
    """An export that owns a store."""

    name: str
    export_id: str
    """Recorded in the table. Unique: an export that starts over under the same name has another one."""


def claim(store: TableStore, wanted: Mapping[str, Any], name: str | None) -> Claim:
    """Claim a store for this export; JobFailed if another export has."""
    if read_json(store, IDENTITY_KEY) is None:
        made = {"version": VERSION, **wanted, "name": name or new_name(store), "id": secrets.token_hex(8)}
        # If two runs do this at once, one of them wins, and both read its file.
        create_once(store, IDENTITY_KEY, json.dumps(made, indent=1).encode())
    found = check_claim(store, wanted, name)
    assert found is not None
    return Claim(str(found["name"]), export_id_of(found))


def check_claim(store: TableStore, wanted: Mapping[str, Any], name: str | None) -> dict[str, Any] | None:
    """The identity of the export that has claimed a store, if one has; JobFailed if it is not this one."""
    found = read_json(store, IDENTITY_KEY)
    if found is None:
        return None
    if found.get("version") != VERSION:
        raise JobFailed(
            f"The export at {store.location} was made by an incompatible version of Headwater; use another --to."
        )
    for key, value in {**wanted, **({} if name is None else {"name": name})}.items():
        # The columns may change. Earlier versions did not record all properties.
        if key != SHAPE and found.get(key, value) != value:
            difference = f"{json.dumps(found.get(key))}, not {json.dumps(value)}"
            raise JobFailed(f"{store.location} holds {WORDS[key]} ({difference}); use another --to.")
    return found


def export_id_of(identity: Mapping[str, Any]) -> str:
    """The id of an export; in earlier versions it was the name alone.

    >>> export_id_of({"name": "orders", "id": "5f3a"}), export_id_of({"name": "orders"})
    ('orders/5f3a', 'orders')
    """
    return f"{identity['name']}/{identity['id']}" if "id" in identity else str(identity["name"])


class Columns(NamedTuple):
    """Columns that a table has in addition to those of the lake, and the batch from which on it has them."""

    batch: int
    shape: dict[str, Any]


def all_columns(store: TableStore) -> list[Columns]:
    """The columns of a table, first and later ones, in order."""
    first = read_json(store, IDENTITY_KEY) or {}
    later = [read_json(store, key) or {} for key in sorted(store.keys(COLUMNS))]
    return [Columns(0, first.get(SHAPE, {})), *(Columns(int(found["batch"]), found[SHAPE]) for found in later)]


def change_columns(store: TableStore, number: int, columns: Columns) -> None:
    """Record that the columns have changed for the n-th time; JobFailed if another run has changed them otherwise."""
    try:
        store.create(f"{COLUMNS}{number:010}.json", json.dumps(columns._asdict(), indent=1).encode())
    except KeyExists:
        raise JobFailed(f"Another run has just changed the columns of {store.location}; run this one again.") from None


def new_name(store: TableStore) -> str:
    """A unique name for an export and for its registered consumer."""
    last = _PLAIN.sub("-", store.location.rstrip("/").rpartition("/")[2])[:64]
    return f"export-{last or 'table'}-{secrets.token_hex(4)}"


def check_query(store: TableStore, query: str, batch: int) -> None:
    """Raise JobFailed unless the table belongs to the checkpoint of this query."""
    found = read_json(store, QUERY_KEY)
    if found is None and batch == 0:
        create_once(store, QUERY_KEY, json.dumps({"query": query}).encode())
        found = read_json(store, QUERY_KEY)
    if found is None:
        raise JobFailed(f"The checkpoint is at batch {batch}, but {store.location} is empty; use a new --checkpoint.")
    if found["query"] != query:
        raise JobFailed(f"The table at {store.location} belongs to another checkpoint; use that one, or another --to.")


def staged_stem(batch: int, attempt: str) -> str:
    """The prefix of the keys that an attempt at a batch writes."""
    return f"{STAGED}{batch:010}-{attempt}"


def audit_key(batch: int) -> str:
    """The key of the audit of a batch.

    >>> audit_key(12)
    '_headwater/audit/batch-0000000012.pq'
    """
    return f"{AUDIT}batch-{batch:010}.pq"


def settle(store: TableStore, batch: int) -> None:
    """After a batch is committed: move its audit to its final key, and delete the leftovers of its attempts."""
    staged = [key for key in store.keys(STAGED) if key.startswith(f"{STAGED}{batch:010}-")]
    # All attempts have the same rows, so any of their audits will do; there is none if an earlier run moved it.
    for key in [one for one in staged if one.endswith(".audit")][:1]:
        store.move(key, audit_key(batch))
        staged.remove(key)
    for key in staged:
        store.delete(key)


def default_checkpoint(store: TableStore) -> str:
    """The checkpoint next to the table; JobFailed if Spark cannot write there."""
    if not isinstance(store, FolderStore):
        raise JobFailed(f"Spark cannot keep its offsets at {store.location}; pass a folder as --checkpoint.")
    return (store.folder / CHECKPOINT).as_uri()
