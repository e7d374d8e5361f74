"""Stores by their URLs."""

from pathlib import Path

import pytest

from headwater.storage.opening import open_store, open_table_store

KEY = "segments/shard=0/00000000000000000001-00000000000000000009-1f.x.parquet"


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
    with pytest.raises(ValueError, match=r"^'.*' is not a valid (lake|S3) URL; use [^\n]*\.$"):
        open_store(url)


def test_a_prefix_that_cannot_begin_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a valid key"):
        open_store("s3://bucket/a//b")


@pytest.mark.parametrize("url", ["", "gs://bucket/x", "file:x", "memory:", "s3://"])
def test_a_table_is_at_no_other_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*' is not a valid (table|S3) URL; use [^\n]*\.$"):
        open_table_store(url)
