"""Folds: reduce the messages of a JSON stream to one value.

    merge-patch        each message is a patch of one document (RFC 7386)
    last-write-wins    the newest message for each value of a field
    counter            sums of all numbers, field by field
    state-protocol     entities by type and key, after inserts, updates and deletes
    module:function    the result of a function of the user

A fold starts from an earlier snapshot or from nothing, and its result is the next snapshot. Values that a reducer does
not change keep their bytes, so a snapshot rounds no number. An invalid message fails the fold: if it were skipped, it
would be lost once a snapshot replaces history.
"""

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw

from headwater.protocol import content_types
from headwater.protocol.limits import CONTENT_TYPE_BYTES_MAX

NULL = b"null"
QUOTED_CHARACTERS_MAX = 80
"""Of a message that is quoted in an error."""

_ANYTHING = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ENTITIES = msgspec.json.Decoder(dict[str, dict[str, Raw]])


class Unfoldable(Exception):
    """A message or a snapshot is invalid for this fold; the error is one sentence."""


class Fold(Protocol):
    """The state of a stream."""

    def add(self, message: bytes) -> None:
        """Add a message; use `advance`, which turns any error into Unfoldable."""

    def result(self) -> bytes:
        """The state as JSON; use `result_of`, which does the same."""


def quoted(message: bytes) -> str:
    """A message for an error sentence."""
    text = message.decode(errors="replace")
    return text if len(text) <= QUOTED_CHARACTERS_MAX else f"{text[:QUOTED_CHARACTERS_MAX]}..."


# -- Merge patch -------------------------------------------------------------------------------------------------------

Node = Raw | dict[str, Any]
"""A document: a dict of documents if it has been patched, else its original bytes."""


class MergePatch:
    """One document with all patches applied."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._document: Node = Raw(NULL) if snapshot is None else Raw(_checked(snapshot))

    def add(self, message: bytes) -> None:
        self._document = _patched(self._document, Raw(message))

    def result(self) -> bytes:
        return msgspec.json.encode(self._document)


def _patched(document: Node | None, patch: Raw) -> Node:
    if not _is_object(patch):
        # A copy, or it would keep the whole message in memory.
        return patch.copy()
    if not isinstance(document, dict):
        document = dict(_MEMBERS.decode(document)) if document is not None and _is_object(document) else {}
    for name, value in _MEMBERS.decode(patch).items():
        if bytes(value) == NULL:
            document.pop(name, None)
        else:
            document[name] = _patched(document.get(name), value)
    return document


def _is_object(text: Raw) -> bool:
    return bytes(memoryview(text)[:1]) == b"{"


def _checked(text: bytes) -> bytes:
    msgspec.json.decode(text, type=Raw)
    return text.strip()


# -- Last write wins ---------------------------------------------------------------------------------------------------


class LastWrites:
    """The newest message for each value of a field; a number counts as the text of its digits."""

    def __init__(self, snapshot: bytes | None, key: str) -> None:
        self._key = key
        self._newest: dict[str, Raw] = {} if snapshot is None else _MEMBERS.decode(snapshot)

    def add(self, message: bytes) -> None:
        found = _MEMBERS.decode(message).get(self._key)
        value = None if found is None else _ANYTHING.decode(found)
        if found is None or not (isinstance(value, str) or _is_number(value)):
            raise Unfoldable(f"A message has no text or number in the field {self._key!r}: {quoted(message)}.")
        self._newest[value if isinstance(value, str) else bytes(found).decode()] = Raw(message)

    def result(self) -> bytes:
        return msgspec.json.encode(self._newest)


# -- Counter -----------------------------------------------------------------------------------------------------------

Sum = int | float | dict[str, Any] | None


class Counter:
    """Sums of messages that are numbers, or field by field of objects; fields that are not numbers are ignored."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._sum: Sum = None
        if snapshot is not None:
            self.add(snapshot)

    def add(self, message: bytes) -> None:
        value = _ANYTHING.decode(message)
        if not isinstance(value, dict) and not _is_number(value):
            raise Unfoldable(f"A message is neither a number nor an object: {quoted(message)}.")
        self._sum = _added(self._sum, value, message)

    def result(self) -> bytes:
        return msgspec.json.encode(self._sum)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _added(so_far: Any, value: Any, message: bytes) -> Any:
    if so_far is not None and isinstance(so_far, dict) != isinstance(value, dict):
        raise Unfoldable(f"A message has a number where others have an object, or vice versa: {quoted(message)}.")
    if not isinstance(value, dict):
        try:
            total = value if so_far is None else so_far + value
            # A whole number beyond the range of a float cannot be added to one, and few programs read it.
            finite = math.isfinite(total)
        except OverflowError:
            finite = False
        if not finite:
            raise Unfoldable(f"A sum overflows at {quoted(message)}.")
        return total
    sums = {} if so_far is None else so_far
    for name, part in value.items():
        if isinstance(part, dict) or _is_number(part):
            sums[name] = _added(sums.get(name), part, message)
    return sums


# -- State protocol ----------------------------------------------------------------------------------------------------


class _Headers(msgspec.Struct):
    operation: str | None = None
    control: str | None = None


class _Change(msgspec.Struct):
    """A message of the state protocol: a change of one entity, or a control message with nothing but headers."""

    headers: _Headers
    type: str = ""
    key: str = ""
    value: Raw = Raw()


_CHANGE = msgspec.json.Decoder(_Change)


class Entities:
    """Entities by type and key, changed by the state protocol."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._values: dict[str, dict[str, Raw]] = {} if snapshot is None else _ENTITIES.decode(snapshot)

    def add(self, message: bytes) -> None:
        change = _CHANGE.decode(message)
        match change.headers:
            case _Headers(control="reset"):
                self._values.clear()
            case _Headers(control="snapshot-start" | "snapshot-end"):
                pass
            case _Headers(operation="insert" | "update" | "upsert") if change.type and change.key and change.value:
                self._values.setdefault(change.type, {})[change.key] = change.value.copy()
            case _Headers(operation="delete") if change.type and change.key:
                entities = self._values.get(change.type, {})
                entities.pop(change.key, None)
                if not entities:
                    self._values.pop(change.type, None)
            case _:
                raise Unfoldable(f"A message does not follow the state protocol: {quoted(message)}.")

    def result(self) -> bytes:
        return msgspec.json.encode(self._values)


# -- A function of the user --------------------------------------------------------------------------------------------


class Function:
    """The result of a function of state and message, both plain Python values; the first state is None."""

    def __init__(self, snapshot: bytes | None, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self._state = None if snapshot is None else _ANYTHING.decode(snapshot)

    def add(self, message: bytes) -> None:
        value = _ANYTHING.decode(message)
        try:
            self._state = self._function(self._state, value)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise Unfoldable(f"The function failed ({cause}) at {quoted(message)}.") from error

    def result(self) -> bytes:
        return msgspec.json.encode(self._state)


# -- Reducers by name --------------------------------------------------------------------------------------------------


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
