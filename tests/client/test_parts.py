"""The small parts: bodies, shared appends, frames, multipart, errors, URLs, secrets."""

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater.client
from headwater.client import Admin, AsyncAdmin, AsyncClient, Client, Deframer, ProtocolViolation, errors, frame
from headwater.client.bodies import EncodedMessages, encode, encode_raw, encode_values, join, merge
from headwater.client.gathering import Gathering, Waiting
from headwater.client.multipart import PartParser
from headwater.client.operations import Conditions
from headwater.client.settings import ClientSettings
from headwater.client.wire import Request, Response

from .test_sse import cut

JSON = "application/json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
FEW = settings(max_examples=40)

# -- Bodies ------------------------------------------------------------------------------------------------------------


@FEW
@given(st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3))
def test_appends_that_are_joined_hold_what_each_of_them_held(appends: list[list[object]]) -> None:
    body = join([encode_values(values) for values in appends], JSON)
    assert json.loads(body) == [value for values in appends for value in values]
    # An encoded array is unchanged by the function for bodies that the caller has encoded.
    assert encode_raw(body, JSON).messages == sum(map(len, appends))


@FEW
@given(st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=3))
def test_pages_that_are_merged_hold_what_each_of_them_held(pages: list[list[object]]) -> None:
    merged = merge([json.dumps(page, indent=1).encode() for page in pages], JSON)
    assert json.loads(merged) == [value for page in pages for value in page]


