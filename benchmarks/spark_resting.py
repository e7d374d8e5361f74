"""A server that does not compact its own lake: `python -m benchmarks.spark_resting serve ...`."""

from headwater.cli import run
from headwater.node.lake import compactor

NEVER_SECONDS = 1e9

if __name__ == "__main__":
    compactor.LOOK_SECONDS = NEVER_SECONDS
    run()
