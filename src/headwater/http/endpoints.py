"""The URL table: every resource, its methods, and what each does. Paths are in `addresses`.

{bucket}                                   PUT make | GET look | DELETE drop
{bucket}/streams                           GET list
{stream}                                   PUT create, fork | POST append, close | GET read | HEAD | DELETE
{stream}/append-batch                      POST several appends at once
{stream}/attrs                             PUT replace | GET
{stream}/snapshot, {stream}/snapshot/{n}   PUT publish | GET the latest, one | HEAD | DELETE
{stream}/retention/{n}                     PUT let go of what is before
{stream}/bootstrap                         GET snapshot and everything after it
/__headwater/flush                         POST put everything acknowledged into the lake
/__headwater/describe, locate              POST what many streams are | where records begin
/__headwater/scan                          POST ranges of many streams, as Arrow
/__headwater/append                        POST appends to many streams, as Arrow
/__headwater/swap                          POST put rewritten segments in the place of others
/__headwater/readers, readers/{name}       GET | PUT how far a reader of the lake has come | DELETE
/__headwater/status                        GET what the server is and how it does
/healthz, /readyz, /metrics                GET alive | ready | counters for Prometheus
/openapi.json, /openapi                    GET this table for machines, for people
every URL                                  OPTIONS: what a browser may send
"""

from collections.abc import Callable
from functools import lru_cache

from headwater.http import addresses
from headwater.http.addresses import Address, Resource
from headwater.http.api import batches as batch_routes
from headwater.http.api import buckets as bucket_routes
from headwater.http.api import bulk as bulk_routes
from headwater.http.api import lake as admin_routes
from headwater.http.api import operate as health_routes
from headwater.http.api import scans as scan_routes
from headwater.http.api import snapshots as snapshot_routes
from headwater.http.api import streams as stream_routes
from headwater.http.api import swaps as swap_routes
from headwater.http.exchange import Exchange
from headwater.http.openapi import document as openapi
from headwater.http.wire import rendering
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol.limits import APPEND_BYTES_MAX, BATCH_BYTES_MAX, BULK_BYTES_MAX, MIB, SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

Handler = Callable[[Request, Address, Exchange], None]

ROUTES: dict[Resource, dict[bytes, Handler]] = {
    Resource.BUCKET: {
        b"PUT": bucket_routes.make,
        b"GET": bucket_routes.look,
        b"HEAD": bucket_routes.look,
        b"DELETE": bucket_routes.drop,
    },
    Resource.LISTING: {b"GET": bucket_routes.listing, b"HEAD": bucket_routes.listing},
    Resource.STREAM: {
        b"GET": stream_routes.read,
        b"HEAD": stream_routes.head,
        b"POST": stream_routes.append,
        b"PUT": stream_routes.create,
        b"DELETE": stream_routes.delete,
    },
    Resource.BATCH: {b"POST": batch_routes.append_batch},
    Resource.ATTRS: {b"PUT": batch_routes.set_attrs, b"GET": batch_routes.get_attrs, b"HEAD": batch_routes.get_attrs},
    Resource.SNAPSHOT: {
        b"PUT": snapshot_routes.publish,
        b"GET": snapshot_routes.read,
        b"HEAD": snapshot_routes.read,
        b"DELETE": snapshot_routes.delete,
    },
    Resource.RETENTION: {b"PUT": snapshot_routes.retain},
    Resource.BOOTSTRAP: {b"GET": snapshot_routes.bootstrap},
    Resource.HEALTH: {b"GET": health_routes.alive, b"HEAD": health_routes.alive},
    Resource.READY: {b"GET": health_routes.ready, b"HEAD": health_routes.ready},
    Resource.METRICS: {b"GET": health_routes.metrics, b"HEAD": health_routes.metrics},
    Resource.STATUS: {b"GET": health_routes.status, b"HEAD": health_routes.status},
    Resource.FLUSH: {b"POST": admin_routes.flush},
    Resource.DESCRIBE: {b"POST": scan_routes.describe},
    Resource.LOCATE: {b"POST": scan_routes.locate},
    Resource.SCAN: {b"POST": scan_routes.scan},
    Resource.BULK_APPEND: {b"POST": bulk_routes.append},
    Resource.SWAP: {b"POST": swap_routes.swap},
    Resource.READERS: {b"GET": admin_routes.readers, b"HEAD": admin_routes.readers},
    Resource.READER: {
        b"GET": admin_routes.readers,
        b"HEAD": admin_routes.readers,
        b"PUT": admin_routes.register,
        b"DELETE": admin_routes.forget,
    },
}


_OPERATING = frozenset({Resource.HEALTH, Resource.READY, Resource.METRICS})


def dispatch(request: Request, exchange: Exchange) -> None:
    """Find the row for a request and run it, now or when its turn has come."""
    if request.method == b"OPTIONS":
        exchange.answer(Answer(204, rendering.PREFLIGHT_LINES))
        return
    if request.path in (openapi.PATH_OF_DOCUMENT, openapi.PATH_OF_PAGE):
        openapi.serve(exchange, ROUTES)
        return
    row = _find(request.method, request.path)
    if isinstance(row, Refusal):
        exchange.reply(row)
        return
    handler, address, exchange.route = row
    if not address.flat:
        exchange.voice = exchange.connection.server.plain_voice
    handler(request, address, exchange)


@lru_cache(maxsize=4_096)
def _find(method: bytes, path: bytes) -> tuple[Handler, Address, str] | Refusal:
    address = addresses.parse(path)
    if isinstance(address, Refusal):
        return address
    methods = ROUTES[address.resource]
    handler = methods.get(method)
    if handler is not None:
        return handler, address, f"{method.decode()} {address.resource.value}"
    if address.resource is Resource.LISTING and method == b"PUT":
        return Refusal(Code.INVALID_NAME, "The stream name 'streams' is reserved for the bucket's listing.")
    if address.resource in _OPERATING and method in (b"PUT", b"DELETE"):
        return Refusal(Code.INVALID_NAME, f"The bucket name {address.resource.value!r} is reserved.")
    allow = ", ".join(method.decode() for method in methods) + ", OPTIONS"
    detail = f"{method.decode('latin-1')} is not a method of this resource."
    return Refusal(Code.METHOD_NOT_ALLOWED, detail, allow=allow)


RANGES_BYTES_MAX = 32 * MIB
"""A hundred thousand names of the greatest length, with three of the largest numbers each, take 19 MiB of JSON."""

BODY_BYTES_MAX = {
    Resource.BATCH: BATCH_BYTES_MAX,
    Resource.SNAPSHOT: SNAPSHOT_BYTES_MAX,
    Resource.BULK_APPEND: BULK_BYTES_MAX,
    Resource.DESCRIBE: RANGES_BYTES_MAX,
    Resource.LOCATE: RANGES_BYTES_MAX,
    Resource.SCAN: RANGES_BYTES_MAX,
}


def body_bytes_max(path: bytes) -> int:
    """How large the body of a request to this path may be."""
    address = addresses.parse(path)
    return APPEND_BYTES_MAX if isinstance(address, Refusal) else BODY_BYTES_MAX.get(address.resource, APPEND_BYTES_MAX)


def wants_upload(method: bytes, path: bytes) -> bool:
    """Whether the body goes to a blob as it arrives."""
    address = addresses.parse(path)
    return method == b"PUT" and not isinstance(address, Refusal) and address.resource is Resource.SNAPSHOT
