"""The state machine of a shard: state, and the pure functions that judge and apply commands and plan reads."""
