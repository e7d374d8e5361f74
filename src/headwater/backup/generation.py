"""A restore is a new generation of a log: nothing that the old one said after the backup can be mistaken for its own.

The old server may have gone on after the backup, and one backup may be restored twice. So a generation has a random id
of its own, which every printed incarnation, entity tag and event id carries, and begins far above every position that
the old log can have reached. Incarnations of streams in the backup keep their numbers, because segments name them.
"""

import secrets

from headwater.streams.state import State

GENERATION_POSITIONS = 2**40
"""How far ahead a generation begins: four months of a hundred thousand commands a second, eight million times."""


def begin_generation(state: State) -> None:
    """Turn the state of a backup into the beginning of a new log."""
    state.log_id = secrets.token_hex(8)
    state.position += GENERATION_POSITIONS
    # A consumer's position is a promise about rows of the old log; what it read there may differ from what is here.
    state.cold.consumers.clear()
