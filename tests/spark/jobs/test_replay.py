"""Streams are copied to streams on the same or another server, every message once and in order."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headwater.cli import main
from headwater.client import Client, ScanRange
from headwater.spark import link as link_module
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.replay import Copy, ReplayConfig, check_apart, copies, leave_open, note_closed, run
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection
from headwater.testing import RunningServer, running_server

from ..streams import streams_in

JSON = "application/json"


def contents(url: str, prefix: str) -> dict[str, tuple[str, bool, list[bytes]]]:
    """The content type, closure and messages of each stream."""
    found = {}
    with Link(LinkSettings(url)) as link:
        for page in link.describe_all(prefix):
            for facts in page.to_pylist():
                whole = ScanRange(facts["stream"], facts["incarnation"], facts["start"], facts["tail"])
                with link.scan([whole], ["payload"]) as batches:
                    messages = [message for batch in batches for message in batch["payload"].to_pylist()]
                found[facts["stream"]] = facts["content_type"], facts["closed"], messages
    return found


def test_new_messages_are_copied_once_with_types_boundaries_and_closure(
    spark: SparkSession, lake_server: RunningServer, bucket: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    with running_server() as target, Client(f"{lake_server.url}/ds") as client:
        streams = client.bucket(bucket)
        streams.create()
        open_one = streams.stream("open", content_type=JSON)
        open_one.create()
        open_one.append_json({"a": 1}, [2, 3], "é")
        frames = streams.stream("frames", content_type="application/x-thing")
        frames.create()
        frames.append_batch([b"\x00", b"ab", b"c" * 1000])
        frames.close_stream()
        streams.stream("silent", content_type="text/plain").create(closed=True)
        monkeypatch.setattr(link_module, "PAGE_STREAMS", 2)

        command = f"spark replay --url {lake_server.url} --bucket {bucket} --to {target.url} --name {bucket}-job"
        command += f" --checkpoint {checkpoint} --into other --rename ^other/(o.*)$ other/deep/$1 --close --json"
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output
        facts = json.loads(result.stdout.splitlines()[-1])
        assert [facts[name] for name in ("ok", "streams", "batches", "messages", "closed")] == [True, 3, 1, 6, 2]
        assert contents(target.url, "other/") == {
            "other/deep/open": (JSON, False, [b'{"a":1}', b"[2,3]", '"é"'.encode()]),
            "other/frames": ("application/x-thing", True, [b"\x00", b"ab", b"c" * 1000]),
            "other/silent": ("text/plain", True, []),
        }

        open_one.append_json(4)
        open_one.close_stream()
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output
        facts = json.loads(result.stdout.splitlines()[-1])
        assert [facts[name] for name in ("batches", "messages", "bytes", "closed")] == [1, 1, 1, 1]
        assert facts["messages_repeated"] == 0
        assert contents(target.url, "other/deep/") == {
            "other/deep/open": (JSON, True, [b'{"a":1}', b"[2,3]", '"é"'.encode(), b"4"])
        }


def test_a_repeated_batch_is_reported_and_a_lost_checkpoint_is_refused(
    spark: SparkSession, lake_server: RunningServer, bucket: str, checkpoint: str
) -> None:
    with streams_in(lake_server, bucket) as streams:
        streams.make("x", b"1", b"2", content_type=JSON)
        config = ReplayConfig(
            Origin(lake_server.url, bucket=bucket), lake_server.url, f"{bucket}-job", checkpoint, f"{bucket}-copy"
        )
        assert run(spark, config).facts["messages"] == 2
        # As if the driver had died before it recorded the batch as committed.
        for noted in Path(checkpoint, "commits").glob("*0*"):
            noted.unlink()
        again = run(spark, config).facts
        assert (again["messages"], again["messages_repeated"]) == (2, 2)

        shutil.rmtree(checkpoint)
        streams.append("x", b"3", content_type=JSON)
        with pytest.raises(StreamingQueryException, match=f"WriteFailed: The producer '{bucket}-job' belongs to the "):
            run(spark, config)
        with pytest.raises(StreamingQueryException, match=r"belongs to the query .* and not to the query "):
            run(spark, replace(config, checkpoint=f"{checkpoint}-2", into=f"{bucket}-other"))
        copied = contents(lake_server.url, f"{bucket}-copy/")
        assert copied == {f"{bucket}-copy/x": (JSON, False, [b"1", b"2"])}
        assert run(spark, replace(config, name=f"{bucket}-2", into=f"{bucket}-new")).facts["messages"] == 3


def test_a_copy_of_everything_leaves_out_the_ledgers_of_the_sink(spark: SparkSession, checkpoint: str) -> None:
    with running_server() as server, Client(server.url) as client:
        client.stream("team/x").create("text/plain", body="x")
        config = ReplayConfig(Origin(server.url, prefix="team/"), server.url, "first", checkpoint, "copy")
        assert run(spark, config).facts["messages"] == 1
        with running_server() as target:
            everything = Origin(server.url, pattern=".*")
            config = ReplayConfig(everything, target.url, "second", f"{checkpoint}-2", None)
            facts = run(spark, config).facts
            assert (facts["streams"], facts["messages"]) == (2, 2)
            assert contents(target.url, "").keys() == {"_sink/second", "copy/x", "team/x"}


def test_a_copy_into_itself_is_refused(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    with Client(f"{lake_server.url}/v1/stream") as client:
        client.stream(f"{bucket}/x").create("text/plain", body="x")
    config = ReplayConfig(Origin(lake_server.url, bucket=bucket), lake_server.url, "job", "unused")
    with pytest.raises(
        JobFailed, match=f"^The copy of '{bucket}/x' would be '{bucket}/x', which the next run would copy again"
    ):
        run(spark, config)
    assert not Path("unused").exists()


def test_a_copy_that_the_next_run_would_copy_is_refused() -> None:
    page = [Copy("a/x", JSON, False, "b/x"), Copy("a/y", JSON, False, "a/copy-y")]
    check_apart(page, Selection(names=frozenset({"a/x", "a/y"})))
    with pytest.raises(JobFailed, match=r"^The copy of 'a/y' would be 'a/copy-y', which the next run would copy again"):
        check_apart(page, Selection(prefix="a/"))


@pytest.mark.parametrize("size", [1, 2, 10], ids=["a page each", "two on a page", "all on one"])
def test_a_copy_of_several_streams_is_closed_when_all_of_them_are(size: int) -> None:
    found = [
        Copy("a/1", JSON, True, "b/both"),
        Copy("a/2", JSON, True, "b/both"),
        Copy("a/3", JSON, True, "b/one"),
        Copy("a/4", JSON, False, "b/one"),
        Copy("a/5", JSON, True, "b/one"),
        Copy("a/6", "text/plain", True, "b/own"),
        Copy("a/7", JSON, False, "b/open"),
    ]
    pages = [found[at : at + size] for at in range(0, len(found), size)]
    ends: dict[str, str] = {}
    for page in pages:
        note_closed(ends, page)
    assert "b/open" not in ends, "only copies of closed streams are held"
    for page in pages:
        leave_open(ends, page)
    assert ends == {"b/both": JSON, "b/own": "text/plain"}


def test_streams_to_copy_are_listed_a_page_at_a_time(
    spark: SparkSession, lake_server: RunningServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "PAGE_STREAMS", 2)
    with streams_in(lake_server, bucket) as streams:
        for name in "vwxyz":
            streams.make(name)
    origin = Origin(lake_server.url, bucket=bucket, pattern="[^w]")
    config = ReplayConfig(origin, "http://h:2", "job", "c", "other", [("/y$", "/Y")])
    with origin.link() as link:
        pages = list(copies(spark, config, link))
    assert [[copy.target for copy in page] for page in pages] == [["other/v"], ["other/x", "other/Y"], ["other/z"]]


@pytest.mark.parametrize(
    "config, sentence",
    [
        (ReplayConfig(Origin("http://h:1"), "http://h:2", "job", "c"), r"Say which streams: "),
        (ReplayConfig(Origin("http://h:1", bucket="b"), "h:2", "job", "c"), r"Give the option url as http://host"),
        (
            ReplayConfig(Origin("http://h:1", bucket="b"), "http://h:2", "job", "c", "a/b"),
            r"'a/b' is not a valid bucket name: ",
        ),
        (
            ReplayConfig(Origin("http://h:1", bucket="b"), "http://h:2", "job", "c", options={"close": "true"}),
            r"The job sets the sink option close itself; ",
        ),
        (
            ReplayConfig(Origin("http://h:1", bucket="b"), "http://h:2", "job", "c", options={"clothes": "x"}),
            r"There is no option 'clothes'; ",
        ),
        (
            ReplayConfig(
                Origin("http://h:1", bucket="b", options={"ontrimmed": "Bootstrap"}), "http://h:2", "job", "c"
            ),
            r"Replay copies messages, not snapshots; remove onTrimmed=bootstrap or use onTrimmed=skip\.$",
        ),
    ],
)
def test_an_invalid_configuration_is_refused_without_spark(config: ReplayConfig, sentence: str) -> None:
    with pytest.raises(JobFailed, match=f"^{sentence}"):
        run(None, config)  # type: ignore[arg-type]
