"""Tasks read a lake on S3 by the URL that the server reports, with credentials from the environment."""

from pathlib import Path
from random import Random

import pytest

from headwater.client import Client
from headwater.spark.options.source import parse_source
from headwater.spark.source.source import BatchReader
from headwater.spark.source.streaming import StreamReader
from headwater.testing import running_server
from headwater.testing.s3_server import running_s3

from ...streams import Streams


def test_batches_and_streams_are_read_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    # Incompressible, so that it takes several fetches, which are read ahead.
    payloads = [random.randbytes(700_000) for _ in range(9)]
    with running_s3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        lake = f"s3://{s3.bucket}/spark/lake"
        with running_server("--lake", lake, data=tmp_path / "data") as server, Client(server.url) as client:
            streams = Streams(client, "team")
            streams.make("x", *payloads)
            streams.make("gone", b"1")
            streams.stream("gone").delete()
            given = {"url": server.url, "bucket": "team"}
            batch = BatchReader(parse_source(given))
            found = [row for part in batch.partitions() for one in batch.read(part) for row in one.to_pylist()]
            assert [row["payload"] for row in found] == payloads
            stream = StreamReader(parse_source({**given, "startingOffsets": "earliest", "columns": "record"}))
            start = stream.initialOffset()
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            parts = stream.partitions(start, end)
            assert [row for part in parts for one in stream.read(part) for row in one.to_pylist()] == [
                {"record": record} for record in range(9)
            ]
            stream.commit(end)
            stream.stop()
