"""Names on the wire have one source: the tables of the protocol."""

import re
from pathlib import Path

from headwater import client
from headwater.protocol import headers, parameters

SOURCES = sorted(Path(client.__file__).parent.rglob("*.py"))
STRING = re.compile(r'''r?"([^"\n]*)"''')


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
