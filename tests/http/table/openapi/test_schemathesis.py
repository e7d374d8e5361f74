"""The live server against its own OpenAPI document: requests that follow it and requests that break it.

OPENAPI_EXAMPLES is how many requests are drawn for each operation, in addition to those at its limits; if it is set,
the alias of the canonical surface is tried as well.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks
from schemathesis.transport.serialization import Binary

from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.openapi import document as openapi
from headwater.http.wire import rendering
from headwater.http.wire.browsers import ALLOW_ALL_LINES
from headwater.protocol.content_types import DEFAULT
from headwater.testing import RunningServer, running_server

from ...api.bulk.requests import ARROW, encode, row, table_of

Case = schemathesis.Case[Any]

EXAMPLES = os.environ.get("OPENAPI_EXAMPLES")
BUCKET = "fuzz"
KINDS = {"documents": "application/json", "notes": "text/plain"}
TIMEOUT_MS = 20

ALWAYS_KNOWN = rendering.NOSNIFF_LINE + rendering.body_lines() + rendering.SANDBOX_LINES + ALLOW_ALL_LINES
ON_EVERY_RESPONSE = {
    *(line.partition(":")[0].lower() for line in ALWAYS_KNOWN.splitlines()),
    *("server", "date", "connection", "content-type", "content-length", "transfer-encoding"),
}

NAMES = st.sampled_from(["fuzz/bulk", "fuzz/more", "nowhere", "fuzz/" + "x" * 200])
APPENDS = st.builds(
    lambda name, messages, create, producer: row(name, *messages, create=create, producer=producer),
    NAMES,
    st.lists(st.binary(max_size=20), max_size=3),
    st.booleans(),
    st.none() | st.just(("fuzz", 0, 0)),
)
# Random bytes are hardly ever an Arrow table.
schemathesis.openapi.media_type(
    ARROW["Content-Type"], st.binary(max_size=500) | st.lists(APPENDS, max_size=5).map(table_of).map(encode)
)
schema = schemathesis.openapi.from_dict(openapi.document(ENDPOINTS))
schema.config.generation.update(max_examples=int(EXAMPLES or "10"))
tried = schema if EXAMPLES else schema.exclude(path_regex="^/ds/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """On disk, so that everything accepted must fit into the log; live reads end soon."""
    soon = ("--long-poll-seconds", str(TIMEOUT_MS / 1000), "--sse-seconds", "0.1")
    with running_server(*soon, data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def session(server: RunningServer) -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


# -- What every response must keep to ----------------------------------------------------------------------------------


def no_server_error(_: CheckContext, response: Response, __: Case) -> None:
    """A request may be refused as not implemented or not possible at the moment; none may fail."""
    assert response.status_code < 500 or response.status_code in (501, 503), response.text


def no_undocumented_header(_: CheckContext, response: Response, case: Case) -> None:
    answer = case.operation.responses.find_by_status_code(response.status_code)
    documented = {name.lower() for name, _ in answer.headers.items()} if answer is not None else set()
    undocumented = response.headers.keys() - documented - ON_EVERY_RESPONSE
    # Methods that are not in the document are tried as well.
    assert not undocumented or case.method.lower() != case.operation.method.lower(), undocumented


CHECKS = [
    no_server_error,
    no_undocumented_header,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def test_the_document_is_openapi() -> None:
    schema.validate()


@pytest.mark.fuzz
@tried.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_the_server_does_what_its_document_says(case: Case, server: RunningServer, session: requests.Session) -> None:
    aim(case, f"{server.url}/{BUCKET}", session)
    case.call_and_validate(base_url=server.url, session=session, checks=CHECKS, allow_redirects=False)


# -- Aim ---------------------------------------------------------------------------------------------------------------


def aim(case: Case, url: str, session: requests.Session) -> None:
    """Make most requests about an existing stream, with suitable values, which drawn ones rarely are."""
    chance = Random(zlib.crc32(repr((case.path_parameters, case.query, case.headers, case.body)).encode()))
    # Each operation has its own streams, so that none depends on what another leaves.
    kind, owner = chance.choice(list(KINDS)), zlib.crc32(case.operation.label.encode())
    stream = f"{kind}-{owner:x}"
    session.put(url)
    session.put(f"{url}/{stream}", data=b"[1]", headers={"Content-Type": KINDS[kind]})
    if chance.random() < 0.2:
        session.put(f"{url}/{stream}/snapshot/{chance.choice(['-1', '00000000000000000003'])}", data=b"first")
    head = session.head(f"{url}/{stream}").headers
    names = {"bucket": BUCKET, "stream": stream, "path": f"{BUCKET}/{stream}"}
    if chance.random() < 0.8:
        case.path_parameters |= {name: names[name] for name in names.keys() & case.path_parameters.keys()}
    if "offset" in case.path_parameters and chance.random() < 0.7:
        case.path_parameters["offset"] = head.get("Stream-Next-Offset", "-1")
    suit_query(case, chance)
    suit_headers(case, head, f"/{BUCKET}/{stream}", chance)
    if case.operation.path.endswith("append-batch") and chance.random() < 0.8:
        case.media_type, case.headers["Content-Type"] = DEFAULT, KINDS[kind]
        frames = chance.choices([b"[1]", b'"two"', getattr(case.body, "data", b"") or b"-"], k=3)
        case.body = Binary(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))


def suit_query(case: Case, chance: Random) -> None:
    """Drop some drawn parameters, since few can be combined, and shorten waits."""
    for name in list(case.query):
        if chance.random() < 0.6:
            del case.query[name]
    if "timeout_ms" in case.query:
        case.query["timeout_ms"] = TIMEOUT_MS
    if "record" in case.query and chance.random() < 0.8:
        case.query["record"] = chance.choice(["0", "1", "now"])


def suit_headers(case: Case, head: CaseInsensitiveDict[str], source: str, chance: Random) -> None:
    """Drop some drawn headers, since few can be combined, and give others a meaningful value."""
    suitable = {
        "If-Match": head.get("ETag", "*"),
        "If-None-Match": head.get("ETag", "*"),
        "Stream-Attrs": '{"title": "fuzz"}',
        "Stream-Expires-At": "2100-01-01T00:00:00Z",
        "Stream-Fork-Offset": "-1",
        "Stream-Forked-From": source,
        "Stream-Incarnation": head.get("Stream-Incarnation", ""),
        "Stream-Record-Match": head.get("Stream-Record-Next", "0"),
    }
    for name in list(case.headers):
        if chance.random() < 0.5:
            del case.headers[name]
        elif name in suitable and chance.random() < 0.8:
            case.headers[name] = suitable[name]
    if any(name.startswith("Producer-") for name in case.headers) and chance.random() < 0.8:
        case.headers.update({"Producer-Id": "fuzz", "Producer-Epoch": f"{chance.randrange(3)}", "Producer-Seq": "0"})
