"""The ledger of an export: what lies beside its table, in a folder that readers of the table pass over.

    _headwater/export.json              what is exported how, written once; another export is refused
    _headwater/query.json               the checkpoint that the table goes with, written with the first batch
    _headwater/staged/<batch>-...       files that are no part of the table, or not yet
    _headwater/audit/batch-<batch>.pq   the audit: a row for every stream in a batch, in Parquet
    _headwater/batches/<batch>.json     of a Parquet table: the files of a batch; written whole, it decides
    _headwater/batches/<batch>.done     ... they all have their names
    _headwater/checkpoint/              where the streaming query keeps its offsets, unless told otherwise

Names end in `.parquet` only where they are part of the table: some engines look no further than that.
"""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.spark.jobs.places import FolderPlace, Place
from headwater.spark.jobs.report import JobFailed
from headwater.storage.store import KeyMissing

FOLDER = "_headwater"
IDENTITY_KEY = f"{FOLDER}/export.json"
QUERY_KEY = f"{FOLDER}/query.json"
STAGED = f"{FOLDER}/staged/"
AUDIT = f"{FOLDER}/audit/"
CHECKPOINT = f"{FOLDER}/checkpoint"
VERSION = 1

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")

WORDS = {
    "log_id": "the streams of another server",
    "format": "a table of another format",
    "selection": "another choice of streams",
    "shape": "other columns",
    "catalog": "a table of another catalog",
    "table": "a table of another name",
    "name": "an export of another name",
}
"""What a table holds if the entry of this name is not the same."""


def read_json(place: Place, key: str) -> dict[str, Any] | None:
    """A JSON object, or None if there is none."""
    try:
        found = json.loads(place.read(key))
    except KeyMissing:
        return None
    assert isinstance(found, dict)
    return found


class Claim(NamedTuple):
    """An export's hold of a place."""

    name: str
    mark: str
    """What its table remembers it by: no other export has it, not even one that starts over under the same name."""


def claim(place: Place, wanted: Mapping[str, Any], name: str | None) -> Claim:
    """Make a place this export's own, or see that it is; JobFailed if it is another's."""
    if read_json(place, IDENTITY_KEY) is None:
        made = {"version": VERSION, **wanted, "name": name or new_name(place), "id": secrets.token_hex(8)}
        # Of two who do this at once, one gets it; both read what is there then.
        place.create(IDENTITY_KEY, json.dumps(made, indent=1).encode())
    found = read_json(place, IDENTITY_KEY) or {}
    if found.get("version") != VERSION:
        raise JobFailed(f"The export at {place.url} was made by another version of Headwater; export to a new place.")
    for key, value in {**wanted, **({} if name is None else {"name": name})}.items():
        # Earlier versions did not write all of it down.
        if found.get(key, value) != value:
            told = f"{json.dumps(found.get(key))}, not {json.dumps(value)}"
            raise JobFailed(f"{place.url} holds {WORDS[key]} ({told}); export to another place.")
    return Claim(str(found["name"]), mark_of(found))


def mark_of(identity: Mapping[str, Any]) -> str:
    """What the table of an export remembers it by; in earlier versions that was its name alone.

    >>> mark_of({"name": "orders", "id": "5f3a"}), mark_of({"name": "orders"})
    ('orders/5f3a', 'orders')
    """
    return f"{identity['name']}/{identity['id']}" if "id" in identity else str(identity["name"])


def new_name(place: Place) -> str:
    """A name for an export, and for its reader of the lake, that no other has."""
    last = _PLAIN.sub("-", place.url.rstrip("/").rpartition("/")[2])[:64]
    return f"export-{last or 'table'}-{secrets.token_hex(4)}"


def check_query(place: Place, query: str, batch: int) -> None:
    """Raise JobFailed unless the batches of this query are those of the table."""
    found = read_json(place, QUERY_KEY)
    if found is None and batch == 0:
        place.create(QUERY_KEY, json.dumps({"query": query}).encode())
        found = read_json(place, QUERY_KEY)
    if found is None:
        raise JobFailed(
            f"The checkpoint has come to batch {batch}, but {place.url} has none of them; give a new --checkpoint."
        )
    if found["query"] != query:
        raise JobFailed(
            f"The table at {place.url} goes with another checkpoint; give that one, or export to a new place."
        )


def staged_stem(batch: int, attempt: str) -> str:
    """How the keys begin of what an attempt at a batch has written."""
    return f"{STAGED}{batch:010}-{attempt}"


def audit_key(batch: int) -> str:
    """The key of the audit of a batch.

    >>> audit_key(12)
    '_headwater/audit/batch-0000000012.pq'
    """
    return f"{AUDIT}batch-{batch:010}.pq"


def settle(place: Place, batch: int) -> None:
    """After a batch is decided: give its audit its name, and delete what its attempts have left."""
    staged = [key for key in place.items(STAGED) if key.startswith(f"{STAGED}{batch:010}-")]
    # Every attempt had the same rows, so any of their audits will do; none, if this was done before.
    for key in [one for one in staged if one.endswith(".audit")][:1]:
        place.move(key, audit_key(batch))
        staged.remove(key)
    for key in staged:
        place.delete(key)


def default_checkpoint(place: Place) -> str:
    """Where the streaming query keeps its offsets; JobFailed where Spark cannot."""
    if not isinstance(place, FolderPlace):
        raise JobFailed(f"Spark keeps its offsets in a folder: give --checkpoint, since {place.url} is none.")
    return (place.folder / CHECKPOINT).as_uri()
