"""A bucket of a real server whose streams are folded as a task does it."""

import json
from collections import Counter
from typing import Any

from headwater.client import Client
from headwater.spark.jobs.snapshot.folds import reducer
from headwater.spark.jobs.snapshot.plan import Pending, choose, pending_rows
from headwater.spark.jobs.snapshot.task import SLICE_STREAMS, Folder, SnapshotStore, fold_live
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer


class Bench:
    """A bucket of a real server, and the work of a task on it."""

    def __init__(self, server: RunningServer, client: Client, bucket: str) -> None:
        self.settings = LinkSettings(server.url)
        self.name, self.bucket = bucket, client.bucket(bucket)
        self.bucket.create()
        with Link(self.settings) as link:
            self.log_id = link.status()["log_id"]

    def write(self, stream: str, *values: object) -> None:
        one = self.bucket.stream(stream)
        one.create("application/json")
        for value in values:
            one.append(json.dumps(value))

    def pending(self, min_bytes: int = 1) -> list[Pending]:
        with Link(self.settings) as link:
            return list(pending_rows(choose(link.describe_all(f"{self.name}/"), min_bytes).pending))

    def fold(
        self, pending: list[Pending], by: str = "counter", key: str | None = None, *, slice_streams: int = SLICE_STREAMS
    ) -> Counter[str]:
        with Link(self.settings) as link:
            snapshots = SnapshotStore(link, self.log_id)
            folder = Folder(reducer(by, key), snapshots)
            fold_live(pending, link, folder, slice_streams)
        return counted(folder)

    def snapshot(self, stream: str) -> tuple[int, Any]:
        found = self.bucket.stream(stream).snapshot()
        return int(found.offset), json.loads(found.data)


def counted(folder: Folder) -> Counter[str]:
    return Counter({one.what: one.number for one in folder.results() if one.detail is None})
