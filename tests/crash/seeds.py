"""Seeds: many by default, any number on demand, one to have a failure again."""

import os
from collections.abc import Callable, Iterable

ONE = "HEADWATER_POWER_SEED"
COUNT = "HEADWATER_POWER_SEEDS"


def for_each_seed(default_count: int, run: Callable[[int], None]) -> None:
    """Run with each seed; a failure says how to have it again."""
    for seed in _seeds(default_count):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"Seed {seed} fails; have it again with {ONE}={seed}: {error!r}") from error


def _seeds(default_count: int) -> Iterable[int]:
    if (one := os.environ.get(ONE)) is not None:
        return [int(one)]
    return range(int(os.environ.get(COUNT, default_count)))


def all_seeds_run() -> bool:
    """Whether statistics over all seeds mean anything."""
    return ONE not in os.environ
