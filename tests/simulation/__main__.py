"""The command of `scripts/simulate`: run schedules one after the other, and say what they saw."""

import argparse
import gc
import sys
import time
from collections import Counter
from contextlib import nullcontext

from .bugs import BUGS, Bug
from .faults import THEMES
from .history import Wrong
from .schedule import Outcome, run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/simulate", description="Run a simulated cluster, one schedule per seed.")
    parser.add_argument("schedules", nargs="?", type=int, default=100, help="how many schedules (100)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first one; each has the next (0)")
    parser.add_argument("--theme", choices=THEMES, default="", help="give all schedules one theme")
    parser.add_argument("--plant", choices=BUGS, help="plant a bug, to see that it is found")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    sys.unraisablehook = lambda _: None  # Killed processes leave coroutines behind that never end.
    bug: Bug | None = BUGS[arguments.plant] if arguments.plant else None
    theme = arguments.theme or (bug.theme if bug is not None else "")
    outcomes: list[Outcome] = []
    gc.freeze()
    started = time.perf_counter()
    for seed in range(arguments.seed, arguments.seed + arguments.schedules):
        try:
            with nullcontext() if bug is None else bug.plant():
                outcomes.append(run(seed, theme))
        except Wrong as wrong:
            options = f"{f' --theme {theme}' if theme else ''}{f' --plant {arguments.plant}' if bug else ''}"
            print(f"Schedule {seed} is wrong: {wrong}", *wrong.__notes__, sep="\n")
            print(f"Again with: scripts/simulate 1 --seed {seed}{options}")
            return 1
    _summarize(outcomes, time.perf_counter() - started)
    return 0


def _summarize(outcomes: list[Outcome], seconds: float) -> None:
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts += outcome.counts
    virtual = sum(outcome.seconds for outcome in outcomes)
    operations = sum(outcome.operations for outcome in outcomes)
    messages = sum(outcome.messages for outcome in outcomes)
    print(f"{len(outcomes)} schedules in {seconds:.1f} s: {len(outcomes) / seconds:.1f} per second")
    print(f"{virtual:.0f} s of virtual time, {operations} operations checked, {messages} messages in the logs")
    print(", ".join(f"{name.lstrip('_')} {number}" for name, number in sorted(counts.items())))
    print(f"digest {hash(tuple(outcome.digest for outcome in outcomes)) & 0xFFFFFFFF:08x}")


if __name__ == "__main__":
    sys.exit(main())
