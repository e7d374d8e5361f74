"""Damage in what describes a lake; damaged segments are another matter."""


class LakeDamaged(Exception):
    """An object of the lake's metadata differs from what was written."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"The object {key} is damaged: {problem}.")
        self.key, self.problem = key, problem
