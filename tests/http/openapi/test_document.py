"""The OpenAPI document tells of everything that the server does, and of nothing else."""

import json
import re
from importlib.metadata import version
from typing import Any

import pytest

from headwater.http import addresses
from headwater.http.addresses import Address, Resource
from headwater.http.endpoints import ROUTES
from headwater.http.openapi import document as openapi
from headwater.http.openapi.operations import OPERATIONS
from headwater.http.wire.statuses import REFUSALS
from headwater.protocol.refusals import Code

from ..sockets import Wire, refused

DOCUMENT = openapi.document(ROUTES)
VALUES = {"{bucket}": "team", "{stream}": "notes", "{path}": "team%2Fnotes", "{offset}": "-1", "{reader}": "spark"}
OWN = {
    (resource, method)
    for resource in (
        *(Resource.STATUS, Resource.FLUSH, Resource.READERS, Resource.READER),
        *(Resource.DESCRIBE, Resource.LOCATE, Resource.SCAN, Resource.BULK_APPEND, Resource.SWAP),
    )
    for method in ROUTES[resource]
}
OPERATING = {
    (resource, method)
    for resource in (Resource.HEALTH, Resource.READY, Resource.METRICS)
    for method in ROUTES[resource]
}
EVERYTHING = {(resource, method) for resource, methods in ROUTES.items() for method in methods}


def address_of(template: str) -> Address:
    address = addresses.parse(re.sub(r"{\w+}", lambda match: VALUES[match[0]], template).encode())
    assert isinstance(address, Address), template
    return address


def documented(prefix: str) -> set[tuple[Resource, bytes]]:
    """Every resource and method whose path in the document begins with a prefix."""
    return {
        (address_of(template).resource, method.upper().encode())
        for template, methods in DOCUMENT["paths"].items()
        for method in methods.keys() - {"parameters"}
        if template.startswith(prefix)
    }


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("/{bucket}", EVERYTHING - OWN - OPERATING),
        ("/ds/{bucket}", EVERYTHING - OWN - OPERATING),
        ("/__headwater/", OWN),
        ("/v1/stream/{path}", {row for row in EVERYTHING if row[0] is Resource.STREAM}),
        ("", EVERYTHING),
    ],
)
def test_each_surface_documents_its_resources_and_methods_and_no_others(
    prefix: str, expected: set[tuple[Resource, bytes]]
) -> None:
    assert documented(prefix) == expected


def test_a_resource_with_an_argument_is_documented_with_and_without_it() -> None:
    for template in DOCUMENT["paths"]:
        assert (address_of(template).argument is not None) == template.endswith(("{offset}", "{reader}"))
    assert {resource for resource, argument in OPERATIONS if argument} == {Resource.SNAPSHOT, Resource.RETENTION}


def test_no_operation_is_described_that_the_url_table_lacks() -> None:
    assert {(resource, method) for (resource, _), table in OPERATIONS.items() for method in table} <= EVERYTHING


def test_every_refusal_has_its_code_in_the_problem_and_its_status_in_a_response() -> None:
    problem = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
    assert problem["code"]["enum"] == [code.value for code in Code]
    assert set(problem["status"]["enum"]) == {status for status, _ in REFUSALS.values()}
    told = {(code, int(status)) for status, response in responses() for code in response["description"].split(", ")}
    assert told >= {(code.value, REFUSALS[code][0]) for code in Code}


def responses() -> list[tuple[str, dict[str, Any]]]:
    """Every response of every operation that is a reference to a refusal."""
    return [
        (status, response)
        for methods in DOCUMENT["paths"].values()
        for method, operation in methods.items()
        if method != "parameters"
        for status, response in operation["responses"].items()
        if "$ref" in response
    ]


def test_every_reference_leads_somewhere_and_everything_is_referred_to() -> None:
    references = set(re.findall(r'"#/components/([^"]+)"', json.dumps(DOCUMENT)))
    components = {f"{kind}/{name}" for kind, named in DOCUMENT["components"].items() for name in named}
    assert references <= components
    # A header is there in two kinds, required and not; one of them may have no use.
    assert {name.replace("required.", "") for name in components - references} <= {
        name.replace("required.", "") for name in references
    }


def test_operations_have_names_of_their_own() -> None:
    names = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for method, operation in methods.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


# -- Served ------------------------------------------------------------------------------------------------------------


def test_the_document_is_served_and_may_be_kept_for_a_while(wire: Wire) -> None:
    response = wire.ask("GET", "/openapi.json")
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "public, max-age=300"
    served = json.loads(response.body)
    assert served == json.loads(json.dumps(DOCUMENT))
    assert served["info"]["version"] == version("headwater")


def test_head_of_the_document_is_its_get_without_a_body(wire: Wire) -> None:
    get, head = wire.ask("GET", "/openapi.json"), wire.ask("HEAD", "/openapi.json")
    assert (head.status, head.headers["content-length"]) == (200, str(len(get.body)))


def test_the_document_answers_options_and_can_only_be_read(wire: Wire) -> None:
    assert wire.ask("OPTIONS", "/openapi.json").status == 204
    for method in ("PUT", "POST", "DELETE"):
        response = wire.ask(method, "/openapi.json", body=b"")
        refused(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS"
