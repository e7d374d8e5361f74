"""For operators: alive, ready, status, and the metrics in the text format of Prometheus."""

from functools import partial
from typing import Any

import msgspec

from headwater.http.api.metrics import collect
from headwater.http.api.status import describe
from headwater.http.exchange.exchange import READ, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import CONTENT_TYPE, JSON_LINES, NO_STORE_LINE, TEXT_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.prometheus import Metric, render
from headwater.protocol.refusals import Code

METRICS_LINES = f"{CONTENT_TYPE}text/plain; version=0.0.4; charset=utf-8\r\n{NO_STORE_LINE}"


def alive(request: Request, address: Address, exchange: Exchange) -> None:
    """The process runs and its event loop turns."""
    exchange.answer(Answer(200, TEXT_LINES, b"ok\n"))


def ready(request: Request, address: Address, exchange: Exchange) -> None:
    """Whether to send requests here: not while the server shuts down, or its log is away."""
    if exchange.context.draining:
        exchange.refuse(Code.DRAINING, "The server is shutting down; try again in a second, or use another server.")
    elif (outage := exchange.node.outage) is not None:
        exchange.refuse(Code.LOG_UNAVAILABLE, outage)
    else:
        exchange.answer(Answer(200, TEXT_LINES, b"ready\n"))


def status(request: Request, address: Address, exchange: Exchange) -> None:
    """Version, health and usage of the server, for people and scripts."""
    exchange.run_at_once(READ, _status, exchange)  # Also while the log is away.


def _status(exchange: Exchange) -> None:
    together = exchange.context.together
    if together is None:
        _answer_status(exchange, describe(exchange.context))
    else:
        exchange.await_task(together.status(), partial(_answer_status, exchange))


def _answer_status(exchange: Exchange, status: dict[str, Any]) -> None:
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(status)))


def metrics(request: Request, address: Address, exchange: Exchange) -> None:
    """All metrics."""
    exchange.run_at_once(READ, _metrics, exchange)


def _metrics(exchange: Exchange) -> None:
    together = exchange.context.together
    if together is None:
        _answer_metrics(exchange, collect(exchange.context))
    else:
        exchange.await_task(together.metrics(), partial(_answer_metrics, exchange))


def _answer_metrics(exchange: Exchange, every: list[Metric]) -> None:
    exchange.answer(Answer(200, METRICS_LINES, render(every).encode()))
