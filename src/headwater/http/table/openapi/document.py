"""The OpenAPI document, derived from the endpoint table and the tables of headers, parameters and schemas."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from headwater import __version__
from headwater.access.grants import Action
from headwater.http.table.openapi.fields import PATH, QUERY, REQUEST_HEADERS, RESPONSE_HEADERS
from headwater.http.table.openapi.schemas import SCHEMAS
from headwater.http.table.routes import Endpoint, Gives, Route, Takes
from headwater.http.wire.addresses import STREAM_SHAPE
from headwater.http.wire.codes import REFUSALS
from headwater.protocol import headers as h
from headwater.protocol.headers import Header, Use
from headwater.protocol.refusals import Code
from headwater.protocol.shapes import Shape as Schema

DESCRIPTION = (
    "Durable streams over plain HTTP. Every URL also answers OPTIONS, responses to browsers carry the headers that "
    "they need, and a valid `X-Request-Id` is echoed."
)

FLAT, BUCKETED, ALIAS, MANY, SERVER = (
    *("Streams", "Buckets and streams", "Buckets and streams, alias", "Many streams and the lake", "Server"),
)
TAGS = {
    FLAT: "The flat surface: any path is a stream, and buckets need not be created.",
    BUCKETED: "The canonical surface, with sub-resources of streams.",
    MANY: "For programs that read and write thousands of streams, such as a Spark job.",
    SERVER: "For people and operators.",
    ALIAS: "The canonical surface under another prefix.",
}
"""Groups of operations, and what they are for."""

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token, a ticket or a provider's JWT."},
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": "access_token",
        "description": "A ticket or a provider's JWT in the URL, for `EventSource`.",
    },
    "certificate": {"type": "mutualTLS", "description": "A client certificate that the access file names."},
}
"""How a client proves who it is, to a server with an access file."""

ALWAYS = frozenset(
    {
        *(Code.BAD_REQUEST, Code.INVALID_HEADER, Code.INVALID_NAME, Code.METHOD_NOT_ALLOWED, Code.REQUEST_TIMEOUT),
        *(Code.HOST_REFUSED, Code.ORIGIN_REFUSED, Code.UNAUTHORIZED, Code.TOKEN_EXPIRED, Code.FORBIDDEN),
        *(Code.PRODUCER_FORBIDDEN, Code.AUTH_UNAVAILABLE, Code.RATE_LIMITED, Code.LIVE_READS_TOO_MANY),
        *(Code.TOO_LARGE, Code.URI_TOO_LONG, Code.HEADERS_TOO_LARGE, Code.OVERLOADED, Code.DRAINING, Code.INTERNAL),
        *(Code.LOG_UNAVAILABLE, Code.OUTCOME_UNKNOWN),
    }
)
"""Refusals that any request may meet."""
NOT_BELOW_BUCKETS = frozenset({Code.NOT_IMPLEMENTED})
NOT_FLAT = frozenset({Code.BUCKET_NOT_FOUND})
"""Refusals that only some surfaces have."""

REFUSAL_HEADERS: dict[int, tuple[tuple[Header, ...], tuple[Header, ...]]] = {
    400: (
        (),
        (
            *(h.STREAM_INCARNATION, h.STREAM_NEXT_OFFSET, h.STREAM_RECORD_FIRST, h.STREAM_RECORD_NEXT),
            h.PRODUCER_EPOCH,
        ),
    ),
    403: ((h.PRODUCER_EPOCH,), (h.STREAM_INCARNATION,)),
    404: ((), (h.STREAM_INCARNATION, h.STREAM_NEXT_OFFSET)),
    405: ((h.ALLOW,), ()),
    409: (
        (),
        (
            *(h.STREAM_INCARNATION, h.STREAM_NEXT_OFFSET, h.STREAM_CLOSED),
            *(h.PRODUCER_EXPECTED_SEQ, h.PRODUCER_RECEIVED_SEQ),
        ),
    ),
    410: (
        (),
        (
            *(h.STREAM_INCARNATION, h.STREAM_NEXT_OFFSET, h.STREAM_EARLIEST_OFFSET),
            *(h.STREAM_RECORD_FIRST, h.STREAM_RECORD_NEXT),
        ),
    ),
    412: ((h.STREAM_INCARNATION, h.STREAM_NEXT_OFFSET), (h.STREAM_RECORD_NEXT, h.STREAM_CLOSED)),
    429: ((h.STREAM_INCARNATION, h.RETRY_AFTER), ()),
    503: ((h.RETRY_AFTER,), ()),
}
"""Headers of refusals by status: those that are always there, and those that may be."""


def encode(endpoints: Sequence[Endpoint]) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document(endpoints))


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document for an endpoint table."""
    paths: dict[str, dict[str, Any]] = {}
    for mount in mounts(endpoints):
        paths[mount.template] = {"parameters": [_reference("parameters", f"path.{name}") for name in mount.parameters]}
        for method, route in mount.endpoint.routes.items():
            paths[mount.template][method.decode().lower()] = _operation(mount, method, route)
    routes = [route for endpoint in endpoints for route in endpoint.routes.values()]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": __version__,
            "summary": "Durable streams: append-only timelines addressed by URL.",
            "description": DESCRIPTION,
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "parameters": dict(_parameters(routes)),
            "headers": dict(_response_headers(routes)),
            "responses": {str(status): _refused(status) for status in sorted(_CODES)},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


# -- Mounts ------------------------------------------------------------------------------------------------------------


class Mount(NamedTuple):
    """An endpoint on a surface: the template of its URL, and the prefix that keeps its operations' ids unique."""

    endpoint: Endpoint
    surface: str
    template: str
    parameters: tuple[str, ...]


