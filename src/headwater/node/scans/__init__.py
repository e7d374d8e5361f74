"""Reads of many streams at once, as of one instant, as Arrow streams."""
