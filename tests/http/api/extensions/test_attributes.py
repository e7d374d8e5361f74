"""Attributes: a title and metadata beside a stream."""

import json

import pytest

from ...sockets import Wire, refused
from .pieces import JSON, TEXT, append, made, parsed, standing

FULL = {"title": "Runs of é", "metadata": {"owner": "a", "tags": [1, 2.5, None, True], "deep": {"x": {}}}}


def attrs(wire: Wire, path: str) -> object:
    return parsed(wire.ask("GET", f"{path}/attrs"))


def set_attrs(wire: Wire, path: str, value: object) -> None:
    response = wire.ask("PUT", f"{path}/attrs", JSON, json.dumps(value).encode())
    assert (response.status, response.body) == (204, b"")
    assert response.headers["stream-incarnation"] == wire.ask("HEAD", path).headers["stream-incarnation"]


def test_a_stream_without_attributes_has_an_empty_object(wire: Wire, text: str) -> None:
    response = wire.ask("GET", f"{text}/attrs")
    assert (parsed(response), response.body) == ({}, b"{}")
    assert response.headers["stream-incarnation"] == wire.ask("HEAD", text).headers["stream-incarnation"]
    assert response.headers["cache-control"] == "no-store"
    assert wire.ask("HEAD", f"{text}/attrs").headers["content-length"] == "2"


@pytest.mark.parametrize("surface", ["", "/ds"])
@pytest.mark.parametrize("value", [FULL, {"title": ""}, {"metadata": {}}, {}])
def test_attributes_are_replaced_as_a_whole(wire: Wire, text: str, value: object, surface: str) -> None:
    set_attrs(wire, text, {"title": "before", "metadata": {"before": 1}})
    set_attrs(wire, f"{surface}{text}", value)
    assert attrs(wire, text) == attrs(wire, f"/ds{text}") == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"title"',
        b"null",
        b'{"title":1}',
        b'{"title":["a"]}',
        b'{"metadata":[]}',
        b'{"metadata":"x"}',
        b'{"title":"\xff"}',
        b'{"metadata":' + b'{"a":' * 2000 + b"1" + b"}" * 2001,
    ],
)
def test_anything_else_is_refused_and_changes_nothing(wire: Wire, text: str, body: bytes) -> None:
    set_attrs(wire, text, FULL)
    before = standing(wire, text)
    refused(wire.ask("PUT", f"{text}/attrs", JSON, body), 400, "invalid_json")
    assert standing(wire, text) == before


def test_attributes_are_json(wire: Wire, text: str) -> None:
    refused(wire.ask("PUT", f"{text}/attrs", TEXT, b"{}"), 400, "bad_request")
    assert wire.ask("PUT", f"{text}/attrs", {"Content-Type": "Application/JSON; charset=utf-8"}, b"{}").status == 204


def test_attributes_are_16_kib_at_most(wire: Wire, text: str) -> None:
    room = 16 * 1024 - len('{"title":""}')
    set_attrs(wire, text, {"title": "x" * (room - 1)})
    before = standing(wire, text)
    body = b'{"title":"%b"}' % (b"x" * (room + 1))
    refused(wire.ask("PUT", f"{text}/attrs", JSON, body), 413, "too_large")
    assert standing(wire, text) == before
    assert wire.ask("PUT", f"{text}/attrs", JSON, b'{"title":"%b"}' % (b"x" * room)).status == 204


def test_other_fields_are_accepted_and_dropped(wire: Wire, text: str, bucket: str) -> None:
    set_attrs(wire, text, {"title": "a", "owner": {"x": [1]}, "metadata": {"kept": True}})
    assert attrs(wire, text) == {"title": "a", "metadata": {"kept": True}}
    path = made(wire, f"{bucket}/s", {**TEXT, "Stream-Attrs": '{"other":1}'})
    assert attrs(wire, path) == {}
    assert wire.ask("PUT", path, {**TEXT, "Stream-Attrs": '{"another":2}'}).status == 200


