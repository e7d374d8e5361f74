import json
import re
from typing import NoReturn
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol import json_mode
from headwater.protocol.limits import COMMAS_PER_APPEND_MAX, JSON_DEPTH_MAX, MESSAGES_PER_APPEND_MAX, MIB
from headwater.protocol.refusals import Code, Refusal


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b"[1,2]", [b"1", b"2"]),
        (b"[[1,2]]", [b"[1,2]"]),
        (b'\r\n{"a": 1}\t', [b'{"a": 1}']),
        (b'"text"', [b'"text"']),
        (b"null", [b"null"]),
        (b"[true , false]", [b"true", b"false"]),
    ],
)
def test_an_array_is_flattened_by_one_level_and_anything_else_is_one_message(
    body: bytes, messages: list[bytes]
) -> None:
    assert json_mode.split(body) == messages


@pytest.mark.parametrize(
    "message",
    [
        b"12345678901234567890",
        b"1.0",
        b"-0",
        b"1e999",
        b'{"b":1,"a":2,"b":3}',
        b'{ "a" :\n1 }',
        '"é\u2028"'.encode(),
        rb'"\u00e9\/"',
        rb'"\ud83d\ude00"',
    ],
)
def test_messages_keep_their_exact_bytes(message: bytes) -> None:
    assert json_mode.split(message) == [message]
    assert json_mode.split(b"[0, %b ,0]" % message) == [b"0", message, b"0"]


@pytest.mark.parametrize(
    "message",
    [rb'"\ud800"', rb'"\uDFFF"', rb'"\\\ud800"', rb'{"\udc00":"\ud800\ud800"}', rb'["\ud800x", "\ud800y"]'],
)
def test_a_lone_surrogate_escape_is_legal_and_kept(message: bytes) -> None:
    assert json_mode.split(b"[%b]" % message) == [message]
    assert json_mode.split(b'["A", %b,"\\ud800"]' % message) == [b'"A"', message, rb'"\ud800"']


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[1",
        b"[1,]",
        b"{'a':1}",
        b"{}{}",
        b"01",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b'"\n"',
        rb'"\ud800',
        rb'"\ud80"',
        rb'"\ud8\\"',
        rb"\\",
        rb'["\ud800", 01]',
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    refusal = json_mode.split(body)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_JSON
    assert refusal.detail.startswith("The body is not valid JSON: ")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'"\xff"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, f"at most {JSON_DEPTH_MAX} levels"),
        (rb'["\ud800",' + b"[" * 100_000, f"at most {JSON_DEPTH_MAX} levels"),
        (b"[" * (JSON_DEPTH_MAX + 1) + b" " * JSON_DEPTH_MAX, f"at most {JSON_DEPTH_MAX} levels"),
    ],
)
def test_what_no_reader_could_parse_is_refused(body: bytes, reason: str) -> None:
    refusal = json_mode.split(body)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_JSON
    assert reason in refusal.detail


def nested(levels: int, opening: bytes = b"[", inside: bytes = b"") -> bytes:
    return opening * levels + inside + (b"]" if opening == b"[" else b"}") * levels


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"\\"":', rb'{"\\":', rb'{"\ud800":', '{"é[":'.encode()])
@pytest.mark.parametrize("inside", [b"1", rb'"[[{\"[[\\"'])
def test_a_message_has_a_most_that_it_may_be_nested(opening: bytes, inside: bytes) -> None:
    deepest, deeper = nested(JSON_DEPTH_MAX, opening, inside), nested(JSON_DEPTH_MAX + 1, opening, inside)
    wide = b"[%b]" % b",".join([nested(JSON_DEPTH_MAX - 1, opening, inside)] * 300)
    for message in (deepest, wide, b"[%b]" % b",".join([b'{"[":["]"]}'] * 1_000)):
        assert json_mode.split(b"[1,%b]" % message) == [b"1", message]
        assert not json_mode.is_too_deep(message)
    for message in (deeper, b"[%b]" % wide, b'{"a":[],"b":%b}' % deepest):
        refusal = json_mode.split(b"[1,%b]" % message)
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.detail) == (Code.INVALID_JSON, json_mode.TOO_DEEP.detail)
        assert not json_mode.is_object(message)


def test_a_short_text_that_ends_too_early_is_too_deep_first() -> None:
    for levels in (JSON_DEPTH_MAX + 1, 2 * JSON_DEPTH_MAX):
        assert json_mode.split(b"[" * levels) == json_mode.TOO_DEEP
    shallow = json_mode.split(b"[" * JSON_DEPTH_MAX)
    assert isinstance(shallow, Refusal)
    assert "truncated" in shallow.detail


@given(
    st.recursive(
        st.text('[]{}"\\a') | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text('[{"'), inner)
    )
)
def test_brackets_in_strings_are_no_levels(value: object) -> None:
    def depth(value: object) -> int:
        if isinstance(value, dict | list):
            inside = value.values() if isinstance(value, dict) else value
            return 1 + max(map(depth, inside), default=0)
        return 0

    padding = JSON_DEPTH_MAX - depth(value)
    text = b'"%b",%b' % (b"[" * JSON_DEPTH_MAX, json.dumps(value).encode())
    # The innermost array is a level of its own.
    assert not json_mode.is_too_deep(nested(padding - 1, b"[", b"[%b]" % text))
    assert json_mode.is_too_deep(nested(padding, b"[", b"[%b]" % text))


def test_an_array_has_a_most_that_it_may_hold() -> None:
    fitting = [b"0"] * MESSAGES_PER_APPEND_MAX
    assert json_mode.split(b"[" + b",".join(fitting) + b"]") == fitting
    refusal = json_mode.split(b"[" + b",".join([*fitting, b"0"]) + b"]")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.TOO_LARGE


