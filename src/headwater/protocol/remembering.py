"""Answers that are remembered, for short inputs only: no client decides how much memory they take."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=str | bytes)
V = TypeVar("V")


class _Answers(dict[K, V]):
    """The answers so far; when there are too many, all are forgotten, and those in use are soon found again."""

    def __init__(self, function: Callable[[K], V], entries_max: int, length_max: int) -> None:
        super().__init__()
        self._function, self._entries_max, self._length_max = function, entries_max, length_max

    def __missing__(self, given: K) -> V:
        answer = self._function(given)
        if len(given) <= self._length_max:
            if len(self) >= self._entries_max:
                self.clear()
            self[given] = answer
        return answer


def remembered(*, entries_max: int, length_max: int) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Have a function of one text asked only once about each short text. A known answer costs a look into a dict."""
    return lambda function: _Answers(function, entries_max, length_max).__getitem__
