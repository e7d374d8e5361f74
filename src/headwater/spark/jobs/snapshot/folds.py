"""Folds: reduce the messages of a JSON stream to one value.

    merge-patch        each message is a patch of one document (RFC 7386)
    last-write-wins    the newest message for each value of a field
    counter            sums of all numbers, field by field
    state-protocol     entities by type and key, after inserts, updates and deletes
    module:function    the result of a function of the user

A fold starts from an earlier snapshot or from nothing, and its result is the next snapshot. An invalid message fails
the fold: if it were skipped, it would be lost once a snapshot replaces history.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from headwater.protocol import content_types
from headwater.protocol.limits import CONTENT_TYPE_BYTES_MAX
from headwater.spark.jobs.snapshot.reducers import (
    Counter,
    Entities,
    Fold,
    Function,
    LastWrites,
    MergePatch,
    Unfoldable,
    quoted,
)

NAMES = ("merge-patch", "last-write-wins", "counter", "state-protocol")


class Reducer(NamedTuple):
    """Which fold to use; small enough to send to executors."""

    name: str
    key: str | None = None
    function: Callable[[Any, Any], Any] | None = None

    @property
    def content_type(self) -> str:
        """The content type of its snapshots. It names the reducer, since no other can continue from them.

        >>> Reducer("last-write-wins", key="user id").content_type
        'application/json; reducer=last-write-wins; key=user%20id'
        """
        parameters = {"reducer": self.name} | ({} if self.key is None else {"key": self.key})
        rendered = (f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        return "; ".join([content_types.JSON, *rendered])

    def has_made(self, content_type: str) -> bool:
        """Whether this reducer has made a snapshot of this type."""
        return content_types.is_json(content_type) and _maker(content_type) == _maker(self.content_type)

    def begin(self, snapshot: bytes | None) -> Fold:
        """A fold that starts from a snapshot, or from nothing."""
        try:
            match self.name:
                case "merge-patch":
                    return MergePatch(snapshot)
                case "counter":
                    return Counter(snapshot)
                case "state-protocol":
                    return Entities(snapshot)
                case "last-write-wins":
                    assert self.key is not None
                    return LastWrites(snapshot, self.key)
            assert self.function is not None
            return Function(snapshot, self.function)
        except Exception as error:
            raise Unfoldable(f"The last snapshot is not valid for {self.name}: {reason(error)}.") from error


def reducer(name: str, key: str | None = None) -> Reducer:
    """The reducer of that name; ValueError if the name or the key is invalid.

    >>> reducer("last-write-wins", key="id")
    Reducer(name='last-write-wins', key='id', function=None)
    """
    if (name == "last-write-wins") != (key is not None):
        raise ValueError("The reducer last-write-wins needs --key; the others do not take it.")
    if not content_types.is_valid(Reducer(name, key).content_type):
        what = repr(name) if key is None else f"{name!r} with the key {key!r}"
        raise ValueError(
            f"The reducer {what} does not fit into a content type of {CONTENT_TYPE_BYTES_MAX} bytes; use shorter names."
        )
    if name in NAMES:
        return Reducer(name, key)
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise ValueError(f"{name!r} is not a known reducer; use one of {', '.join(NAMES)}, or module:function.")
    return Reducer(name, None, _load(module, function))


def _maker(content_type: str) -> tuple[str | None, str | None]:
    """The reducer and the key that a content type names."""
    found = {}
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        found[name.strip().lower()] = unquote(value.strip().strip('"'))
    return found.get("reducer"), found.get("key")


def _load(module: str, function: str) -> Callable[[Any, Any], Any]:
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise ValueError(f"The module {module!r} cannot be imported: {error}.") from error
    if not callable(found):
        raise ValueError(f"The module {module!r} has no function {function!r}.")
    loaded: Callable[[Any, Any], Any] = found
    return loaded


def fold(reducer: Reducer, snapshot: bytes | None, *messages: bytes) -> bytes:
    """The result of folding messages.

    >>> fold(reducer("merge-patch"), b'{"a": {"b": 1.50}, "c": 2}', b'{"a": {"d": 3}, "c": null}')
    b'{"a":{"b":1.50,"d":3}}'
    >>> fold(reducer("counter"), None, b'{"hits": 1, "user": "ann"}', b'{"hits": 2, "size": 0.5}')
    b'{"hits":3,"size":0.5}'
    >>> fold(reducer("last-write-wins", key="id"), None, b'{"id": 7, "n": 1}', b'{"id": 7, "n": 2}')
    b'{"7":{"id": 7, "n": 2}}'
    """
    folding = reducer.begin(snapshot)
    for message in messages:
        advance(folding, message)
    return result_of(folding)


def advance(fold: Fold, message: bytes) -> None:
    """Add a message; Unfoldable if it is invalid, whatever error that is: other streams are not to suffer from it."""
    try:
        fold.add(message)
    except Unfoldable:
        raise
    except Exception as error:
        raise Unfoldable(f"A message is invalid ({reason(error)}): {quoted(message)}.") from error


def result_of(fold: Fold) -> bytes:
    """The state as JSON; Unfoldable if it has become something that JSON cannot express."""
    try:
        return fold.result()
    except Exception as error:
        raise Unfoldable(f"The result is not JSON: {reason(error)}.") from error


def reason(error: Exception) -> str:
    """An error for a sentence about a stream.

    >>> reason(ValueError("It is late.")), reason(MemoryError())
    ('It is late', 'MemoryError')
    """
    return str(error).rstrip(".") or type(error).__name__
