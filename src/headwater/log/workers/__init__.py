"""The shared journal: one process, the sequencer, orders the batches of several and writes the journal files."""
