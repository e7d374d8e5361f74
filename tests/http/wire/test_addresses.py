"""Every way to write a path: what is reserved stays reserved, and what is not UTF-8 is the client's mistake."""

from collections.abc import Iterator
from itertools import product

import pytest

from headwater.http.table.endpoints import ENDPOINTS, ROUTER
from headwater.http.table.routes import Endpoint
from headwater.settings import SettingsError, load
from headwater.testing import running_server

from ..sockets import Wire, refused, request

SURFACES = ["/", "/ds/"]
OWN = [endpoint for endpoint in ENDPOINTS if endpoint.path.startswith("/__headwater/")]
FIXED = [endpoint for endpoint in ENDPOINTS if endpoint.path.count("/") == 1 and not endpoint.parameters]
METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"]


def encode(text: str, *, only: int | None = None, lower: bool = False) -> str:
    """Percent-encode all characters, or the one at an index."""
    codes = [f"%{ord(one):02x}" if lower else f"%{ord(one):02X}" for one in text]
    return "".join(code if only in (None, at) else text[at] for at, code in enumerate(codes))


def encodings(text: str) -> Iterator[str]:
    """Ways to write a segment that mean the same after decoding."""
    yield encode(text)
    yield encode(text, lower=True)
    for at in range(len(text)):
        yield encode(text, only=at, lower=True)


def encoded_own_paths() -> Iterator[str]:
    """Paths of the server itself, written in a way that a proxy with a rule for `/__headwater/` would let pass."""
    for endpoint in OWN:
        rest = endpoint.path.removeprefix("/__headwater/").replace("{consumer}", "nightly")
        yield f"/ds/__headwater/{rest}"
        for prefix, name in product(SURFACES, encodings("__headwater")):
            yield f"{prefix}{name}/{rest}"
        yield from (f"//__headwater/{rest}", f"/./__headwater/{rest}", f"/ds/../__headwater/{rest}")
        yield from (f"/ds//__headwater/{rest}", f"/ds/ds/__headwater/{rest}", f"/__HEADWATER/{rest}")
        yield from (f"/__headwater%2F{rest}", f"/ds%2f__headwater/{rest}", f"/%64s/__headwater/{rest}")
        name, slash, more = rest.partition("/")
        yield from (f"/__headwater/{other}{slash}{more}" for other in encodings(name))


def encoded_fixed_paths() -> Iterator[str]:
    """Other paths of the server, on a surface of streams or encoded."""
    for endpoint in FIXED:
        name = endpoint.path[1:]
        if name:
            yield f"/ds/{name}"
            yield f"/ds/{name}/x"
            yield f"/{name}/"
            yield f"/{name}/x"
            yield from (f"{prefix}{other}" for prefix, other in product(SURFACES, encodings(name)))


@pytest.mark.parametrize("paths", [encoded_own_paths, encoded_fixed_paths], ids=["own", "fixed"])
@pytest.mark.parametrize("method", METHODS)
def test_a_reserved_name_is_refused_however_it_is_written(wire: Wire, method: str, paths: object) -> None:
    assert callable(paths)
    tried = list(paths())
    assert len(tried) > 20
    for path in tried:
        response = wire.ask(method, path)
        if method == "HEAD":
            assert response.status == 400, path
        else:
            refused(response, 400, "invalid_name")


def test_the_flat_surface_never_reaches_the_server_itself(wire: Wire) -> None:
    for endpoint in OWN:
        rest = endpoint.path.removeprefix("/__headwater/").replace("{consumer}", "nightly")
        for name in ("__headwater", *encodings("__headwater")):
            refused(wire.ask("GET", f"/v1/stream/{name}/{rest}"), 404, "stream_not_found")


def test_the_router_finds_reserved_paths_only_as_they_are_in_the_table() -> None:
    for path in (*encoded_own_paths(), *encoded_fixed_paths()):
        for method in METHODS:
            found = ROUTER.find(method.encode(), path.encode())
            assert not hasattr(found, "route"), path


