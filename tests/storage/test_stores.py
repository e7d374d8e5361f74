"""What every store keeps to; then what is special to a folder, to S3, to URLs and to claims."""

import os
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from email.message import Message
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Barrier, Thread

import pytest

from headwater.lake.ownership import OWNER_KEY, LakeOwned, claim
from headwater.storage import s3 as s3_store
from headwater.storage.folder import UPLOADS, FolderStore
from headwater.storage.opening import open_store
from headwater.storage.s3 import S3Store
from headwater.storage.store import KEY_CHARACTERS_MAX, Item, KeyExists, KeyMissing, Store, StoreFailed

KEY = "segments/shard=0/00000000000000000001-00000000000000000009-1f.x.parquet"
MIB = 1024 * 1024


# -- Every store ------------------------------------------------------------------------------------------------------


def test_an_object_is_read_as_it_was_created(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"\x00bytes\xff")
    assert store.read(KEY) == b"\x00bytes\xff"
    assert reopen().read(KEY) == b"\x00bytes\xff"


def test_an_object_may_be_empty(store: Store) -> None:
    store.create(KEY, b"")
    assert store.read(KEY) == b""
    assert list(store.items("")) == [Item(KEY, 0)]


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, 10, b"0123456789"),
        (0, 1, b"0"),
        (3, 4, b"3456"),
        (9, 1, b"9"),
        (3, None, b"3456789"),
        (0, 0, b""),
        (4, 0, b""),
        (10, None, b""),
        (11, None, b""),
    ],
)
def test_a_range_is_read_exactly(store: Store, start: int, size: int | None, expected: bytes) -> None:
    store.create(KEY, b"0123456789")
    assert store.read(KEY, start, size) == expected


@pytest.mark.parametrize(("start", "size"), [(0, 11), (9, 2), (10, 1), (50, 5)])
def test_a_range_past_the_end_fails(store: Store, start: int, size: int) -> None:
    store.create(KEY, b"0123456789")
    with pytest.raises(StoreFailed, match=KEY):
        store.read(KEY, start, size)


@pytest.mark.parametrize(("start", "size"), [(0, None), (0, 0), (0, 5), (7, None), (7, 5)])
def test_a_missing_key_is_missing_whatever_is_read_of_it(store: Store, start: int, size: int | None) -> None:
    store.create("other", b"data")
    with pytest.raises(KeyMissing, match=KEY):
        store.read(KEY, start, size)


def test_an_object_is_never_replaced(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"first")
    for other in (store, reopen()):
        with pytest.raises(KeyExists, match=KEY):
            other.create(KEY, b"second")
    assert store.read(KEY) == b"first"


def test_creating_the_same_object_again_succeeds(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"same")
    store.create(KEY, b"same")
    reopen().create(KEY, b"same")
    assert store.read(KEY) == b"same"


def test_of_those_who_race_to_create_an_object_one_wins(store: Store, reopen: Callable[[], Store]) -> None:
    racers = [store, reopen(), store, reopen()]
    start = Barrier(len(racers))

    def race(number: int, key: str) -> bytes | None:
        data = bytes([number]) * 10_000
        start.wait()
        try:
            racers[number].create(key, data)
        except KeyExists:
            return None
        return data

    with ThreadPoolExecutor(len(racers)) as pool:
        # SeaweedFS lets some of the losers wait for a second.
        for turn in range(8):
            key = f"race/{turn}"
            winners = [data for data in pool.map(race, range(len(racers)), [key] * len(racers)) if data is not None]
            assert winners == [store.read(key)]


def test_a_deleted_object_is_gone(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"data")
    store.delete(KEY)
    with pytest.raises(KeyMissing):
        reopen().read(KEY)
    assert list(store.items("")) == []


def test_deleting_what_is_not_there_is_no_harm(store: Store) -> None:
    store.delete("never/was")
    store.create(KEY, b"data")
    store.delete(KEY)
    store.delete(KEY)
    store.delete("segments/shard=0/other")


def test_a_deleted_key_can_be_used_again(store: Store) -> None:
    store.create(KEY, b"old")
    store.delete(KEY)
    store.create(KEY, b"new")
    assert store.read(KEY) == b"new"


