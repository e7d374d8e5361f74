"""The command: `python -m benchmarks --help`."""

import argparse
import dataclasses
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks import machine, servers, tables, wrk
from benchmarks.appends import Appends
from benchmarks.cold import Cold
from benchmarks.expectations import Verdict, verdicts
from benchmarks.fanout import Fanout
from benchmarks.flush import Flush
from benchmarks.generators import Generator, SocketGenerator
from benchmarks.history import History
from benchmarks.idle import Idle
from benchmarks.listing import Listing
from benchmarks.pauses import Pauses
from benchmarks.reads import Reads
from benchmarks.rounds import Results, interleave
from benchmarks.servers import BenchmarkError, Spec
from benchmarks.workloads import QUICK, Rig, Scale, Workload

WORKLOADS: tuple[Workload, ...] = (
    *(Appends(), Reads(), Fanout(), Idle()),
    *(Listing(), Pauses(), Cold(), Flush(), History()),
)
# The others create up to a million streams, which takes minutes, so they are measured only when asked for by name.
DEFAULT_WORKLOADS = ("appends", "reads", "fanout", "idle")
MANY_STREAMS = (
    *("idle_streams", "listed_streams", "paused_streams"),
    *("cold_streams", "flush_streams", "history_streams"),
)
# On the disk of the repository, because /tmp is in memory on many machines; one folder a run.
SCRATCH = Path(__file__).parent / "scratch" / str(os.getpid())


def parser() -> argparse.ArgumentParser:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser("benchmarks/run", description="Compares this server with others, side by side.")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--peers", metavar="A,B", help="compare only these servers, also where one is off by default")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL|COMMAND", help="add another server")
    parser.add_argument("--baseline", default="reference-memory", metavar="NAME", help="ratios are to this server")
    parser.add_argument("--quick", action="store_true", help="one short round, to try the command out")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one measurement")
    parser.add_argument("--streams", type=int, metavar="N", help="how many streams are created where that is many")
    parser.add_argument("--mb", type=int, metavar="N", help="how much flush appends; by itself the server does at 67")
    parser.add_argument("--generator", choices=("auto", "wrk", "own"), default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample here")
    parser.add_argument("--strict", action="store_true", help="exit 1 if an expectation that was measured is not met")
    return parser


def scale(options: argparse.Namespace) -> Scale:
    chosen = QUICK if options.quick else Scale()
    given = {"rounds": options.rounds, "seconds": options.seconds, "pause_seconds": options.seconds}
    given |= {"flush_mb": options.mb} | dict.fromkeys(MANY_STREAMS, options.streams)
    return dataclasses.replace(chosen, **{name: value for name, value in given.items() if value})


def generator(options: argparse.Namespace) -> Generator:
    if options.generator == "wrk" and not wrk.is_installed():
        raise BenchmarkError("wrk is not installed; leave out --generator to use our own.")
    return SocketGenerator() if options.generator == "own" or not wrk.is_installed() else wrk.WrkGenerator()


def specs(options: argparse.Namespace, workload: Workload) -> list[Spec]:
    """Chooses the servers of a workload: its default ones and those added, or exactly the named ones."""
    added = [servers.parse(text) for text in options.server]
    every = [*servers.known(), *added]
    names = [*workload.peers, *(spec.name for spec in added)]
    if options.peers:
        names = options.peers.split(",")
        unknown = sorted(set(names) - {spec.name for spec in every})
        if unknown:
            raise BenchmarkError(f"There is no server {unknown[0]!r}; known are {', '.join(s.name for s in every)}.")
    return [spec for spec in every if spec.name in names and workload.suits(spec)]


def run(options: argparse.Namespace) -> int:
    chosen = [workload for workload in WORKLOADS if workload.name in (options.only or DEFAULT_WORKLOADS)]
    rig, results = Rig(scale(options), generator(options), SCRATCH), Results()
    plan = [(workload, specs(options, workload)) for workload in chosen]
    if empty := [workload.name for workload, peers in plan if not peers]:
        raise BenchmarkError(f"None of these servers suits {empty[0]!r}; benchmarks/README.md says what it needs.")
    SCRATCH.mkdir(parents=True)
    print(f"Machine: {machine.describe(SCRATCH)}.", flush=True)
    print(f"Generator: {rig.generator.name} for appends and reads, our own elsewhere.", flush=True)
    rounds = f"{rig.scale.rounds}, interleaved, of {rig.scale.seconds:g} s; idle, listing, pauses and history have one"
    print(f"Rounds: {rounds}.", flush=True)
    try:
        for workload, peers in plan:
            interleave(workload, peers, rig, results)
            baseline = options.baseline if options.baseline in [spec.name for spec in peers] else peers[0].name
            print(f"\n{tables.Table(workload, peers, baseline, results).render(rig.scale)}", flush=True)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
        if options.json:
            save(options.json, results)
    judged = list(verdicts(results))
    print("\n## Expectations\n", *judged, sep="\n")
    return exit_code(judged) if options.strict else 0


def exit_code(judged: list[Verdict]) -> int:
    return 1 if any(verdict.is_met is False for verdict in judged) else 0


def save(path: Path, results: Results) -> None:
    path.write_text(json.dumps([dataclasses.asdict(result) for result in results.all], indent=1) + "\n")


def main() -> int:
    # A thousand readers need a descriptor each, in the readers and in the server.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parser().parse_args())
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def interrupt(number: int, frame: FrameType | None) -> None:
    """Ends a run as Ctrl-C does, so that the servers that it started end with it."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
