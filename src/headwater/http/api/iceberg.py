"""A read-only Iceberg REST catalog: which tables the lake has, and the metadata of each.

Every request reads the store, so any server of a lake can answer it. Tables are read with the credentials that the
client has for the store; none are given out here. Errors have the form that the REST specification asks for.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

from headwater.http.exchange.exchange import READ, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES, NO_STORE_LINE
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.lake.iceberg.reading import read_newest
from headwater.lake.iceberg.tables import NAMESPACE, TABLES, table_url
from headwater.storage.store import KeyMissing, Store, StoreFailed

T = TypeVar("T")

log = logging.getLogger(__name__)

_TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
SUPPORTED = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_TABLE}/metrics",
)
"""What `config` says that this catalog can do."""


class _Found(msgspec.Struct, frozen=True, rename="kebab"):
    """The answer to the load of a table."""

    metadata_location: str
    metadata: msgspec.Raw
    config: dict[str, str] = {}


def config(request: Request, address: Address, exchange: Exchange) -> None:
    """What a client needs to know first: nothing but what the catalog can do."""
    _answer(exchange, {"defaults": {}, "overrides": {}, "endpoints": SUPPORTED})


def namespaces(request: Request, address: Address, exchange: Exchange) -> None:
    """The only namespace; it has no namespaces in it."""
    _answer(exchange, {"namespaces": [] if b"parent" in parse_qs(request.query) else [[NAMESPACE]]})


def namespace(request: Request, address: Address, exchange: Exchange) -> None:
    """The properties of a namespace, of which there are none."""
    if address.argument != NAMESPACE:
        _no_namespace(exchange, address.argument or "")
    elif request.method == b"HEAD":
        exchange.answer(Answer(204, NO_STORE_LINE))
    else:
        _answer(exchange, {"namespace": [NAMESPACE], "properties": {}})


def tables(request: Request, address: Address, exchange: Exchange) -> None:
    """The tables that the lake has."""
    if address.argument != NAMESPACE:
        _no_namespace(exchange, address.argument or "")
        return
    _with_store(exchange, _existing, partial(_give_names, exchange))


def _existing(store: Store) -> list[str]:
    return [name for name in TABLES if read_newest(store, name) is not None]


def _give_names(exchange: Exchange, names: list[str]) -> None:
    _answer(exchange, {"identifiers": [{"namespace": [NAMESPACE], "name": name} for name in names]})


def table(request: Request, address: Address, exchange: Exchange) -> None:
    """The current metadata of a table, or, for HEAD, whether there is one."""
    name = _named(address, exchange)
    if name is not None:
        _with_store(exchange, partial(read_newest, table=name), partial(_give_table, request, exchange, name))


def _give_table(request: Request, exchange: Exchange, name: str, found: tuple[str, bytes] | None) -> None:
    store = _store(exchange)
    if found is None or store is None:
        _no_table(exchange, name)
    elif request.method == b"HEAD":
        exchange.answer(Answer(204, NO_STORE_LINE))
    else:
        _answer(exchange, _Found(f"{table_url(store.url)}/{found[0]}", msgspec.Raw(found[1])))


def metrics(request: Request, address: Address, exchange: Exchange) -> None:
    """Accept the report of a scan, which nothing is done with."""
    if _named(address, exchange) is not None:
        exchange.answer(Answer(204, NO_STORE_LINE))


def refuse_write(request: Request, address: Address, exchange: Exchange) -> None:
    """Refuse to change anything: only the server writes the lake's tables."""
    detail = "The lake's tables are written by its server only; append to streams instead."
    _error(exchange, 406, "UnsupportedOperationException", detail)


# -- Answers -----------------------------------------------------------------------------------------------------------


def _named(address: Address, exchange: Exchange) -> str | None:
    """The table that the URL names; answers if there cannot be one."""
    space, _, name = (address.argument or "").partition("/")
    if space == NAMESPACE and name in TABLES:
        return name
    # Also where there is no such namespace: Spark then looks for a table of metadata, such as `messages.snapshots`.
    _no_table(exchange, name)
    return None


def _no_namespace(exchange: Exchange, name: str) -> None:
    _error(exchange, 404, "NoSuchNamespaceException", f"There is no namespace {name!r}; the only one is {NAMESPACE!r}.")


def _no_table(exchange: Exchange, name: str) -> None:
    detail = f"There is no table {name!r}; tables exist once something has been flushed to the lake."
    _error(exchange, 404, "NoSuchTableException", detail)


def _store(exchange: Exchange) -> Store | None:
    lake = exchange.node.only.lake
    return None if lake is None else lake.store


def _with_store(exchange: Exchange, work: Callable[[Store], T], then: Callable[[T], None]) -> None:
    """Read from the lake's store in a thread, and continue with what was found."""
    store = _store(exchange)
    if store is None:
        _error(exchange, 404, "NoSuchTableException", "This server keeps nothing on disk, so it has no lake.")
    else:
        exchange.run(READ, _read, exchange, partial(_outcome, store, work), then)


def _read(exchange: Exchange, work: Callable[[], T | str], then: Callable[[T], None]) -> None:
    def give(outcome: T | str) -> None:
        if isinstance(outcome, str):
            _error(exchange, 503, "ServiceUnavailableException", outcome)
        else:
            then(outcome)

    exchange.work_beside(work, give)


def _outcome(store: Store, work: Callable[[Store], T]) -> T | str:
    try:
        return work(store)
    except (StoreFailed, KeyMissing) as error:
        log.error("the lake's tables cannot be read: %s", error)
        return "The lake cannot be read at the moment; try again in a second."


def _answer(exchange: Exchange, body: object, status: int = 200) -> None:
    exchange.answer(Answer(status, JSON_LINES, msgspec.json.encode(body)))


def _error(exchange: Exchange, status: int, kind: str, message: str) -> None:
    _answer(exchange, {"error": {"message": message, "type": kind, "code": status}}, status)
