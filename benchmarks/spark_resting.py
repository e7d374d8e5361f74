"""A server that leaves its lake for others to compact: `python -m benchmarks.spark_resting serve ...`."""

from headwater.cli import run
from headwater.node.lake.compactor import Compactor

if __name__ == "__main__":
    Compactor.start = lambda self: None  # type: ignore[method-assign]
    run()