# -- Bytes that are not UTF-8 ------------------------------------------------------------------------------------------


def filled(endpoint: Endpoint, bad: str = "", with_bad: str = "") -> str:
    """The path of an endpoint with its parameters filled in, one of them badly."""
    path = endpoint.path
    for name in endpoint.parameters:
        path = path.replace(f"{{{name}}}", with_bad if name == bad else "some")
    return path


NOT_UTF_8 = ["%ff", "a%C3", "%ed%a0%80"]


@pytest.mark.parametrize("text", NOT_UTF_8)
def test_a_path_that_is_not_utf_8_is_refused(wire: Wire, text: str) -> None:
    for endpoint in ENDPOINTS:
        for prefix, method, bad in product(["", "/ds"], endpoint.routes, endpoint.parameters):
            if prefix and not endpoint.has_surfaces:
                continue
            wire.send(request(method.decode(), prefix + filled(endpoint, bad, text), body=b""))
            response = wire.receive(bodiless=method == b"HEAD")
            assert response.status == 400, (method, endpoint.path, bad, response.body)
    for flat_method in METHODS:
        assert wire.ask(flat_method, f"/v1/stream/{text}", body=b"").status == 400


@pytest.mark.parametrize("text", NOT_UTF_8)
def test_a_parameter_that_is_not_utf_8_is_refused(wire: Wire, text: str) -> None:
    assert wire.ask("PUT", "/some-bucket").status in (201, 409)
    for endpoint in ENDPOINTS:
        for method, route in endpoint.routes.items():
            path = filled(endpoint).replace("/some", "/some-bucket", 1) if endpoint.has_surfaces else filled(endpoint)
            for name in route.query:
                response = wire.ask(method.decode(), f"{path}?{name}={text}", body=b"")
                assert response.status == 400, (method, path, name, response.status, response.body)


@pytest.mark.parametrize("text", [*NOT_UTF_8, "\xff", "a\xe9"])
def test_a_header_that_is_not_utf_8_never_breaks_the_server(wire: Wire, text: str) -> None:
    wire.ask("PUT", "/some-bucket")
    for endpoint in ENDPOINTS:
        for method, route in endpoint.routes.items():
            path = filled(endpoint).replace("/some", "/some-bucket", 1) if endpoint.has_surfaces else filled(endpoint)
            for header in route.headers:
                wire.send(request(method.decode(), path, {header.name: text}, b""))
                response = wire.receive(bodiless=method == b"HEAD")
                assert response.status < 500, (method, path, header.name, response.body)


def test_streams_are_found_below_the_plural_and_below_every_mount() -> None:
    with running_server("--memory", "--mount", "/api/streams", "--mount", "/live") as server, Wire(server.url) as wire:
        text = {"Content-Type": "text/plain"}
        assert wire.ask("PUT", "/v1/streams/notes", text, b"hello").status == 201
        for prefix in ("/v1/stream", "/v1/streams", "/api/streams", "/live"):
            found = wire.ask("GET", f"{prefix}/notes")
            assert (found.status, found.body) == (200, b"hello")
            assert found.headers["stream-next-offset"] == "0000000000000000_0000000000000050"
            fork = {"Stream-Forked-From": f"{prefix}/notes"}
            made = wire.ask("PUT", f"{prefix}/forks{prefix.replace('/', '-')}", fork)
            assert made.status == 201
            assert f"{prefix}/forks" in made.headers["location"]
        assert wire.ask("PUT", "/live/__ds/x", text).status == 501
        assert wire.ask("GET", "/other/notes").status == 404


@pytest.mark.parametrize(
    "mount", ["api", "/", "/api/", "/ds", "/ds/x", "/__headwater", "/a/../b", "/a b", "/a?b", "//a"]
)
def test_a_path_that_cannot_be_mounted_is_named(mount: str) -> None:
    with pytest.raises(SettingsError, match="cannot be mounted"):
        load({"mount": mount}, environment={})