def test_a_stream_may_be_made_with_attributes(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/s", {**TEXT, "Stream-Attrs": '{"metadata": {"b":1,"a":2}, "title":"t"}'})
    assert attrs(wire, path) == {"title": "t", "metadata": {"a": 2, "b": 1}}


@pytest.mark.parametrize("value", ["{", "[]", "", '{"title":1}'])
def test_a_stream_with_bad_attributes_is_not_made(wire: Wire, bucket: str, value: str) -> None:
    refused(wire.ask("PUT", f"{bucket}/s", {**TEXT, "Stream-Attrs": value}), 400, "invalid_json")
    assert wire.ask("HEAD", f"{bucket}/s").status == 404


def test_attributes_are_part_of_the_configuration_that_a_second_put_is_compared_with(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/s", {**TEXT, "Stream-Attrs": '{"title":"t","metadata":{"a":1,"b":2}}'})
    before = standing(wire, path)
    same = {**TEXT, "Stream-Attrs": '{ "metadata" : {"b":2,"a":1}, "title": "t" }'}
    assert wire.ask("PUT", path, same).status == 200
    assert wire.ask("PUT", path, TEXT).status == 200
    refused(wire.ask("PUT", path, {**TEXT, "Stream-Attrs": '{"title":"u"}'}), 409, "stream_exists")
    refused(wire.ask("PUT", path, {**TEXT, "Stream-Attrs": "{}"}), 409, "stream_exists")
    assert standing(wire, path) == before


def test_no_attributes_and_empty_ones_are_the_same_configuration(wire: Wire, text: str) -> None:
    assert wire.ask("PUT", text, {**TEXT, "Stream-Attrs": "{}"}).status == 200
    refused(wire.ask("PUT", text, {**TEXT, "Stream-Attrs": '{"title":"t"}'}), 409, "stream_exists")


def test_attributes_of_a_closed_stream_may_change(wire: Wire, text: str) -> None:
    wire.ask("POST", text, {"Stream-Closed": "true"})
    set_attrs(wire, text, FULL)
    assert attrs(wire, text) == FULL
    assert wire.ask("HEAD", text).headers["stream-closed"] == "true"


def test_attributes_touch_neither_the_bytes_nor_the_tag(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    before = wire.ask("GET", text)
    set_attrs(wire, text, FULL)
    after = wire.ask("GET", text)
    assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])


def test_attributes_are_not_copied_to_forks(wire: Wire, text: str, bucket: str) -> None:
    set_attrs(wire, text, FULL)
    assert attrs(wire, made(wire, f"{bucket}/fork", {"Stream-Forked-From": text})) == {}
    own = {"Stream-Forked-From": text, "Stream-Attrs": '{"title":"own"}'}
    assert attrs(wire, made(wire, f"{bucket}/own", own)) == {"title": "own"}
    assert wire.ask("PUT", f"{bucket}/own", own).status == 200
    refused(wire.ask("PUT", f"{bucket}/own", {**own, "Stream-Attrs": '{"title":"x"}'}), 409, "stream_exists")


def test_attributes_end_with_their_stream(wire: Wire, text: str, bucket: str) -> None:
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    set_attrs(wire, text, FULL)
    wire.ask("DELETE", text)
    refused(wire.ask("GET", f"{text}/attrs"), 404, "stream_not_found")
    refused(wire.ask("PUT", f"{text}/attrs", JSON, b"{}"), 404, "stream_not_found")
    made(wire, text)
    assert attrs(wire, text) == {}
    headers = {**JSON, "Stream-Incarnation": life}
    refused(wire.ask("PUT", f"{text}/attrs", headers, b'{"title":"t"}'), 410, "incarnation_changed")
    refused(wire.ask("GET", f"{text}/attrs?incarnation={life}"), 410, "incarnation_changed")
    assert attrs(wire, text) == {}


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_attributes_are_put_and_read_only(wire: Wire, text: str, method: str) -> None:
    response = wire.ask(method, f"{text}/attrs", JSON, b"{}")
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "PUT, GET, HEAD, OPTIONS"
