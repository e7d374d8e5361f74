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
from benchmarks.real import Real
from benchmarks.rounds import Results, interleave
from benchmarks.servers import BenchmarkError, Spec
from benchmarks.workloads import QUICK, Rig, Scale, Workload

WORKLOADS: tuple[Workload, ...] = (
    *(Real(), Appends(), Reads(), Fanout(), Idle()),
    *(Listing(), Pauses(), Cold(), Flush(), History()),
)
# The others create up to a million streams, which takes minutes, so they run only if --only names them.
DEFAULT_WORKLOADS = ("real", "appends", "reads", "fanout", "idle")
MANY_STREAMS = (
    *("idle_streams", "listed_streams", "paused_streams"),
    *("cold_streams", "flush_streams", "history_streams"),
)
# On the disk of the repository, because /tmp is in memory on many machines; each run has its own folder.
SCRATCH = Path(__file__).parent / "scratch" / str(os.getpid())


def parser() -> argparse.ArgumentParser:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser("benchmarks/run", description="Compares this server with others, side by side.")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--peers", metavar="A,B", help="compare only these servers, including any that a workload leaves out by default"
    )
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL|COMMAND", help="add another server")
    parser.add_argument(
        "--baseline", default="reference-memory", metavar="NAME", help="the server that ratios refer to"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, to see that the command works")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one measurement")
    parser.add_argument(
        "--connections", type=int, action="append", metavar="N", help="how many connections; may be repeated"
    )
    parser.add_argument("--readers", type=int, action="append", metavar="N", help="how many live readers")
    parser.add_argument(
        "--messages", type=int, action="append", metavar="N", help="how many messages a second the readers get"
    )
    parser.add_argument(
        "--streams", type=int, metavar="N", help="how many streams the workloads with many streams create"
    )
    parser.add_argument(
        "--mb", type=int, metavar="N", help="how much `flush` appends; at 67 the server starts to flush by itself"
    )
    parser.add_argument("--generator", choices=("auto", "wrk", "own"), default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to this file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a measured expectation is not met")
    return parser


def scale(options: argparse.Namespace) -> Scale:
    chosen = QUICK if options.quick else Scale()
    given = {"rounds": options.rounds, "seconds": options.seconds, "pause_seconds": options.seconds}
    if options.connections:
        given |= dict.fromkeys(("connections", "real_connections"), tuple(options.connections))
    given |= {"readers": tuple(options.readers or ()), "message_rates": tuple(options.messages or ())}
    given |= {"flush_mb": options.mb} | dict.fromkeys(MANY_STREAMS, options.streams)
    return dataclasses.replace(chosen, **{name: value for name, value in given.items() if value})


def generator(options: argparse.Namespace) -> Generator:
    if options.generator == "wrk" and not wrk.is_installed():
        raise BenchmarkError("wrk is not installed; omit --generator to use the built-in generator.")
    return SocketGenerator() if options.generator == "own" or not wrk.is_installed() else wrk.WrkGenerator()


def specs(options: argparse.Namespace, workload: Workload) -> list[Spec]:
    """Return the servers of a workload: its default ones and the added ones, or exactly those that --peers names."""
    added = [servers.parse(text) for text in options.server]
    every = [*servers.known(), *added]
    names = [*workload.peers, *(spec.name for spec in added)]
    if options.peers:
        names = options.peers.split(",")
        unknown = sorted(set(names) - {spec.name for spec in every})
        if unknown:
            raise BenchmarkError(f"There is no server {unknown[0]!r}; choose from {', '.join(s.name for s in every)}.")
    return [spec for spec in every if spec.name in names and workload.suits(spec)]


def run(options: argparse.Namespace) -> int:
    chosen = [workload for workload in WORKLOADS if workload.name in (options.only or DEFAULT_WORKLOADS)]
    rig, results = Rig(scale(options), generator(options), SCRATCH), Results()
    plan = [(workload, specs(options, workload)) for workload in chosen]
    if empty := [workload.name for workload, peers in plan if not peers]:
        raise BenchmarkError(f"None of these servers can run {empty[0]!r}; see what it needs in benchmarks/README.md.")
    SCRATCH.mkdir(parents=True)
    print(f"Machine: {machine.describe(SCRATCH)}.", flush=True)
    others = "" if rig.generator.name == SocketGenerator.name else f"; {SocketGenerator.name} for all other load"
    print(f"Generator: {rig.generator.name}{others}.", flush=True)
    once = ", ".join(workload.name for workload in WORKLOADS if workload.rounds_max == 1)
    print(f"Rounds: {rig.scale.rounds}, interleaved, {rig.scale.seconds:g} s each; one for {once}.", flush=True)
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
    # A thousand readers need a file descriptor each, in the reader processes and in the server.
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
    """End the run as Ctrl-C does, so that the servers that it started are stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