def mounts(endpoints: Sequence[Endpoint]) -> Iterator[Mount]:
    """Every endpoint on every surface that reaches it."""
    for surface, prefix in (("", ""), ("ds_", "/ds")):
        for one in endpoints:
            if one.has_surfaces:
                yield Mount(one, surface, prefix + one.path, one.parameters)
    for one in endpoints:
        if one.shape == STREAM_SHAPE:
            yield Mount(one, "flat_", "/v1/stream/{path}", ("path",))
        elif not one.has_surfaces:
            yield Mount(one, "", one.path, one.parameters)


# -- Operations --------------------------------------------------------------------------------------------------------


def _operation(mount: Mount, method: bytes, route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": f"{mount.surface}{method.decode().lower()}_{mount.endpoint.operation}",
        "summary": route.summary,
        "tags": [_tag(mount)],
        "responses": dict(_responses(mount, route, bodiless=method == b"HEAD")),
    }
    parameters = [f"query.{name}" for name in route.query]
    parameters += [f"header.{header.name}" for header in route.headers]
    if route.action is not Action.NONE:
        # Without a credential a request is anonymous, which may be enough.
        described["security"] = [{}, {"bearer": []}, {"certificate": []}]
        if method in (b"GET", b"HEAD"):
            described["security"].append({"ticket": []})
        described["x-headwater-action"] = route.action.word
    if parameters:
        described["parameters"] = [_reference("parameters", name) for name in parameters]
    if route.takes is not None:
        described["requestBody"] = _body(route.takes)
    return described


def _tag(mount: Mount) -> str:
    if mount.surface:
        return FLAT if mount.surface == "flat_" else ALIAS
    if mount.endpoint.has_surfaces:
        return BUCKETED
    actions = {route.action for route in mount.endpoint.routes.values()}
    return MANY if actions & {Action.PIPELINE, Action.ADMIN, Action.READ} else SERVER


def _responses(mount: Mount, route: Route, *, bodiless: bool) -> Iterator[tuple[str, Schema]]:
    for status, gives in route.gives.items():
        yield str(status), _given(gives, bodiless=bodiless)
    codes = {*route.refuses, *ALWAYS, *NOT_BELOW_BUCKETS}
    if mount.surface == "flat_":
        codes -= NOT_FLAT
    elif mount.endpoint.has_surfaces:
        codes -= NOT_BELOW_BUCKETS
    for status, all_codes in _CODES.items():
        possible = [code for code in all_codes if code in codes]
        if possible:
            yield str(status), _reference("responses", str(status)) | {"description": ", ".join(possible)}


def _given(gives: Gives, *, bodiless: bool) -> Schema:
    response: Schema = {"description": gives.meaning}
    if gives.headers or gives.maybe:
        response["headers"] = _headers(gives.headers, gives.maybe)
    if gives.content and not bodiless:
        response["content"] = _content(gives.content, {})
    return response


def _headers(always: Sequence[Header], maybe: Sequence[Header]) -> Schema:
    required = {header.name: _reference("headers", f"required.{header.name}") for header in always}
    return required | {header.name: _reference("headers", header.name) for header in maybe}


def _body(takes: Takes) -> Schema:
    return {"required": takes.required, "content": _content(takes.content, takes.examples)}


def _content(schemas: Mapping[str, str], examples: Mapping[str, Any]) -> Schema:
    content: Schema = {media_type: {"schema": _reference("schemas", name)} for media_type, name in schemas.items()}
    for media_type, example in examples.items():
        content[media_type]["example"] = example
    return content


# -- Components --------------------------------------------------------------------------------------------------------


def _codes_by_status() -> dict[int, list[Code]]:
    codes: dict[int, list[Code]] = {}
    for code in Code:
        codes.setdefault(REFUSALS[code][0], []).append(code)
    return dict(sorted(codes.items()))


_CODES = _codes_by_status()


def _refused(status: int) -> Schema:
    always, maybe = REFUSAL_HEADERS.get(status, ((), ()))
    return {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(_CODES[status])}",
        "headers": _headers((h.CACHE_CONTROL, *always), maybe),
        "content": {"application/problem+json": {"schema": _reference("schemas", "Problem")}},
    }


def _parameters(routes: Sequence[Route]) -> Iterator[tuple[str, Schema]]:
    for name, use in PATH.items():
        yield f"path.{name}", {"name": name, "in": "path", "required": True} | _described(use)
    for name, use in QUERY.items():
        yield f"query.{name}", {"name": name, "in": "query"} | _described(use)
    used = {header.name for route in routes for header in route.headers}
    for name, use in REQUEST_HEADERS.items():
        if name in used:
            yield f"header.{name}", {"name": name, "in": "header"} | _described(use)


def _response_headers(routes: Sequence[Route]) -> Iterator[tuple[str, Schema]]:
    """Each header that is used, twice: a reference cannot add that a header is required."""
    used = {name for always, maybe in REFUSAL_HEADERS.values() for name in (*always, *maybe)}
    used |= {name for route in routes for gives in route.gives.values() for name in (*gives.headers, *gives.maybe)}
    for header in h.TABLE:
        if header in used:
            use = RESPONSE_HEADERS.get(header.name, _PLAIN)
            yield header.name, _described(use)
            yield f"required.{header.name}", _described(use) | {"required": True}


_PLAIN = Use({"type": "string"}, "As HTTP defines it.")


def _described(use: Use) -> Schema:
    return {"description": use.meaning, "schema": use.shape}


def _reference(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}
