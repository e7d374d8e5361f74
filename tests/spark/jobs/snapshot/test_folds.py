"""Folds: the results, at once or in steps, and the messages that fail a fold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.jobs.snapshot.folds import Reducer, Unfoldable, advance, fold, reducer, result_of

PATCH, COUNT, STATE = reducer("merge-patch"), reducer("counter"), reducer("state-protocol")
NEWEST = reducer("last-write-wins", key="id")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


# -- Merge patch -------------------------------------------------------------------------------------------------------

APPENDIX_A = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "wanted"), APPENDIX_A)
def test_a_patch_does_what_the_rfc_shows(document: object, patch: object, wanted: object) -> None:
    assert json.loads(fold(PATCH, dumped(document), dumped(patch))) == wanted


def patched(document: Any, patch: Any) -> Any:
    """The algorithm of RFC 7386, line by line."""
    if not isinstance(patch, dict):
        return patch
    document = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = patched(document.get(name), value)
    return document


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 6))
def test_patches_have_the_same_result_at_once_and_in_steps(patches: list[Any], cut: int) -> None:
    wanted: Any = None
    for patch in patches:
        wanted = patched(wanted, patch)
    messages = [dumped(patch) for patch in patches]
    half = fold(PATCH, None, *messages[:cut])
    assert json.loads(fold(PATCH, None, *messages)) == wanted
    assert json.loads(fold(PATCH, half, *messages[cut:])) == wanted


def test_a_patch_leaves_numbers_and_texts_as_they_were_written() -> None:
    document = b'{"price": 1.50, "big": 123456789012345678901234567890, "text": "\\u00e9", "n": {"e": 1E5}}'
    result = fold(PATCH, document, b'{"n": {"f": -0.0}}')
    assert result == b'{"price":1.50,"big":123456789012345678901234567890,"text":"\\u00e9","n":{"e":1E5,"f":-0.0}}'


# -- Last write wins ---------------------------------------------------------------------------------------------------

KEYED = st.lists(st.tuples(st.sampled_from(["x", "y", 1, 2.5]), VALUES), max_size=8)


@given(KEYED, st.integers(0, 8))
def test_the_newest_message_of_each_key_is_kept(writes: list[tuple[object, Any]], cut: int) -> None:
    messages = [dumped({"id": key, "value": value}) for key, value in writes]
    wanted = {key if isinstance(key, str) else str(key): {"id": key, "value": value} for key, value in writes}
    half = fold(NEWEST, None, *messages[:cut])
    assert json.loads(fold(NEWEST, None, *messages)) == wanted
    assert json.loads(fold(NEWEST, half, *messages[cut:])) == wanted


# -- Counter -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers()), min_size=1, max_size=8), st.integers(0, 8))
def test_sums_are_those_of_all_messages(messages: list[dict[str, int]], cut: int) -> None:
    wanted: dict[str, int] = {}
    for message in messages:
        for name, value in message.items():
            wanted[name] = wanted.get(name, 0) + value
    texts = [dumped(message) for message in messages]
    half = fold(COUNT, None, *texts[:cut]) if cut else None
    assert json.loads(fold(COUNT, None, *texts)) == wanted
    assert json.loads(fold(COUNT, half, *texts[cut:])) == wanted


def test_plain_numbers_are_added_and_subtracted() -> None:
    assert fold(COUNT, b"40", b"3", b"-1") == b"42"


def test_fields_that_are_not_numbers_are_ignored() -> None:
    result = fold(COUNT, None, b'{"n": 1, "who": "ann", "ok": true, "in": {"m": 2, "x": null}}', b'{"in": {"m": 0.5}}')
    assert json.loads(result) == {"n": 1, "in": {"m": 2.5}}


# -- State protocol ----------------------------------------------------------------------------------------------------


def change(operation: str, type: str, key: str, **rest: object) -> bytes:
    return dumped({"type": type, "key": key, "headers": {"operation": operation}, **rest})


def test_entities_are_inserted_updated_and_deleted() -> None:
    result = fold(
        STATE,
        None,
        change("insert", "user", "1", value={"name": "Alice"}),
        change("insert", "user", "2", value={"name": "Bob"}),
        change("insert", "flag", "dark", value=False),
        change("update", "user", "1", value={"name": "Alice Smith"}, old_value={"name": "Alice"}),
        change("upsert", "flag", "light", value=None),
        change("delete", "user", "2"),
        change("delete", "flag", "dark", value=None),
        change("delete", "never", "there"),
    )
    assert json.loads(result) == {"user": {"1": {"name": "Alice Smith"}}, "flag": {"light": None}}
    assert json.loads(fold(STATE, result, change("delete", "flag", "light"))) == {
        "user": {"1": {"name": "Alice Smith"}}
    }


def test_a_reset_clears_all_entities() -> None:
    reset = b'{"headers": {"control": "reset", "offset": "1"}}'
    start, end = (b'{"headers": {"control": "snapshot-%s"}}' % word for word in (b"start", b"end"))
    result = fold(
        STATE, None, change("insert", "a", "1", value=1), reset, start, change("insert", "a", "2", value=2), end
    )
    assert json.loads(result) == {"a": {"2": 2}}


# -- Functions of the user ---------------------------------------------------------------------------------------------


def test_a_function_is_given_state_and_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "our_folds.py").write_text(
        "def longest(state, message):\n    return max(state or '', message, key=len)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = reducer("our_folds:longest")
    assert fold(mine, None, b'"a"', b'"ccc"', b'"bb"') == b'"ccc"'
    assert fold(mine, b'"dddd"', b'"a"') == b'"dddd"'


# -- Failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("last-write-wins", "id", b'{"name": "no id"}'),
        ("last-write-wins", "id", b'{"id": null}'),
        ("last-write-wins", "id", b'{"id": [1]}'),
        ("last-write-wins", "id", b'"text"'),
        ("counter", None, b'"text"'),
        ("counter", None, b"true"),
        ("state-protocol", None, b'{"type": "a", "key": "1", "value": 1}'),
        ("state-protocol", None, b'{"type": "a", "key": "1", "headers": {"operation": "insert"}}'),
        ("state-protocol", None, b'{"type": "a", "key": "", "headers": {"operation": "delete"}}'),
        ("state-protocol", None, b'{"type": "a", "key": "1", "value": 1, "headers": {"operation": "merge"}}'),
        ("state-protocol", None, b'{"headers": {"control": "stop"}}'),
        ("merge-patch", None, b'{"a": ' * 5000 + b"1" + b"}" * 5000),
        ("json:dumps", None, b"1"),
    ],
)
def test_an_invalid_message_fails_the_fold(name: str, key: str | None, message: bytes) -> None:
    with pytest.raises(Unfoldable, match=r"\.$"):
        fold(reducer(name, key), None, message)


def test_numbers_and_objects_are_not_added() -> None:
    with pytest.raises(Unfoldable, match="a number where others have an object"):
        fold(COUNT, b'{"a": 1}', b"5")
    with pytest.raises(Unfoldable, match="a number where others have an object"):
        fold(COUNT, b'{"a": 1}', b'{"a": {"b": 1}}')


@pytest.mark.parametrize(
    "messages",
    [(b"1e308", b"1e308"), (b"9" * 400,), (b"9" * 300, b"0.5", b"9" * 400), (b'{"n": 1}', b'{"n": %b}' % (b"9" * 400))],
    ids=["fractions", "a whole number", "whole numbers and fractions", "a field"],
)
def test_a_sum_that_overflows_fails_the_fold(messages: tuple[bytes, ...]) -> None:
    with pytest.raises(Unfoldable, match=r"^A sum overflows at "):
        fold(COUNT, None, *messages)


def test_a_snapshot_that_overflows_fails_the_fold() -> None:
    with pytest.raises(Unfoldable, match="not valid for counter: A sum overflows"):
        fold(COUNT, b"9" * 400, b"1")


class Clumsy:
    """A fold with errors that nobody thought of."""

    def add(self, message: bytes) -> None:
        raise MemoryError

    def result(self) -> bytes:
        raise ZeroDivisionError("Not today.")


def test_any_error_about_a_message_or_a_result_is_about_its_stream() -> None:
    with pytest.raises(Unfoldable, match=r"^A message is invalid \(MemoryError\): 1\.$"):
        advance(Clumsy(), b"1")
    with pytest.raises(Unfoldable, match=r"^The result is not JSON: Not today\.$"):
        result_of(Clumsy())


@pytest.mark.parametrize(("name", "key"), [("merge-patch", None), ("last-write-wins", "id"), ("state-protocol", None)])
def test_an_invalid_snapshot_fails_the_fold(name: str, key: str | None) -> None:
    with pytest.raises(Unfoldable, match=f"not valid for {name}"):
        fold(reducer(name, key), b"\x00\x01 not JSON")


def test_what_a_function_returns_must_be_json() -> None:
    with pytest.raises(Unfoldable, match="not JSON"):
        fold(Reducer("ours:them", None, lambda state, message: object()), None, b"1")


@pytest.mark.parametrize(
    ("name", "key", "problem"),
    [
        ("sum", None, "is not a known reducer"),
        (":f", None, "is not a known reducer"),
        ("no_such_module:f", None, "cannot be imported"),
        ("json:no_such_function", None, "has no function"),
        ("last-write-wins", None, "needs --key"),
        ("counter", "id", "do not take it"),
    ],
)
def test_an_unknown_reducer_is_refused(name: str, key: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        reducer(name, key)


def test_a_reducer_whose_name_does_not_fit_a_content_type_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^The reducer 'last-write-wins' with the key 'k+' does not fit into .* 255 bytes"
    ):
        reducer("last-write-wins", key="k" * 255)
