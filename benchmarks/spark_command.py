"""The command: `benchmarks/spark --help`."""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from benchmarks import machine, spark_jobs, spark_reads, spark_report, spark_sinks
from benchmarks.__main__ import SCRATCH, exit_code, interrupt
from benchmarks.rounds import Result, Results
from benchmarks.servers import BenchmarkError
from benchmarks.spark_scenes import FULL, QUICK, Contender, Rig, Scene
from benchmarks.workloads import Sample
from headwater.spark.session import session

SCENES: tuple[Scene, ...] = (*spark_reads.SCENES, *spark_sinks.SCENES, *spark_jobs.SCENES)
NAMES = tuple(dict.fromkeys(scene.name for scene in SCENES))
CONF = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/spark", description="Measures streams as tables in Spark.")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="one round with less data, to see that the command works")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each contender is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to this file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a measured expectation is not met")
    return parser


def run(options: argparse.Namespace) -> int:
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = dataclasses.replace(scale, rounds=options.rounds)
    SCRATCH.mkdir(parents=True)
    results = Results()
    print(f"Machine: {machine.describe(SCRATCH)}, load {os.getloadavg()[0]:.1f}.", flush=True)
    print(f"Rounds: {scale.rounds}, interleaved, after {scale.warm_rounds} that are not counted.", flush=True)
    try:
        spark = session("benchmarks", conf={**CONF, "spark.local.dir": str(SCRATCH / "spark")})
        try:
            rig = Rig(spark, scale, SCRATCH)
            for scene in SCENES:
                if scene.name in (options.only or NAMES):
                    interleave(scene, rig, results)
        finally:
            spark.stop()
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
        if options.json:
            options.json.write_text(json.dumps([dataclasses.asdict(one) for one in results.all], indent=1) + "\n")
    return report(results, strict=options.strict)


def interleave(scene: Scene, rig: Rig, results: Results) -> None:
    """Measure every contender of a scene once a round (A B C, A B C, ...); the first rounds are not counted."""
    case = scene.case(rig.scale)
    with scene.open(rig) as contenders:
        for turn in range(-rig.scale.warm_rounds, rig.scale.rounds):
            for contender in contenders:
                result = Result(scene.name, case, contender.name, turn + 1, attempt(contender, turn))
                print(spark_report.line(result), file=sys.stderr, flush=True)
                if turn < 0:
                    # Problems count in these rounds too.
                    result.sample.values, result.sample.notes = {}, []
                results.all.append(result)


def attempt(contender: Contender, turn: int) -> Sample:
    """Measure once; a failure is a result."""
    try:
        return contender.measure(turn)
    except Exception as error:
        traceback.print_exc()
        return Sample(problems=[f"failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"])


def report(results: Results, *, strict: bool) -> int:
    print(f"\n{spark_report.table(results)}\n", *spark_report.remarks(results), sep="\n")
    # Expectations refer to the labels of the full scale, so a quick run measures none of the rates.
    judged = list(spark_report.verdicts(results, *(scene.case(FULL) for scene in SCENES[:3])))
    print("\n## Expectations\n", *judged, sep="\n")
    return exit_code(judged) if strict else 0


def main() -> int:
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parser().parse_args())
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