def test_bytes_are_joined_end_to_end() -> None:
    assert (
        join([EncodedMessages(b"a"), EncodedMessages(b"b")], "text/plain") == merge([b"a", b"b"], "text/plain") == b"ab"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_invalid_json_is_rejected(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode([value])


# -- Sharing -----------------------------------------------------------------------------------------------------------


def waiting(
    text: str, content_type: str = "text/plain", *, seq: str | None = None, closed: bool = False
) -> Waiting[str]:
    return Waiting(EncodedMessages(text.encode()), content_type, Conditions(seq), closed, text)


def sent(batch: list[Waiting[str]]) -> str:
    return "".join(each.waiter for each in batch)


def test_a_lone_append_is_sent_at_once_and_those_that_follow_go_together() -> None:
    gathering: Gathering[str] = Gathering()
    assert sent(gathering.add(waiting("a"))) == "a"
    assert gathering.add(waiting("b")) == gathering.add(waiting("c")) == []
    assert sent(gathering.next()) == "bc"
    assert gathering.next() == []
    assert sent(gathering.add(waiting("d"))) == "d"


def test_an_append_with_a_condition_goes_alone_and_keeps_its_place() -> None:
    gathering: Gathering[str] = Gathering()
    gathering.add(waiting("a"))
    for each in (waiting("b"), waiting("c"), waiting("d", seq="1"), waiting("e"), waiting("f", closed=True)):
        gathering.add(each)
    assert [sent(gathering.next()) for _ in range(5)] == ["bc", "d", "e", "f", ""]


def test_a_shared_request_has_a_limit_and_one_content_type() -> None:
    gathering: Gathering[str] = Gathering(bytes_max=5)
    gathering.add(waiting("a"))
    for each in ("bb", "c", "d", "eeeeeeeee", "f"):
        gathering.add(waiting(each))
    gathering.add(waiting("1", JSON))
    assert [sent(gathering.next()) for _ in range(6)] == ["bbc", "d", "eeeeeeeee", "f", "1", ""]


# -- Frames and parts --------------------------------------------------------------------------------------------------


@given(st.lists(st.binary()), st.lists(st.integers(0, 1_000)))
def test_framed_messages_do_not_depend_on_where_the_bytes_are_cut(messages: list[bytes], places: list[int]) -> None:
    deframer = Deframer()
    pieces = cut(b"".join(map(frame, messages)), places)
    assert [message for piece in pieces for message in deframer.feed(piece)] == messages


def test_an_impossible_length_is_an_error() -> None:
    with pytest.raises(ProtocolViolation):
        Deframer().feed(b"this is not framed")


@given(st.lists(st.binary(), min_size=1), st.lists(st.integers(0, 1_000)))
def test_parts_do_not_depend_on_where_the_bytes_are_cut(contents: list[bytes], places: list[int]) -> None:
    boundary = b"9f2c-this-is-not-in-the-contents"
    body = b"".join(b"\r\n--%b\r\nContent-Type: a/b\r\n\r\n%b" % (boundary, content) for content in contents)
    body = body[2:] + b"\r\n--%b--\r\n" % boundary
    parser = PartParser(f'multipart/mixed; charset=x; boundary="{boundary.decode()}"')
    parts = [part for piece in cut(body, places) for part in parser.feed(piece)]
    assert [part.data for part in parts] == contents and parser.ended
    parser = PartParser(f"multipart/mixed; boundary={boundary.decode()}")
    parts = [part for byte in body for part in parser.feed(bytes([byte]))]
    assert [part.data for part in parts] == contents and parser.ended


@pytest.mark.parametrize("content_type", ["", "text/plain", "multipart/mixed", "multipart/form-data; boundary=x"])
def test_an_invalid_bootstrap_is_an_error(content_type: str) -> None:
    with pytest.raises(ProtocolViolation):
        PartParser(content_type)


# -- Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(400), errors.BadRequest),
        (Response(401), errors.Unauthorized),
        (Response(401, {}, b'{"code":"producer_forbidden"}'), errors.Unauthorized),
        (Response(403), errors.Forbidden),
        (Response(403, {}, b'{"code":"forbidden"}'), errors.Forbidden),
        (Response(403, {"producer-epoch": "2"}), errors.ProducerFenced),
        (Response(404), errors.NotFound),
        (Response(409), errors.Conflict),
        (Response(409, {"stream-closed": "TRUE"}), errors.StreamClosed),
        (Response(409, {"producer-expected-seq": "1"}), errors.SequenceConflict),
        (Response(409, {}, b"Sequence conflict"), errors.SequenceConflict),
        (Response(409, {}, b'{"code":"content_type_mismatch"}'), errors.Conflict),
        (Response(409, {}, b'{"code":"stream_seq_conflict"}'), errors.SequenceConflict),
        (Response(410), errors.Gone),
        (Response(410, {"stream-earliest-offset": "3"}), errors.OffsetTrimmed),
        (Response(410, {}, b'{"code":"incarnation_changed"}'), errors.IncarnationChanged),
        (Response(412), errors.PreconditionFailed),
        (Response(413), errors.TooLarge),
        (Response(421), errors.HostRefused),
        (Response(429), errors.RateLimited),
        (Response(429, {}, b'{"code":"producers_too_many"}'), errors.ServerUnavailable),
        (Response(500), errors.ServerUnavailable),
        (Response(507), errors.QuotaExceeded),
    ],
)
def test_each_answer_is_one_kind_of_error(response: Response, kind: type[errors.RequestRefused]) -> None:
    error = errors.refusal(Request("GET", "http://h/s"), response)
    assert type(error) is kind
    assert error.status == response.status and "http://h/s" in str(error)


def test_an_error_has_the_code_and_detail_of_the_response() -> None:
    body = json.dumps({"code": "stream_not_found", "title": "Not found", "detail": "No such stream.", "status": 404})
    error = errors.refusal(Request("GET", "http://h/s"), Response(404, {}, body.encode()))
    assert (error.code, error.title, error.detail) == ("stream_not_found", "Not found", "No such stream.")
    assert str(error) == "GET http://h/s was answered with 404: No such stream."
    plain = errors.refusal(Request("GET", "http://h/s"), Response(404, {}, b"not here\n"))
    assert plain.code is None and plain.detail == "not here"


