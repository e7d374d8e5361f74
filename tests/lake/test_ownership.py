"""One owner for each lake."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from headwater.lake.ownership import OWNER_KEY, LakeOwned, claim
from headwater.storage.opening import open_store
from headwater.storage.store import Store


def test_a_lake_is_claimed_once(store: Store, reopen: Callable[[], Store]) -> None:
    claim(store, "mine")
    claim(reopen(), "mine")
    with pytest.raises(LakeOwned) as refusal:
        claim(reopen(), "yours")
    assert str(refusal.value) == (f"The lake at {store.url} belongs to another server (log mine); use another prefix.")
    assert store.read(OWNER_KEY) == b'{"version":3,"log_id":"mine"}'


def test_of_several_concurrent_claims_one_succeeds(store: Store, reopen: Callable[[], Store]) -> None:
    start = Barrier(8)

    def race(log_id: str) -> str | None:
        mine = reopen()
        start.wait()
        try:
            claim(mine, log_id)
        except LakeOwned:
            return None
        return log_id

    with ThreadPoolExecutor(8) as pool:
        winners = {log_id for log_id in pool.map(race, "abcdefgh") if log_id}
    assert len(winners) == 1
    claim(store, winners.pop())


def test_a_claim_in_another_json_layout_counts(store: Store) -> None:
    store.create(OWNER_KEY, b'{ "log_id": "mine", "version": 3, "since": "today" }')
    claim(store, "mine")
    with pytest.raises(LakeOwned, match="log mine"):
        claim(store, "yours")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version":3}', b'{"log_id":"mine"}', b"\xff", b'{"version":3,"log_id":"\xff"}']
)
def test_an_owner_file_that_cannot_be_decoded_belongs_to_something_else(data: bytes) -> None:
    store = open_store("memory:")
    store.create(OWNER_KEY, data)
    with pytest.raises(LakeOwned, match="belongs to something else; use another prefix"):
        claim(store, "mine")


@pytest.mark.parametrize("data", [b'{"version":2,"log_id":"mine"}', b'{"version":4,"log_id":"mine"}'])
def test_a_lake_of_another_format_is_said_to_be_one(data: bytes) -> None:
    store = open_store("memory:")
    store.create(OWNER_KEY, data)
    with pytest.raises(LakeOwned, match=r"a server whose lakes have format [24], where this one has 3; use another"):
        claim(store, "mine")
