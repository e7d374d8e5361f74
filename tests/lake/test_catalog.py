"""Catalogs: they are read back as written, the newest is in force, and an incomplete one does not count."""

import json
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from headwater.lake.catalog import (
    FORKS,
    TOMBSTONES,
    Catalog,
    Contents,
    Edition,
    ForkRow,
    ListedSegment,
    catalog_key,
    decode,
    encode,
    fork_columns,
    newest_catalog,
    parse_catalog_key,
    seal,
    table_of,
    write_catalog,
)
from headwater.lake.format import segment_key
from headwater.lake.scanning import LakeDamaged, read_catalog, read_forks, read_tombstones
from headwater.storage.store import KeyExists, Store, StoreFailed
from headwater.streams.cold import ALL
from headwater.streams.segments import Segment
from headwater.testing.faulty_store import FaultyStore

from .lives import ID, plain, write

SEGMENT = replace(write([plain("team/b", 4, 6), plain("team/ä", 3, 5)]).segment, last_position=9)
TOMBSTONE_ROWS = table_of([("team", "ä", 3, 5), ("a", "b/c", 7, ALL)], TOMBSTONES)
FORK_ROWS = [
    ForkRow("team/fork", 11, False, "team/ä", 3, 0, 5),
    ForkRow("team/gone", 12, True, "team/fork", 11, 2, 2),
]
FORK_TABLE = table_of([fork_columns(row) for row in FORK_ROWS], FORKS)


def contents(position: int = 20, generation: int = 1, **changes: Any) -> Contents:
    some = Contents(
        0, "abc", position, generation, 19, 4, 1_700_000_000_000_000, [(5, SEGMENT, 1)], TOMBSTONE_ROWS, FORK_TABLE
    )
    return some._replace(**changes)


# -- The round trip ----------------------------------------------------------------------------------------------------


def test_a_catalog_is_read_back_as_it_was_written(store: Store) -> None:
    written = write_catalog(store, contents())
    assert newest_catalog(store) == written == read_catalog(store)
    assert written.segments == [ListedSegment(segment_key(0, 0, 9, ID), 5, 1, SEGMENT)]
    assert (written.shard, written.log_id, *written.edition, written.flushed, written.dropped, written.at) == (
        *(0, "abc", 20, 1, 19, 4),
        1_700_000_000_000_000,
    )


def test_the_tables_are_read_back_as_they_were_written(store: Store) -> None:
    catalog = write_catalog(store, contents())
    tombstones = read_tombstones(store, catalog)
    assert tombstones.schema.equals(TOMBSTONES)
    assert tombstones.to_pylist() == [
        {"bucket": "team", "stream": "ä", "incarnation": 3, "below": 5},
        {"bucket": "a", "stream": "b/c", "incarnation": 7, "below": ALL},
    ]
    assert read_forks(store, catalog) == FORK_ROWS


def test_an_empty_catalog_has_tables_with_columns(store: Store) -> None:
    catalog = write_catalog(
        store, contents(segments=[], tombstones=TOMBSTONES.empty_table(), forks=FORKS.empty_table())
    )
    assert newest_catalog(store) == catalog
    assert read_tombstones(store, catalog).schema.equals(TOMBSTONES)
    assert read_forks(store, catalog) == []


def test_tables_are_plain_parquet(store: Store) -> None:
    catalog = write_catalog(store, contents())
    for key, schema in ((catalog.tombstones_key, TOMBSTONES), (catalog.forks_key, FORKS)):
        data = store.read(key)
        assert data[:4] == data[-4:] == b"PAR1"
        assert pq.read_table(BytesIO(data)).schema.equals(schema)


def test_the_json_has_the_fields_of_a_segment_in_one_object_with_its_key(store: Store) -> None:
    catalog = write_catalog(store, contents())
    plain = json.loads(store.read(catalog_key(0, Edition(20, 1))))
    assert plain["version"] == 3
    [entry] = plain["segments"]
    assert entry.keys() == {"key", "number", "live_rows", *Segment.__struct_fields__}
    assert entry["last_name"] == "team/ä"
    assert decode(encode(catalog)) == catalog


# -- Versions ----------------------------------------------------------------------------------------------------------


def changed(**changes: Any) -> bytes:
    plain = json.loads(encode(Catalog(0, "abc", 20, 1, 19, 4, 5, [], "g", 1, "f", 2))) | changes
    return seal({name: value for name, value in plain.items() if value is not None})


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None])
def test_another_version_is_refused_by_its_number(version: object) -> None:
    with pytest.raises(ValueError, match="version"):
        decode(changed(version=version))


def test_fields_of_a_later_server_are_ignored() -> None:
    assert decode(changed(comment="new")) == decode(changed())


