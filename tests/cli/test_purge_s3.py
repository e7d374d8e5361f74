"""`headwater purge` of a lake on S3: no object of the bucket, and no file of the server, has a byte of the stream."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from headwater.client import NotFound
from headwater.testing.s3_server import RunningS3, running_s3

from ..searching import holders
from .test_purge import MARKER, SECRET, contents_of_others, site, write_everywhere


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningS3]:
    """A bucket of its own: the test searches all of it."""
    with running_s3("purged") as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        yield s3


def downloaded(s3: RunningS3, folder: Path) -> list[str]:
    """The keys of all objects of the bucket, which are copied to a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    store = s3.client()
    keys = [item["path"] for page in obstore.list(store) for item in page]
    for key in keys:
        place = folder / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(obstore.get(store, key).bytes())
    return keys


def test_no_object_of_the_bucket_has_a_byte_of_a_purged_stream(bucket: RunningS3, tmp_path: Path) -> None:
    data, copy, url = tmp_path / "data", tmp_path / "copy", f"s3://{bucket.bucket}/some/lake"
    with site(data, "--lake", url, "--image-log-bytes", "65536") as here:
        write_everywhere(here)
        before = contents_of_others(here)
        downloaded(bucket, copy)
        places = {name.removeprefix("some/lake/").rsplit("/", 1)[0] for name in holders(copy, MARKER)}
        assert places >= {"forks/data", "messages/metadata", "segments/shard=0", "streams/data"}
        assert here.found(), "the journal has it, too"

        here.purge("--prefix", SECRET, "--with-forks")
        here.purge("team/short")
        assert len(downloaded(bucket, copy)) > len(places), "what is left is searched"
        assert holders(copy, MARKER) == []
        assert here.found() == []
        assert contents_of_others(here) == before
        for name in (SECRET, "team/fork", "team/short"):
            with pytest.raises(NotFound):
                here.stream(name).head()
    with site(data, "--lake", url) as again:
        assert contents_of_others(again) == before
        assert again.shell("lake", "verify", url).code == 0
    downloaded(bucket, copy)
    assert holders(copy, MARKER) == [] == holders(data, MARKER)
