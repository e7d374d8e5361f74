"""A server that leaves its lake for others to compact: `python -m benchmarks.spark_resting serve ...`."""

from headwater.cli import run
from headwater.node.lake import compactor

NEVER_SECONDS = 1e9

if __name__ == "__main__":
    compactor.LOOK_SECONDS = NEVER_SECONDS
    run()
