"""On the path of a server that is killed: it takes every sync for short, so that it commits on the loop, compiled.

Where many processes share a disk, syncs are long, and nearly all batches would be left to the thread.
"""

from headwater.log.journal import journal

journal.SHORT_SYNC_SECONDS = 10.0
journal.Journal._sync_seconds = 0.0
