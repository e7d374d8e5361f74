"""All verbs of `headwater lake`."""

from headwater.cli.lake import catalog, sql
from headwater.cli.lake.command import lake

__all__ = ["catalog", "lake", "sql"]
