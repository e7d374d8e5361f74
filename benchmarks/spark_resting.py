"""A server that does not compact its own lake: `python -m benchmarks.spark_resting serve ...`."""

from headwater.cli import run
from headwater.node.lake.compactor import Compactor

if __name__ == "__main__":
    Compactor.start = lambda self: None  # type: ignore[method-assign]
    run()
