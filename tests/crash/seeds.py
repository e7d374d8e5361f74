"""Seeds: many by default, any number on demand, one to reproduce a failure."""

import os
from collections.abc import Callable, Iterable

ONE = "TESTS_POWER_SEED"
COUNT = "TESTS_POWER_SEEDS"


def for_each_seed(default_count: int, run: Callable[[int], None]) -> None:
    """Run with each seed; a failure says how to reproduce it."""
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
    """Whether enough seeds run for statistics over all of them."""
    return ONE not in os.environ
