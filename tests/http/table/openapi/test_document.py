"""The OpenAPI document describes everything that the server does, and nothing else."""

import json
import re
from importlib.metadata import version
from typing import Any

import pytest

from headwater.access.grants import Action
from headwater.http.table.endpoints import ENDPOINTS, ROUTER
from headwater.http.table.openapi import document as openapi
from headwater.http.table.router import Found
from headwater.http.table.routes import Endpoint
from headwater.http.wire.codes import REFUSALS
from headwater.protocol.refusals import Code

from ...sockets import Wire, refused

DOCUMENT = openapi.document(ENDPOINTS)
VALUES = {
    "{bucket}": "team",
    "{stream}": "notes",
    "{path}": "team%2Fnotes",
    "{offset}": "-1",
    "{consumer}": "spark",
    "{producer}": "p",
    "{purge}": "9f2c41d07be3a856",
    "{namespace}": "headwater",
    "{table}": "messages",
}
BELOW_BUCKETS = [one for one in ENDPOINTS if one.has_surfaces]


def found(template: str, method: str) -> Found:
    """The route that the server takes for a template with its parameters filled in."""
    path = re.sub(r"{\w+}", lambda match: VALUES[match[0]], template)
    route = ROUTER.find(method.encode(), path.encode())
    assert isinstance(route, Found), (method, path)
    return route


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Every path, method and operation of the document."""
    return [
        (template, method.upper(), operation)
        for template, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
    ]


def test_every_operation_of_the_document_is_the_route_that_the_server_takes() -> None:
    for template, method, operation in operations():
        assert found(template, method).route.summary == operation["summary"]


@pytest.mark.parametrize("prefix", ["", "/ds"])
@pytest.mark.parametrize("endpoint", BELOW_BUCKETS, ids=lambda one: one.path)
def test_what_is_below_a_bucket_is_documented_on_both_surfaces(endpoint: Endpoint, prefix: str) -> None:
    documented = DOCUMENT["paths"][prefix + endpoint.path].keys() - {"parameters"}
    assert documented == {method.decode().lower() for method in endpoint.routes}


def test_the_other_surfaces_document_their_endpoints_and_no_others() -> None:
    others = [one.path for one in ENDPOINTS if not one.has_surfaces]
    listed = [path for path in DOCUMENT["paths"] if not path.startswith(("/{bucket}", "/ds/"))]
    assert sorted(listed) == sorted([*others, "/v1/stream/{path}"])


def test_a_template_has_the_parameters_that_it_names() -> None:
    for template, methods in DOCUMENT["paths"].items():
        named = [parameter["$ref"].rpartition(".")[2] for parameter in methods["parameters"]]
        assert named == re.findall(r"{(\w+)}", template)


def test_every_route_has_an_action_and_every_action_a_route() -> None:
    actions = [route.action for endpoint in ENDPOINTS for route in endpoint.routes.values()]
    assert all(isinstance(action, Action) for action in actions)
    assert set(actions) == set(Action)


def test_routes_that_anybody_may_use_show_neither_data_nor_numbers() -> None:
    free = {one.path for one in ENDPOINTS if any(route.action is Action.NONE for route in one.routes.values())}
    assert free == {"/", "/healthz", "/readyz", "/openapi", "/openapi.json", "/__headwater/whoami"}


def test_every_refusal_has_its_code_in_the_problem_and_its_status_in_a_response() -> None:
    problem = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
    assert problem["code"]["enum"] == [code.value for code in Code]
    assert set(problem["status"]["enum"]) == {status for status, _ in REFUSALS.values()}
    documented = {
        (code, int(status)) for status, response in refusals() for code in response["description"].split(", ")
    }
    assert documented >= {(code.value, REFUSALS[code][0]) for code in Code}


def refusals() -> list[tuple[str, dict[str, Any]]]:
    """Every response of every operation that is a reference to a refusal."""
    return [
        (status, response)
        for _, _, operation in operations()
        for status, response in operation["responses"].items()
        if "$ref" in response
    ]


def test_every_reference_leads_somewhere_and_everything_is_referred_to() -> None:
    references = set(re.findall(r'"#/components/([^"]+)"', json.dumps(DOCUMENT)))
    # Security schemes are referred to by their names alone.
    kinds = [(kind, named) for kind, named in DOCUMENT["components"].items() if kind != "securitySchemes"]
    components = {f"{kind}/{name}" for kind, named in kinds for name in named}
    assert references <= components
    # Every header is there twice, required and not; one of them may be unused.
    assert {name.replace("required.", "") for name in components - references} <= {
        name.replace("required.", "") for name in references
    }


def test_operations_have_unique_names() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))


# -- Served ------------------------------------------------------------------------------------------------------------


def test_the_document_is_served_and_may_be_cached_for_a_while(wire: Wire) -> None:
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


def test_every_operation_says_which_action_it_needs_and_how_to_prove_who_asks() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    for path, method, operation in operations():
        action = operation.get("x-headwater-action")
        assert (action is None) == ("security" not in operation), (path, method)
        assert all(name in schemes for one in operation.get("security", ()) for name in one)
