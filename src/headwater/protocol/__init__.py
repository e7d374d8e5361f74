"""The words of the protocol and their rules: pure values and pure functions, no I/O, no clock."""
