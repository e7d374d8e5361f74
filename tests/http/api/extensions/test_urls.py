"""Extensions, section 5: everything in a path may be percent-encoded."""

from urllib.parse import quote

import pytest

from ...sockets import Wire, refused
from .pieces import JSON, MIB, TEXT, append, flat, frames, made, parsed, parts, plain, publish


def encoded(text: str) -> str:
    """Every byte of it, percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


@pytest.mark.parametrize("offset", [plain(3), flat(3)])
def test_an_offset_in_a_path_may_be_encoded(wire: Wire, text: str, offset: str) -> None:
    append(wire, text, b"abc", b"def")
    publish(wire, text, encoded(offset))
    assert wire.ask("GET", f"{text}/snapshot/{encoded(offset)}").body == b"folded"
    assert wire.ask("PUT", f"{text}/retention/{encoded(offset)}").status == 204
    refused(wire.ask("DELETE", f"{text}/snapshot/{encoded(offset)}"), 409, "snapshot_conflict")


@pytest.mark.parametrize("offset", [plain(3), flat(3)])
def test_an_offset_in_a_query_may_be_encoded(wire: Wire, text: str, offset: str) -> None:
    append(wire, text, b"abc", b"def")
    assert wire.ask("GET", f"{text}?offset={encoded(offset)}").body == b"def"


@pytest.mark.parametrize("surface", ["", "/ds"])
def test_every_segment_of_a_path_may_be_encoded(wire: Wire, bucket: str, surface: str) -> None:
    path = f"{surface}/{encoded(bucket[1:])}/{encoded('document')}"
    made(wire, path, JSON, b"[1,2,3]")
    snapshot = f"{path}/{encoded('snapshot')}"
    assert wire.ask("PUT", f"{snapshot}/{plain(1)}", TEXT, b"folded").status == 204
    assert wire.ask("GET", f"{snapshot}/{plain(1)}").body == b"folded"
    assert wire.ask("GET", snapshot).status == 307
    assert wire.ask("POST", f"{path}/{encoded('append-batch')}", JSON, frames(b"4", b"5")).status == 200
    assert wire.ask("PUT", f"{path}/{encoded('attrs')}", JSON, b'{"title":"t"}').status == 204
    assert parsed(wire.ask("GET", f"{path}/{encoded('attrs')}")) == {"title": "t"}
    assert len(parts(wire.ask("GET", f"{path}/{encoded('bootstrap')}"))) == 5
    assert wire.ask("PUT", f"{path}/{encoded('retention')}/{plain(1)}").status == 204
    listing = parsed(wire.ask("GET", f"{surface}{bucket}/{encoded('streams')}"))
    assert [entry["stream_id"] for entry in listing["streams"]] == ["document"]


def test_an_encoded_path_has_the_limits_of_a_plain_one(wire: Wire, text: str) -> None:
    assert wire.ask("PUT", f"{text}/%73napshot/{plain(0)}", TEXT, bytes(17 * MIB)).status == 204
    batch = wire.ask("POST", f"{text}/append%2Dbatch", TEXT, frames(bytes(9 * MIB), bytes(9 * MIB)))
    assert [ack["status"] for ack in parsed(batch)] == [204, 204]


def test_a_redirect_names_the_stream_as_the_request_did(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/{quote('a b?é😀')}", TEXT, b"abc")
    publish(wire, path, plain(3))
    location = wire.ask("GET", f"{path}/snapshot").headers["location"]
    assert location == f"http://localhost{path}/snapshot/{plain(3)}"
    assert wire.ask("GET", location.removeprefix("http://localhost")).body == b"folded"


@pytest.mark.parametrize("escape", ["%ff", "%c3%28", "%ed%a0%80"])
def test_what_is_not_utf8_names_nothing(wire: Wire, bucket: str, escape: str) -> None:
    for target in (f"{bucket}/{escape}", f"{bucket}/s/snapshot/{escape}", f"/{escape}abcd"):
        refused(wire.ask("GET", target), 400, "invalid_name")


def test_a_name_may_look_like_a_sub_resource_but_has_none_of_its_own_in_a_sub_resource(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/snapshot", TEXT, b"abc")
    publish(wire, path, plain(3))
    assert wire.ask("GET", f"{path}/snapshot/{plain(3)}").body == b"folded"
    for below in ("/other", f"/snapshot/{plain(3)}/more", "/bootstrap/x", "/attrs/x", "/append-batch/x", "/"):
        refused(wire.ask("GET", f"{path}{below}"), 404, "not_found")