def test_fields_that_a_later_server_adds_to_a_segment_are_ignored() -> None:
    catalog = Catalog(0, "abc", 20, 1, 19, 4, 5, [ListedSegment("key", 1, 1, SEGMENT)], "g", 1, "f", 2)
    plain = json.loads(encode(catalog))
    plain["segments"][0]["comment"] = "new"
    assert decode(seal(plain)) == catalog


# -- Keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "tombstones.parquet", "forks.parquet"])
def test_a_key_holds_shard_position_and_generation(kind: str) -> None:
    assert parse_catalog_key(catalog_key(3, Edition(2**63, 12), kind)) == (3, (2**63, 12))


@pytest.mark.parametrize(
    "key",
    [
        "catalog/shard=0/42-1.json",
        "catalog/shard=0/00000000000000000042.json",
        "catalog/shard=0/00000000000000000042-0000000001.txt",
        "catalog/shard=0/00000000000000000042-0000000001.json.parquet",
        "catalog/shard=x/00000000000000000042-0000000001.json",
        "segments/shard=0/00000000000000000042-0000000001.json",
        "",
    ],
)
def test_other_keys_are_not_catalogs(key: str) -> None:
    assert parse_catalog_key(key) is None


def test_keys_sort_by_position_and_generation() -> None:
    editions = [Edition(position, one) for position in (1, 9, 10, 99, 10**18, 2**63) for one in (1, 2, 10, 10**9)]
    assert sorted(catalog_key(0, edition) for edition in editions) == [catalog_key(0, one) for one in editions]


# -- The newest is in force -------------------------------------------------------------------------------------------


def test_the_newest_is_in_force_in_any_order_of_writing(store: Store) -> None:
    for position in (100, 9, 20):
        write_catalog(store, contents(position))
    found = newest_catalog(store)
    assert found is not None
    assert found.position == 100


def test_each_shard_has_its_own(store: Store) -> None:
    write_catalog(store, contents(9, shard=1))
    assert newest_catalog(store) is None
    found = newest_catalog(store, 1)
    assert found is not None
    assert (found.shard, found.position) == (1, 9)


def test_of_two_catalogs_of_one_position_the_later_one_is_in_force(store: Store) -> None:
    write_catalog(store, contents(flushed=19))
    later = write_catalog(store, contents(generation=2, flushed=20))
    assert newest_catalog(store) == later == read_catalog(store)


def test_a_catalog_is_never_overwritten_nor_taken_for_another(store: Store) -> None:
    first = write_catalog(store, contents())
    with pytest.raises(KeyExists):
        write_catalog(store, contents(flushed=20))
    assert newest_catalog(store) == first
    assert read_forks(store, first) == FORK_ROWS


def test_an_older_catalog_can_be_read_until_it_is_deleted(store: Store) -> None:
    older = write_catalog(store, contents(20))
    write_catalog(store, contents(30, tombstones=TOMBSTONES.empty_table(), forks=FORKS.empty_table()))
    assert decode(store.read(catalog_key(0, Edition(20, 1)))) == older
    assert read_forks(store, older) == FORK_ROWS


# -- Half written ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", ["tombstones", "forks", "json"])
def test_a_catalog_that_was_not_finished_does_not_count(fails_at: str) -> None:
    store = FaultyStore()
    older = write_catalog(store, contents(20))
    store.fail_next("create", in_key=f"0000030-0000000001.{fails_at}")
    with pytest.raises(StoreFailed):
        write_catalog(store, contents(30))
    assert newest_catalog(store) == older
    assert read_forks(store, older) == FORK_ROWS


@pytest.mark.parametrize("fails_at", ["tombstones", "forks", "json"])
def test_a_catalog_that_was_not_finished_can_be_written_again(fails_at: str) -> None:
    store = FaultyStore()
    store.fail_next("create", in_key=fails_at)
    with pytest.raises(StoreFailed):
        write_catalog(store, contents())
    assert write_catalog(store, contents()) == newest_catalog(store)


def test_a_damaged_newest_catalog_is_an_error_and_not_skipped(store: Store) -> None:
    """An older catalog would bring back dead rows, or list objects that were deleted."""
    write_catalog(store, contents(20))
    store.create(catalog_key(0, Edition(30, 1)), encode(write_catalog(store, contents(20)))[:-5])
    with pytest.raises(LakeDamaged):
        read_catalog(store)


def test_a_catalog_under_the_key_of_another_is_an_error(store: Store) -> None:
    catalog = write_catalog(store, contents(20))
    store.create(catalog_key(0, Edition(30, 1)), encode(catalog))
    with pytest.raises(LakeDamaged, match="position 20"):
        read_catalog(store)