def test_an_array_of_too_many_commas_is_not_even_cut_apart() -> None:
    inner = b"[" + b",".join([b"0"] * (COMMAS_PER_APPEND_MAX + 1)) + b"]"
    assert json_mode.split(b"[" + inner + b"]") == [inner]
    refusal = json_mode.split(b"[" + inner + b",0]")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.TOO_LARGE


def no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse(text: str) -> object:
    """The value as the standard library parses it; numbers as they are written, objects as their pairs."""
    return json.loads(
        text,
        parse_constant=no_constant,
        parse_int=str,
        parse_float=str,
        object_pairs_hook=lambda pairs: ("object", pairs),
    )


STRINGS = st.lists(st.sampled_from(["a", "é", "[", ",", r"\"", r"\\", r"\u0041", r"\ud800", r"\udc00"])).map(
    lambda parts: f'"{"".join(parts)}"'
)
VALUES = st.recursive(
    st.sampled_from(["0", "-1.50e+3", "true", "null"]) | STRINGS,
    lambda values: (
        st.lists(values).map(lambda items: f"[ {' , '.join(items)}]")
        | st.lists(st.tuples(STRINGS, values)).map(lambda items: "{" + ",".join(f"{k}: {v}" for k, v in items) + "}")
    ),
    max_leaves=8,
)
SCRAPS = st.lists(
    st.sampled_from([*'[]{},:" \n-01.eE\\/', "true", "nul", "NaN", "\x01", "\ufeff", r"\ud800", '"a"', '{"a":']),
    max_size=8,
).map("".join)


@settings(deadline=None)
@given(st.one_of(VALUES, SCRAPS, st.tuples(SCRAPS, VALUES, SCRAPS).map("".join)))
def test_it_accepts_what_the_standard_parser_accepts_and_cuts_where_it_cuts(text: str) -> None:
    messages = json_mode.split(text.encode())
    try:
        whole = parse(text)
    except ValueError:
        assert isinstance(messages, Refusal)
        return
    assert isinstance(messages, list)
    assert [parse(message.decode()) for message in messages] == (whole if isinstance(whole, list) else [whole])
    assert all(message == message.strip() and message in text.encode() for message in messages)


# -- Surrogates, against a slower splitter ----------------------------------------------------------------------------

ESCAPE = re.compile(rb"\\(?:u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)


def split_by_escapes(body: bytes) -> list[bytes] | None:
    """The messages; None if it is not JSON. It replaces one surrogate escape after the other by that of a letter."""
    copy = ESCAPE.sub(lambda match: match[0] if len(match[0]) == 2 else rb"\u0041", body)
    is_array = copy.lstrip(json_mode.WHITESPACE)[:1] == b"["
    try:
        copy.decode()
        found = msgspec.json.decode(copy, type=list[msgspec.Raw]) if is_array else [msgspec.Raw(copy.strip())]
        msgspec.json.decode(copy)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
    messages, at = [], 0
    for message in map(bytes, found):
        at = copy.index(message, at)
        messages.append(body[at : at + len(message)])
        at += len(message)
    return messages


ESCAPES = st.lists(
    st.sampled_from(
        ["\\", r"\\", r"\n", '"', r"\"", "u", "d", "D", "A", "0", "00", "41", "800", r"\u", r"\ud", r"\uD8", r"\uDEAD"]
    ),
    max_size=12,
).map("".join)


@settings(deadline=None)
@given(st.lists(ESCAPES.map(lambda inside: f'"{inside}"') | ESCAPES | VALUES, min_size=1, max_size=4), st.booleans())
def test_surrogates_are_found_where_a_reader_of_single_escapes_finds_them(parts: list[str], in_an_array: bool) -> None:
    body = (f"[{', '.join(parts)}]" if in_an_array else parts[0]).encode()
    expected = split_by_escapes(body)
    for piece_bytes in (MIB, 6, 7, 8, 9, 10, 11):
        with patch.object(json_mode, "PIECE_BYTES", piece_bytes):
            found = json_mode.split(body)
        assert (None if isinstance(found, Refusal) else found) == expected


@pytest.mark.parametrize("escape", [rb"\\", rb"\n", rb"\u0041", rb"\ud83d\ude00", rb"\ud800"])
def test_a_body_full_of_escapes_is_split_like_any_other(escape: bytes) -> None:
    text = b'"' + escape * 100_000 + rb'\ud800"'
    assert json_mode.split(b"[1, %b ,%b]" % (text, text)) == [b"1", text, text]


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b'{"a":1}', b'{"a":[1,{"b":"}"}]}', '{"ä":"ö"}'.encode(), b'{"a":"\\ud83d\\ude00"}'),
        *(b"", b"[]", b"1", b'"{}"', b" {}", b"{} ", b"{}{}", b"{},{}", b"{", b"}", b"{]}", b'{"a":1,}', b"[{}]"),
        *(b'{"a":"\xff"}', b'{"\xc3":1}', b'{"a":"\\ud800"}', b'{"a":' * 5000 + b"1" + b"}" * 5000),
    ],
)
def test_what_is_called_an_object_is_one_message_as_it_is(body: bytes) -> None:
    if json_mode.is_object(body):
        assert json_mode.split(body) == [body]


@pytest.mark.parametrize("body", [b"{}", b'{"a":[1,{"b":"}"}]}', '{"ä":"ö"}'.encode()])
def test_an_object_is_recognised_without_splitting(body: bytes) -> None:
    assert json_mode.is_object(body)


@pytest.mark.parametrize("body", [b"{", b"{]}", b'{"a":"\xff"}', b'{"a":' * 5000 + b"1" + b"}" * 5000, b"{}{}"])
def test_what_only_looks_like_an_object_is_not_called_one(body: bytes) -> None:
    assert not json_mode.is_object(body)
