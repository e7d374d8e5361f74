"""A bucket of a real server, and what a task that folds does with its streams."""

import json
from collections import Counter
from typing import Any

from headwater.client import Client
from headwater.spark.jobs.snapshot.folds import reducer
from headwater.spark.jobs.snapshot.plan import Want, choose, wants_of
from headwater.spark.jobs.snapshot.store import SnapshotStore
from headwater.spark.jobs.snapshot.task import Folder, fold_live
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer


class Bench:
    """A bucket of a real server, and what a task does with it."""

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

    def wants(self, min_bytes: int = 1) -> list[Want]:
        with Link(self.settings) as link:
            return list(wants_of(choose(link.describe_all(f"{self.name}/"), min_bytes).wants))

    def fold(self, wants: list[Want], by: str = "counter", key: str | None = None) -> Counter[str]:
        with Link(self.settings) as link, SnapshotStore(self.settings, self.log_id) as snapshots:
            folder = Folder(reducer(by, key), snapshots)
            fold_live(wants, link, folder)
        return counted(folder)

    def snapshot(self, stream: str) -> tuple[int, Any]:
        found = self.bucket.stream(stream).snapshot()
        return int(found.offset), json.loads(found.data)


def counted(folder: Folder) -> Counter[str]:
    return Counter({one.what: one.number for one in folder.told() if one.detail is None})
