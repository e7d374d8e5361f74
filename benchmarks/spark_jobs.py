"""Jobs: export, compaction of many flushes, and a fold of each stream into a snapshot."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds

from benchmarks import lake
from benchmarks.spark_data import NOTHING, Filled, Known, fill
from benchmarks.spark_reads import BUCKET, measure
from benchmarks.spark_scenes import HOT, Contender, Rig, Scale, Scene, Stopwatch
from benchmarks.workloads import Sample
from headwater.spark.jobs import compact
from headwater.spark.jobs.export import job as export
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.snapshot import folds
from headwater.spark.jobs.snapshot import job as snapshot
from headwater.spark.link import LinkSettings

# -- Export ------------------------------------------------------------------------------------------------------------


@contextmanager
def open_export(rig: Rig) -> Iterator[list[Contender]]:
    with rig.server("export", *HOT) as server:
        filled = fill(server, BUCKET, rig.scale.large)
        lake.flush(server)
        lake.settle(server)
        yield [Contender("export", partial(_export, rig, filled))]


def _export(rig: Rig, filled: Filled, turn: int) -> Sample:
    """Export everything into a new folder, which another library then reads."""
    folder = rig.scratch / f"export-{turn}"
    watch = Stopwatch()
    report = export.run(rig.spark, export.ExportConfig(Origin(filled.url, filled.bucket), str(folder)))
    watch.stop()
    found = _known_of(folder)
    shutil.rmtree(folder)
    problems = list(report.problems) + filled.known.compare(found)
    return watch.sample(filled.known, problems)


def _known_of(folder: Path) -> Known:
    found = NOTHING
    for batch in ds.dataset(folder, format="parquet", partitioning="hive").to_batches(columns=["payload"]):
        found += Known.of(batch["payload"])
    return found


# -- Compaction --------------------------------------------------------------------------------------------------------


@contextmanager
def open_compact(rig: Rig) -> Iterator[list[Contender]]:
    yield [Contender("compact", partial(_compact, rig))]


def _compact(rig: Rig, turn: int) -> Sample:
    """Compact the flushes of a fresh server, which does not compact by itself, and read the result."""
    with rig.server("compact", *HOT, module="benchmarks.spark_resting") as server:
        large, flushes = rig.scale.large, rig.scale.flushes
        filled = fill(server, BUCKET, replace(large, append_messages=large.messages // flushes), flushes)
        watch = Stopwatch()
        report = compact.run(rig.spark, compact.CompactConfig(LinkSettings(filled.url)))
        sample = watch.stop().sample(filled.known, list(report.problems))
        before, after = int(report.facts["segments_before"] or 0), int(report.facts["segments_after"] or 0)
        if after * 2 > before:
            sample.problems.append(f"{before} segments became {after}")
        sample.notes.append(f"{before} segments became {after}")
        reader = rig.spark.read.format("headwater").option("url", filled.url).option("bucket", BUCKET)
        sample.problems += measure(filled, lambda: reader.option("via", "lake").load(), -1).problems
        return sample


# -- Snapshots ---------------------------------------------------------------------------------------------------------


@contextmanager
def open_snapshot(rig: Rig) -> Iterator[list[Contender]]:
    yield [Contender("snapshot", partial(_snapshot, rig))]


def _snapshot(rig: Rig, turn: int) -> Sample:
    """Fold the streams of a fresh server, and publish a snapshot of each."""
    with rig.server("snapshot", *HOT, "--retention", "explicit") as server:
        filled = fill(server, BUCKET, rig.scale.large)
        lake.flush(server)
        lake.settle(server)
        config = snapshot.SnapshotConfig(Origin(filled.url, filled.bucket), folds.reducer("merge-patch", None))
        watch = Stopwatch()
        report = snapshot.run(rig.spark, config)
        sample = watch.stop().sample(filled.known, list(report.problems))
        expected = {"published": filled.shape.streams, "messages": filled.known.rows}
        sample.problems += [
            f"{report.facts[fact]} {fact} instead of {count}"
            for fact, count in expected.items()
            if report.facts[fact] != count
        ]
        return sample


def _case(scale: Scale) -> str:
    return scale.large.label


SCENES = (
    Scene("export", _case, open_export),
    Scene("compact", lambda scale: f"{scale.large.label}, {scale.flushes} flushes", open_compact),
    Scene("snapshot", _case, open_snapshot),
)
