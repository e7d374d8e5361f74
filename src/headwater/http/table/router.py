"""The router: finds the route for a method and a path, or says why there is none."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.table.routes import Endpoint, Handler, Route
from headwater.http.wire import addresses
from headwater.http.wire.addresses import ICEBERG, LISTING, OWN, Address
from headwater.http.wire.requests import CACHED_BYTES_MAX
from headwater.http.wire.statuses import Dialect
from headwater.protocol.refusals import Code, Refusal

FOUND_MAX = 4_096
RESERVED = frozenset({"console", ICEBERG})
"""Bucket names kept free for endpoints of later versions, and for those with longer paths."""
OPERATING = frozenset({Action.OBSERVE, Action.ADMIN})
"""What operators do, if they have a listener of their own."""
EVERYTHING = frozenset(Action)
FOR_CLIENTS = EVERYTHING - OPERATING
FOR_OPERATORS = OPERATING | {Action.NONE}


class Found(msgspec.Struct, eq=False):
    """A route, and what the path names."""

    run: Handler
    address: Address
    label: str
    """The method and the endpoint, for the metrics."""
    route: Route
    judged: str | None
    """The canonical name by which a request is judged; None if its handler judges the names."""
    admitted: Identity | None = None
    admitted_dialect: Dialect | None = None
    """Who was admitted here the last time, and how they are answered."""


class Router:
    """Derived from the endpoint table once; what it has found is cached."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        flat: tuple[bytes, ...] = addresses.FLAT_PREFIXES,
        *,
        allowed: frozenset[Action] = EVERYTHING,
    ) -> None:
        """Routes with other actions than the allowed ones do not exist for this router."""
        self.endpoints = tuple(endpoints)
        self._flat = flat
        self._allowed = allowed
        self._fixed = {one.path.encode(): one for one in endpoints if not one.parameters}
        self._by_shape = {one.shape: one for one in endpoints if one.parameters}
        fixed = {one.path[1:] for one in endpoints if not one.parameters}
        self.reserved_buckets = RESERVED | {name for name in fixed if addresses.is_bucket(name)}
        self.find_cached: Callable[[bytes, bytes], Found | Refusal] = lru_cache(maxsize=FOUND_MAX)(self._find)
        """As `find`, for paths of at most CACHED_BYTES_MAX bytes."""

    def find(self, method: bytes, path: bytes) -> Found | Refusal:
        """The route for a method and a path, or why there is none."""
        return self.find_cached(method, path) if len(path) <= CACHED_BYTES_MAX else self._find(method, path)

    def _find(self, method: bytes, path: bytes) -> Found | Refusal:
        endpoint: Endpoint | None
        path = addresses.current(path)
        if (endpoint := self._fixed.get(path)) is not None:
            address = Address(endpoint.shape, OWN)
        else:
            parsed = addresses.parse(path, self.reserved_buckets, self._flat)
            if isinstance(parsed, Refusal):
                return parsed
            address, endpoint = parsed, self._by_shape.get(parsed.shape)
            if endpoint is None:
                return self._refuse_path(address)
        if not self._serves(endpoint):
            return Refusal(Code.NOT_FOUND, "There is nothing at this URL on this listener.")
        route = endpoint.routes.get(method)
        if route is None or not self._has(route):
            return self._refuse_method(method, endpoint)
        # Of a bucket, only a grant for all of it counts.
        name = f"{address.name}/" if endpoint.path == "/{bucket}" else address.name
        judged = None if route.names_inside else name
        return Found(route.run, address, f"{method.decode()} {endpoint.label}", route, judged)

    def _refuse_path(self, address: Address) -> Refusal:
        if address.name == OWN:
            own = [one for one in self.endpoints if one.path.startswith(f"/{OWN}/")]
            below = sorted({one.path.split("/")[2] for one in own if self._serves(one)})
            detail = f"There is nothing at this URL; below /{OWN} there are {', '.join(below)}."
            return Refusal(Code.NOT_FOUND, detail)
        return Refusal(Code.NOT_FOUND, "There is nothing at this URL: a stream has no such sub-resource.")

    def _serves(self, endpoint: Endpoint) -> bool:
        return any(map(self._has, endpoint.routes.values()))

    def _has(self, route: Route) -> bool:
        return route.action in self._allowed or (route.for_jobs and Action.PIPELINE in self._allowed)

    def _refuse_method(self, method: bytes, endpoint: Endpoint) -> Refusal:
        name = endpoint.path.rpartition("/")[2]
        if endpoint.path == f"/{{bucket}}/{LISTING}" and method == b"PUT":
            return Refusal(Code.INVALID_NAME, f"The stream name {name!r} is reserved for the bucket's listing.")
        if name in self.reserved_buckets and endpoint.path == f"/{name}" and method in (b"PUT", b"DELETE"):
            return Refusal(Code.INVALID_NAME, f"The bucket name {name!r} is reserved.")
        served = [one for one, route in endpoint.routes.items() if self._has(route)]
        allow = ", ".join(one.decode() for one in (*served, b"OPTIONS"))
        detail = f"This URL does not support {method.decode('latin-1')}; use one of {allow}."
        return Refusal(Code.METHOD_NOT_ALLOWED, detail, allow=allow)
