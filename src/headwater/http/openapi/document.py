"""The OpenAPI document: the URL table on its three surfaces, with what `operations` and `fields` say of it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from headwater.http.addresses import OWN, Resource
from headwater.http.exchange import Exchange
from headwater.http.openapi.fields import PATH, QUERY, REQUEST_HEADERS, RESPONSE_HEADERS
from headwater.http.openapi.operation_shapes import Gives, Operation, Takes
from headwater.http.openapi.operations import ALWAYS, BUCKETED_ONLY, FLAT_ONLY, OPERATIONS, REFUSAL_HEADERS
from headwater.http.openapi.schemas import SCHEMAS
from headwater.http.wire.statuses import REFUSALS, Answer
from headwater.protocol.headers import Use
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.shapes import Shape as Schema

PATH_OF_DOCUMENT = b"/openapi.json"
PATH_OF_PAGE = b"/openapi"
LINES = "Content-Type: application/json\r\nCache-Control: public, max-age=300\r\n"

Routes = Mapping[Resource, Iterable[bytes]]


HTML_LINES = LINES.replace("application/json", "text/html; charset=utf-8")


def serve(exchange: Exchange, routes: Routes) -> None:
    """Answer a request for the document itself, or for a page that shows it to a person."""
    exchange.route = "GET openapi"
    if exchange.request.method in (b"GET", b"HEAD") and exchange.request.path == PATH_OF_PAGE:
        exchange.answer(Answer(200, HTML_LINES, _page()))
    elif exchange.request.method in (b"GET", b"HEAD"):
        exchange.answer(Answer(200, LINES, _encoded(tuple((row, tuple(methods)) for row, methods in routes.items()))))
    elif exchange.request.path == PATH_OF_PAGE and exchange.request.method in (b"PUT", b"DELETE"):
        exchange.refuse(Code.INVALID_NAME, "The bucket name 'openapi' is reserved.")
    else:
        detail = "The OpenAPI document can only be read."
        exchange.reply(Refusal(Code.METHOD_NOT_ALLOWED, detail, allow="GET, HEAD, OPTIONS"))


@cache
def _page() -> bytes:
    return (files("headwater.http.openapi") / "page.html").read_bytes()


@cache
def _encoded(routes: tuple[tuple[Resource, tuple[bytes, ...]], ...]) -> bytes:
    return msgspec.json.encode(document(dict(routes)))


def document(routes: Routes) -> dict[str, Any]:
    """The whole document for a URL table."""
    paths: dict[str, dict[str, Any]] = {}
    for place in _places(routes):
        paths[place.template] = {"parameters": [_reference("parameters", f"path.{name}") for name in place.names]}
        for method in routes[place.resource]:
            paths[place.template][method.decode().lower()] = _operation(place, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": version("headwater"),
            "summary": "Durable streams: append-only timelines addressed by URL.",
            "description": "Every URL also answers OPTIONS, and every response carries the headers that browsers need.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "parameters": dict(_parameters()),
            "headers": dict(_response_headers()),
            "responses": {str(status): _refused(status) for status in sorted(_CODES)},
        },
    }


# -- Places ------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A resource on a surface: its template, the parameters in it, and how its operations are told apart by name."""

    resource: Resource
    argument: bool
    surface: str
    template: str
    names: tuple[str, ...]


def _places(routes: Routes) -> Iterator[Place]:
    for surface, prefix in (("", ""), ("ds_", "/ds")):
        for resource, argument in OPERATIONS:
            if resource in routes and resource not in _OWN:
                template, names = _bucketed(resource, argument)
                yield Place(resource, argument, surface, prefix + template, names)
    if Resource.STREAM in routes:
        yield Place(Resource.STREAM, False, "flat_", "/v1/stream/{path}", ("path",))
    for resource, (template, names) in _OWN.items():
        if resource in routes:
            yield Place(resource, False, "", template, names)


_OWN: dict[Resource, tuple[str, tuple[str, ...]]] = {
    Resource.HEALTH: ("/healthz", ()),
    Resource.READY: ("/readyz", ()),
    Resource.METRICS: ("/metrics", ()),
    Resource.STATUS: (f"/{OWN}/status", ()),
    Resource.FLUSH: (f"/{OWN}/flush", ()),
    Resource.DESCRIBE: (f"/{OWN}/describe", ()),
    Resource.LOCATE: (f"/{OWN}/locate", ()),
    Resource.SCAN: (f"/{OWN}/scan", ()),
    Resource.BULK_APPEND: (f"/{OWN}/append", ()),
    Resource.SWAP: (f"/{OWN}/swap", ()),
    Resource.READERS: (f"/{OWN}/readers", ()),
    Resource.READER: (f"/{OWN}/readers/{{reader}}", ("reader",)),
}


