"""The verbs about streams."""