def test_the_documented_tree_of_errors_is_complete() -> None:
    def below(kind: type[Exception]) -> list[type[Exception]]:
        return [found for child in kind.__subclasses__() for found in (child, *below(child))]

    documented = {word.strip("│├└─ ").split(" ")[0] for word in (errors.__doc__ or "").splitlines() if "──" in word}
    assert documented == {kind.__name__ for kind in below(errors.ClientError)}
    assert documented <= set(headwater.client.__all__)


# -- URLs --------------------------------------------------------------------------------------------------------------


def test_a_path_is_quoted_and_a_url_is_left_alone() -> None:
    settings = ClientSettings("http://h:1/v1/stream/")
    assert settings.stream_url("/a/b c?d") == "http://h:1/v1/stream/a/b%20c%3Fd"
    assert settings.stream_url("https://other/x%20y") == "https://other/x%20y"
    assert settings.bucket_url("a/b:c") == "http://h:1/a%2Fb:c"


@pytest.mark.parametrize("base", ["http://h:1", "http://h:1/", "http://h:1/v1/stream"])
def test_the_root_of_a_server_has_streams_and_buckets(base: str) -> None:
    settings = ClientSettings(base)
    assert settings.stream_url("team/notes") == "http://h:1/v1/stream/team/notes"
    assert settings.bucket_url("team") == "http://h:1/team"


def test_a_url_with_a_path_is_that_of_the_streams() -> None:
    settings = ClientSettings("http://h:1/ds")
    assert settings.stream_url("team/notes") == "http://h:1/ds/team/notes"
    assert settings.bucket_url("team") == "http://h:1/ds/team"


# -- Secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Client, AsyncClient, Admin, AsyncAdmin])
def test_neither_a_token_nor_a_password_is_shown(kind: Any) -> None:
    http = httpx2.Client() if kind in (Client, Admin) else httpx2.AsyncClient()
    one = kind("http://ada:secret@h:1/", headers={"X-Key": "secret"}, http=http)
    shown = [one, vars(one), vars(one._carrier)]
    if kind in (Client, AsyncClient):
        stream = one.stream("notes")
        shown += [stream, vars(stream), stream.producer("p"), one.bucket("team")]
    assert "h:1" in repr(one) and "secret" not in repr(shown)
    assert one._carrier.settings.headers == {"Authorization": "Basic YWRhOnNlY3JldA==", "X-Key": "secret"}


@pytest.mark.parametrize("kind", [Client, AsyncClient, Admin, AsyncAdmin])
@pytest.mark.parametrize("token", ["secret", lambda: "secret"])
def test_a_token_is_not_shown(kind: Any, token: Any) -> None:
    http = httpx2.Client() if kind in (Client, Admin) else httpx2.AsyncClient()
    one = kind("http://h:1/", token=token, http=http)
    assert "secret" not in repr([one, vars(one), vars(one._carrier), one._carrier.settings])


def test_a_token_and_another_credential_exclude_each_other() -> None:
    for url, headers in (("http://h:1", {"authorization": "x"}), ("http://ada:secret@h:1", {})):
        with pytest.raises(ValueError, match="one of the two") as caught:
            ClientSettings(url, headers, token="secret")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "\n", "Bearer secret", "sec\nret", "secr\u00e9t", "secret\0"])
def test_a_token_that_no_header_can_carry_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(ValueError, match="one word of printable ASCII") as caught:
        ClientSettings("http://h:1", token=token)
    assert "sec" not in str(caught.value)


def test_a_header_that_was_given_wins_over_the_password_in_a_url() -> None:
    settings = ClientSettings("http://ada:secret@h:1", {"authorization": "Bearer t"})
    assert settings.headers == {"authorization": "Bearer t"} and settings.base_url == "http://h:1"


def test_a_complete_url_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="cannot contain a password") as caught:
        ClientSettings("http://h:1").stream_url("http://ada:secret@h:1/x")
    assert "secret" not in str(caught.value)