def _bucketed(resource: Resource, argument: bool) -> tuple[str, tuple[str, ...]]:
    if resource is Resource.BUCKET:
        return "/{bucket}", ("bucket",)
    if resource is Resource.LISTING:
        return f"/{{bucket}}/{resource.value}", ("bucket",)
    if resource is Resource.STREAM:
        return "/{bucket}/{stream}", ("bucket", "stream")
    if argument:
        return f"/{{bucket}}/{{stream}}/{resource.value}/{{offset}}", ("bucket", "stream", "offset")
    return f"/{{bucket}}/{{stream}}/{resource.value}", ("bucket", "stream")


# -- Operations --------------------------------------------------------------------------------------------------------


def _operation(place: Place, method: bytes) -> dict[str, Any]:
    table = OPERATIONS[place.resource, place.argument]
    operation = table[b"GET"] if method == b"HEAD" and b"HEAD" not in table else table[method]
    what = place.resource.value.replace("-", "_") + ("_at" if place.argument else "")
    flat = place.surface == "flat_"
    described: dict[str, Any] = {
        "operationId": f"{place.surface}{method.decode().lower()}_{what}",
        "summary": operation.summary,
        "responses": dict(_responses(operation, flat=flat, own=place.resource in _OWN, bodiless=method == b"HEAD")),
    }
    parameters = [f"query.{name}" for name in operation.query.split()]
    parameters += [f"header.{name}" for name in operation.headers.split()]
    if parameters:
        described["parameters"] = [_reference("parameters", name) for name in parameters]
    if operation.body is not None:
        described["requestBody"] = _body(operation.body)
    return described


def _responses(operation: Operation, *, flat: bool, own: bool, bodiless: bool) -> Iterator[tuple[str, Schema]]:
    for status, gives in operation.gives.items():
        yield str(status), _given(gives, bodiless=bodiless)
    codes = set(f"{operation.refuses} {ALWAYS} {FLAT_ONLY}".split())
    codes -= set((BUCKETED_ONLY if flat else "" if own else FLAT_ONLY).split())
    for status, all_codes in _CODES.items():
        possible = [code for code in all_codes if code in codes]
        if possible:
            yield str(status), _reference("responses", str(status)) | {"description": ", ".join(possible)}


def _given(gives: Gives, *, bodiless: bool) -> Schema:
    response: Schema = {"description": gives.meaning}
    if gives.headers:
        response["headers"] = _headers(gives.headers)
    if gives.content and not bodiless:
        response["content"] = _content(gives.content)
    return response


def _headers(names: str) -> Schema:
    return {
        name.rstrip("?"): _reference("headers", name[:-1] if name.endswith("?") else f"required.{name}")
        for name in names.split()
    }


def _body(takes: Takes) -> Schema:
    return {"required": takes.required, "content": _content(takes.content)}


def _content(schemas: Mapping[str, str]) -> Schema:
    return {media_type: {"schema": _reference("schemas", name)} for media_type, name in schemas.items()}


# -- Components --------------------------------------------------------------------------------------------------------


def _codes_by_status() -> dict[int, list[Code]]:
    codes: dict[int, list[Code]] = {}
    for code in Code:
        codes.setdefault(REFUSALS[code][0], []).append(code)
    return dict(sorted(codes.items()))


_CODES = _codes_by_status()


def _refused(status: int) -> Schema:
    return {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(_CODES[status])}",
        "headers": _headers(f"Cache-Control {REFUSAL_HEADERS.get(status, '')}"),
        "content": {"application/problem+json": {"schema": _reference("schemas", "Problem")}},
    }


def _parameters() -> Iterator[tuple[str, Schema]]:
    for name, field in PATH.items():
        yield f"path.{name}", {"name": name, "in": "path", "required": True} | _described(field)
    for name, field in QUERY.items():
        yield f"query.{name}", {"name": name, "in": "query"} | _described(field)
    for name, field in REQUEST_HEADERS.items():
        yield f"header.{name}", {"name": name, "in": "header"} | _described(field)


def _response_headers() -> Iterator[tuple[str, Schema]]:
    """Each header twice, since a reference to one cannot add that it is required."""
    for name, field in RESPONSE_HEADERS.items():
        yield name, _described(field)
        yield f"required.{name}", _described(field) | {"required": True}


def _described(field: Use) -> Schema:
    return {"description": field.meaning, "schema": field.shape}


def _reference(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}
