"""Names on the wire have one source: the tables of the protocol."""

import re
from pathlib import Path

import pytest

from headwater import client
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