def test_keys_are_listed_in_the_order_of_their_bytes(store: Store) -> None:
    # A folder `a/` stands between `a-b` or `a.b` and `a0`: not where its name alone would put it.
    keys = ["B", "_x/y", "a-b", "a.b", "a/b", "a/b-/d", "a/b.c", "a/b0", "a/b=1/c", "a0", "a=b/c", "b/c/d/e"]
    assert keys == sorted(keys)
    for size, key in reversed(list(enumerate(keys))):
        store.create(key, bytes(size))
    assert list(store.items("")) == [Item(key, size) for size, key in enumerate(keys)]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"]),
        ("a", ["a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"]),
        ("a/", ["a/b/1", "a/b/2", "a/b2", "a/c/1"]),
        ("a/b", ["a/b/1", "a/b/2", "a/b2"]),
        ("a/b/", ["a/b/1", "a/b/2"]),
        ("a/b/2", ["a/b/2"]),
        ("a/b/2/", []),
        ("b", []),
        ("no/such/folder/", []),
    ],
)
def test_a_prefix_is_any_beginning_of_a_key(store: Store, prefix: str, expected: list[str]) -> None:
    for key in ("a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"):
        store.create(key, b"")
    assert [item.key for item in store.items(prefix)] == expected


def test_more_objects_than_a_page_holds_are_all_listed(store: Store) -> None:
    keys = [f"many/shard=0/{number:06}.parquet" for number in range(2100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.create(key, b"x"), keys))
    assert [item.key for item in store.items("many/")] == keys
    assert next(store.items("many/")) == Item(keys[0], 1)


def test_a_big_object_is_stored_whole(store: Store) -> None:
    data = os.urandom(20 * MIB + 1)
    store.create(KEY, data)
    assert store.read(KEY) == data
    assert store.read(KEY, 7 * MIB - 3, 9 * MIB) == data[7 * MIB - 3 : 16 * MIB - 3]
    assert list(store.items("seg")) == [Item(KEY, len(data))]


def test_who_reads_while_another_deletes_gets_all_or_an_error(store: Store) -> None:
    data = os.urandom(2 * MIB)
    start = Barrier(2)

    def delete(key: str) -> None:
        start.wait()
        store.delete(key)

    for turn in range(10):
        key = f"doomed/{turn}"
        store.create(key, data)
        thread = Thread(target=delete, args=(key,))
        thread.start()
        start.wait()
        with suppress(KeyMissing, StoreFailed):
            assert store.read(key) == data
        thread.join()
        with pytest.raises(KeyMissing):
            store.read(key)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/./b", ".uploads/a", "a b", "ä", "a\n", "a\\b", "x" * 256]
)
def test_what_cannot_be_a_key_is_refused(store: Store, key: str) -> None:
    for call in (store.read, store.delete, lambda key: store.create(key, b"")):
        with pytest.raises(ValueError, match="cannot be a key"):
            call(key)


def test_a_key_has_a_longest_length(store: Store) -> None:
    longest = "/".join(["x" * 255, "y" * 200, "z" * 55])
    assert len(longest) == KEY_CHARACTERS_MAX
    store.create(longest, b"data")
    assert list(store.items("")) == [Item(longest, 4)]
    with pytest.raises(ValueError, match="too long"):
        store.create(longest + "z", b"data")


# -- A folder ---------------------------------------------------------------------------------------------------------

CREATE_MANY = """
import sys
from pathlib import Path
from headwater.storage.folder import FolderStore
store = FolderStore(Path(sys.argv[1]))
for number in range(1_000_000):
    key = f"kill/{number % 7}/{number:08}"
    store.create(key, b"%d" % number * 5_000)
    print(key, flush=True)
"""


def test_opening_a_folder_makes_nothing(tmp_path: Path) -> None:
    assert list(FolderStore(tmp_path / "lake").items("")) == []
    assert not (tmp_path / "lake").exists()


def test_what_a_killed_process_left_is_removed_and_never_listed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create(KEY, b"data")
    (tmp_path / UPLOADS / "leftover").write_bytes(b"half")
    assert list(store.items("")) == [Item(KEY, 4)]
    FolderStore(tmp_path)
    assert os.listdir(tmp_path / UPLOADS) == []
    assert store.read(KEY) == b"data"


def test_what_is_being_written_is_left_alone_by_who_opens_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[list[str]] = []
    sync = os.fsync

    def open_before_sync(fd: int) -> None:
        FolderStore(tmp_path)
        uploads.append(os.listdir(tmp_path / UPLOADS))
        sync(fd)

    store = FolderStore(tmp_path)
    store.create("first", b"data")
    monkeypatch.setattr(os, "fsync", open_before_sync)
    store.create(KEY, b"data")
    assert [len(names) for names in uploads] == [1] * len(uploads)
    assert store.read(KEY) == b"data"
    assert os.listdir(tmp_path / UPLOADS) == []


