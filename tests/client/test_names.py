"""Names on the wire have one source: the tables of the protocol."""

import re
from functools import partial
from pathlib import Path

import pytest

from headwater import client
from headwater.client import Admin, AsyncAdmin, AsyncClient, Client
from headwater.protocol import headers, parameters

SOURCES = sorted(Path(client.__file__).parent.rglob("*.py"))
STRING = re.compile(r'''r?"([^"\n]*)"''')


@pytest.mark.parametrize("name", ["..", "../../bucket", "a/../b", "./a", "a/."])
def test_a_name_cannot_leave_the_base_url(name: str) -> None:
    # HTTP clients and proxies resolve such segments: the request would be about a bucket, or an administrative URL.
    with client.Client("http://127.0.0.1:1/v1/stream") as one, pytest.raises(ValueError, match="not a valid name"):
        one.stream(name)
    with client.Client("http://127.0.0.1:1") as one, pytest.raises(ValueError, match="not a valid name"):
        one.bucket("team").stream(name)


def test_no_header_is_spelled_out() -> None:
    # "accept" is also what `create` does with an existing stream.
    names = {header.lower for header in headers.TABLE} - {"accept"}
    for path in SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.lstrip().startswith((">>>", "(", "[", "{'")):
                spelled = {text.lower() for text in STRING.findall(line)} & names
                assert not spelled, f"{path.name}:{number} spells out {spelled}"


def test_every_query_parameter_is_one_of_the_protocol() -> None:
    used: set[str] = set()
    for path in SOURCES:
        for call in re.findall(r"with_parameters\(([^()]*(?:\([^()]*\)[^()]*)*)\)", path.read_text()):
            used |= set(re.findall(r"\b(\w+)=", call))
    assert {"offset", "live", "tail_records", "prefix"} <= used
    assert used <= set(parameters.TABLE)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://h:1/?x=1", "'http://h:1/?x=1' has a query or a fragment, which the URL of a server cannot have"),
        ("http://h:1?", "has a query or a fragment"),
        ("http://h/v1/stream#x", "has a query or a fragment"),
        ("http://ada:secret@h/?x=1", "'http://h/?x=1' has a query or a fragment"),
        ("localhost:4437", "'localhost:4437' is not the URL of a server; write it like http://host:4437"),
        ("", "is not the URL of a server"),
        ("ftp://h", "is not the URL of a server"),
        ("http://", "is not the URL of a server"),
        ("http://h:abc", "is not the URL of a server"),
        ("http://h:0", "is not the URL of a server"),
    ],
)
@pytest.mark.parametrize("kind", [Client, Admin, AsyncClient, AsyncAdmin])
def test_a_base_url_that_cannot_be_one_is_refused_at_once(kind: type[Client], url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        kind(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", [".", ".."])
def test_the_name_of_a_consumer_or_producer_is_a_segment_of_a_url(name: str) -> None:
    with Admin("http://127.0.0.1:9") as admin:
        for ask in (admin.forget_consumer, admin.consumer, admin.finish_producer, partial(admin.lease, seconds=1)):
            with pytest.raises(ValueError, match=f"^'{re.escape(name)}' is not a valid name: "):
                ask(name)
