"""The tables of headers and parameters: each row once, and what is derived from them."""

from headwater.protocol import headers, parameters

NAMES = [header.name for header in headers.TABLE]
OURS = [header for header in headers.TABLE if header.name.startswith(("Stream-", "Producer-"))]


def test_every_header_has_one_row() -> None:
    assert len(NAMES) == len({name.lower() for name in NAMES})


def test_a_row_knows_its_name_in_every_form() -> None:
    row = headers.STREAM_TTL
    assert (row.name, row.lower, row.key, row.line) == ("Stream-TTL", "stream-ttl", b"stream-ttl", "Stream-TTL: ")
    assert repr(row) == "<Header Stream-TTL>"


def test_browsers_may_send_what_a_request_means() -> None:
    sent = {header.name for header in headers.TABLE if header.request is not None}
    assert set(headers.ALLOWED.split(", ")) == sent | {"Authorization", "Cache-Control", "Content-Type"}


def test_what_names_one_thing_may_come_only_once() -> None:
    stream_headers = {
        header.key for header in headers.TABLE if header.request and header.name.startswith(("Stream-", "Producer-"))
    }
    of_http = {b"authorization", b"host", b"content-type", b"content-length", b"last-event-id"}
    assert stream_headers | of_http == headers.SINGULAR


def test_meanings_are_sentences() -> None:
    uses = [use for header in headers.TABLE for use in (header.request, header.response) if use is not None]
    assert all(use.meaning.endswith(".") for use in [*uses, *parameters.TABLE.values()])