def test_an_object_is_synced_before_it_has_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def watched_sync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("the upload" if path.parent.name == UPLOADS else os.path.relpath(path, tmp_path))
        sync(fd)

    def watched_link(old: Path, new: Path) -> None:
        steps.append("link")
        link(old, new)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    store = FolderStore(tmp_path / "lake")
    store.create("a/b/object", b"data")
    # The folders that are new, from the top down, each by a sync of the one above it.
    assert steps == ["..", ".", "lake", "the upload", ".", "lake", "lake/a", "link", "lake/a/b"]
    steps.clear()
    store.create("a/b/object", b"data")
    assert steps == ["the upload", "lake/a", "link", "lake/a/b"]
    steps.clear()
    store.delete("a/b/object")
    assert steps == ["lake/a/b"]


@pytest.mark.parametrize("created", [1, 20, 100])
def test_objects_survive_a_kill_whole_or_not_at_all(tmp_path: Path, created: int) -> None:
    command = [sys.executable, "-c", CREATE_MANY, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        keys = [process.stdout.readline().strip() for _ in range(created)]
        process.kill()
    store = FolderStore(tmp_path)
    assert os.listdir(tmp_path / UPLOADS) == []
    found = [item.key for item in store.items("")]
    assert set(keys) <= set(found)
    for key in found:
        assert store.read(key) == b"%d" % int(key[-8:]) * 5_000


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_key_that_is_the_folder_of_another_fails(tmp_path: Path, first: str, second: str) -> None:
    store = FolderStore(tmp_path)
    store.create(first, b"data")
    with pytest.raises(StoreFailed, match=f"create {second}:|read {second}:"):
        store.create(second, b"data")
    assert store.read(first) == b"data"
    assert os.listdir(tmp_path / UPLOADS) == []


def test_a_folder_that_cannot_be_made_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderStore(tmp_path / "file")
    with pytest.raises(StoreFailed, match=KEY):
        store.create(KEY, b"data")
    with pytest.raises(KeyMissing):
        store.read(KEY)


# -- S3 ---------------------------------------------------------------------------------------------------------------


def every_call(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.create(KEY, b"data"),
        lambda: store.read(KEY),
        lambda: store.read(KEY, 1, 2),
        lambda: store.delete(KEY),
        lambda: list(store.items("")),
    ]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Limits that a test can wait for; returns how long that is, with room for a machine that is busy."""
    monkeypatch.setattr(s3_store, "REQUEST_SECONDS_MAX", 0.2)
    monkeypatch.setattr(s3_store, "RETRY_SECONDS_MAX", 1.0)
    monkeypatch.setattr(s3_store, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return 20 * (s3_store.REQUEST_SECONDS_MAX + s3_store.RETRY_SECONDS_MAX)


@pytest.mark.parametrize("listening", [False, True], ids=["closed", "silent"])
def test_an_endpoint_that_is_dead_fails_in_time(
    impatient: float, listening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as endpoint, ThreadPoolExecutor(1) as pool:
        endpoint.bind(("127.0.0.1", 0))
        if listening:
            endpoint.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{endpoint.getsockname()[1]}")
        for call in every_call(S3Store("s3://bucket/prefix")):
            with pytest.raises(StoreFailed, match=r"^The store s3://bucket/prefix did not [^\n]*$"):
                pool.submit(call).result(timeout=impatient)


def test_a_wrong_secret_fails(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    S3Store(s3_url).create(KEY, b"data")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for call in every_call(S3Store(s3_url)):
        with pytest.raises(StoreFailed, match=r"403 Forbidden \(SignatureDoesNotMatch\)\.$"):
            call()


def test_a_bucket_that_is_missing_is_no_proof_that_an_object_is(s3_url: str) -> None:
    store = S3Store("s3://no-such-bucket/prefix")
    for call in every_call(store)[1:]:
        with pytest.raises(StoreFailed, match="NoSuchBucket"):
            call()


class Answer:
    """What a scripted S3 says to one request."""

    def __init__(self, method: str, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.method, self.status, self.body, self.headers = method, status, body, headers or {}


@contextmanager
def scripted_s3(*answers: Answer) -> Iterator[list[Message]]:
    """An endpoint, where the environment finds it, that gives these answers in turn; yields the headers it was sent."""
    left, seen = list(answers), list[Message]()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.headers)
            answer = left.pop(0) if left and left[0].method == self.command else Answer(self.command, 400)
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_PUT = do_GET = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
                yield seen
        finally:
            server.shutdown()
            thread.join()
    assert left == []


ETAG = {"ETag": '"1"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}


@pytest.mark.usefixtures("impatient")
def test_an_upload_carries_its_condition_and_its_checksum() -> None:
    with scripted_s3(Answer("PUT", 200, headers=ETAG)) as seen:
        S3Store("s3://bucket/prefix").create(KEY, b"data")
    assert seen[0]["If-None-Match"] == "*"
    assert seen[0]["x-amz-checksum-sha256"] == b64encode(sha256(b"data").digest()).decode()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("status", [409, 412])
def test_a_retry_of_the_library_that_meets_its_own_first_attempt_succeeds(status: int) -> None:
    with scripted_s3(Answer("PUT", 500), Answer("PUT", status), Answer("GET", 200, b"data", ETAG)):
        S3Store("s3://bucket/prefix").create(KEY, b"data")


@pytest.mark.usefixtures("impatient")
def test_a_conflict_over_an_object_that_is_not_there_can_be_tried_again() -> None:
    with scripted_s3(Answer("PUT", 409), Answer("GET", 404), Answer("PUT", 200, headers=ETAG)):
        store = S3Store("s3://bucket/prefix")
        with pytest.raises(StoreFailed, match="try again"):
            store.create(KEY, b"data")
        store.create(KEY, b"data")


@pytest.mark.usefixtures("impatient")
def test_a_range_that_comes_back_short_fails() -> None:
    short = Answer("GET", 206, b"234", {**ETAG, "Content-Range": "bytes 2-4/5"})
    with scripted_s3(short), pytest.raises(StoreFailed, match=r"Of 8 bytes of the object .* returned 3"):
        S3Store("s3://bucket/prefix").read(KEY, 2, 8)


@pytest.mark.usefixtures("impatient")
def test_an_object_that_breaks_off_fails() -> None:
    half = Answer("GET", 200, b"01234", {**ETAG, "Content-Length": "10"})
    with scripted_s3(half), pytest.raises(StoreFailed, match=KEY):
        S3Store("s3://bucket/prefix").read(KEY)


# -- URLs -------------------------------------------------------------------------------------------------------------


def test_a_path_and_its_url_open_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("the lake #1")
    store.create(KEY, b"data")
    assert store.url == (tmp_path / "the lake #1").as_uri()
    assert open_store(store.url).read(KEY) == b"data"
    assert open_store(str(tmp_path / "the lake #1")).read(KEY) == b"data"


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"])
def test_a_bucket_is_opened_by_its_url(url: str) -> None:
    assert open_store(url).url == url.rstrip("/")


def test_memory_is_new_every_time() -> None:
    open_store("memory:").create(KEY, b"data")
    assert list(open_store("memory:").items("")) == []


@pytest.mark.parametrize(
    "url",
    ["", "gs://bucket/x", "http://host/x", "file:x", "file://host/x", "memory:x", "s3:", "s3://", "s3:///x", "s3://B"],
)
def test_another_url_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*' (is no place for a lake|names no bucket), it should [^\n]*\.$"):
        open_store(url)


def test_a_prefix_that_cannot_begin_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be a key"):
        open_store("s3://bucket/a//b")


# -- Claims -----------------------------------------------------------------------------------------------------------


def test_a_lake_is_claimed_once(store: Store, reopen: Callable[[], Store]) -> None:
    claim(store, "mine")
    claim(reopen(), "mine")
    with pytest.raises(LakeOwned) as refusal:
        claim(reopen(), "yours")
    assert str(refusal.value) == (
        f"The lake at {store.url} belongs to another server (journal mine); use another prefix."
    )
    assert store.read(OWNER_KEY) == b'{"version":1,"log_id":"mine"}'


def test_of_those_who_race_to_claim_a_lake_one_gets_it(store: Store, reopen: Callable[[], Store]) -> None:
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


def test_a_claim_that_is_written_otherwise_counts(store: Store) -> None:
    store.create(OWNER_KEY, b'{ "log_id": "mine", "version": 1, "since": "today" }')
    claim(store, "mine")
    with pytest.raises(LakeOwned, match="journal mine"):
        claim(store, "yours")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":2,"log_id":"mine"}', b'{"log_id":"mine"}', b"\xff"])
def test_a_claim_that_is_not_understood_is_somebody_elses(data: bytes) -> None:
    store = open_store("memory:")
    store.create(OWNER_KEY, data)
    with pytest.raises(LakeOwned, match="belongs to something else; use another prefix"):
        claim(store, "mine")
