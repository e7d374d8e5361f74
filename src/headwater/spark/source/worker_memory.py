"""The memory of Spark's Python workers, which run many tasks each."""

import gc
from functools import cache


@cache
def keep_imports() -> None:
    """Exempt what this process has loaded from garbage collection, once.

    Spark collects garbage after every task. To look through the modules of Spark and of this package takes 50 ms of CPU
    time, as much as to read half a million rows of two columns.
    """
    gc.freeze()
