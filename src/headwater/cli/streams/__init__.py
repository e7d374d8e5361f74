"""The verbs on streams."""
