"""Commands: everything that can change a shard's state, as frozen values that are written to the log.

There is a module per topic; whoever imports any of them has all commands. The outcome of a command depends on the state
and the command alone: its time is that of its batch, its limits are constants of its version. The tag ends with that
version. A command whose meaning changes gets a new version, so that an old log keeps its meaning.
"""

from headwater.streams.commands import (  # noqa: F401 (importing a module enters its commands)
    buckets,
    cluster,
    consumers,
    forks,
    lake,
    purges,
    snapshots,
    streams,
)
from headwater.streams.commands.command import Command as Command
