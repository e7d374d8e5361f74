"""The cluster: what this node knows of it, checkpoints to compare replicas, and leaving it."""

import os
import secrets
import signal
from functools import partial

import msgspec

from headwater.http.exchange.exchange import READ, WRITE, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES, NO_STORE_LINE
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.cluster.rescue import ImageTaken, take_image
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.cluster.view import ClusterView, view
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.cluster import Checkpoint
from headwater.streams.commands.command import ROWS
from headwater.streams.replies import Reply

ALONE = "This server is not a node of a cluster; start it with --cluster."


def show(request: Request, address: Address, exchange: Exchange) -> None:
    """The cluster as this node sees it; also while the log is away."""
    exchange.run_at_once(READ, _show, exchange)


def _show(exchange: Exchange) -> None:
    shard = _shard(exchange)
    if shard is not None:
        exchange.await_task(view(shard), partial(_answer, exchange))


def _answer(exchange: Exchange, seen: ClusterView) -> None:
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(seen)))


def checkpoint(request: Request, address: Address, exchange: Exchange) -> None:
    """Have every node hash its state at one position."""
    shard = _shard(exchange)
    if shard is None:
        return
    level = ROWS[Checkpoint].level
    if shard.state.cluster.level < level:
        detail = (
            f"A checkpoint needs level {level}, but the cluster has {shard.state.cluster.level}; upgrade all nodes."
        )
        exchange.refuse(Code.NOT_IMPLEMENTED, detail)
        return
    command = Checkpoint(secrets.token_hex(8))
    exchange.run(WRITE, shard.submit, command, partial(_decided, exchange, shard, command))


def _decided(exchange: Exchange, shard: SharedShard, command: Checkpoint, reply: Reply) -> None:
    if isinstance(reply, Refusal):
        exchange.reply(reply)
    else:
        exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode({"id": command.id})))


def image(request: Request, address: Address, exchange: Exchange) -> None:
    """Have this node store an image of what it has applied; also while the log is away."""
    exchange.run_at_once(READ, _image, exchange)


def _image(exchange: Exchange) -> None:
    shard = _shard(exchange)
    if shard is not None:
        exchange.await_task(take_image(shard), partial(_taken, exchange))


def _taken(exchange: Exchange, taken: ImageTaken) -> None:
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(taken)))


def drain(request: Request, address: Address, exchange: Exchange) -> None:
    """Have this node finish its requests, leave the cluster and end, as SIGTERM does."""
    if _shard(exchange) is not None:
        exchange.answer(Answer(202, NO_STORE_LINE))
        # One of several workers is not drained alone: its supervisor would start it again.
        os.kill(os.getpid() if exchange.context.together is None else os.getppid(), signal.SIGTERM)


def _shard(exchange: Exchange) -> SharedShard | None:
    """The shard of a node in a cluster; refuses for any other."""
    shard = exchange.node.only
    if isinstance(shard, SharedShard) and shard.membership is not None:
        return shard
    exchange.refuse(Code.NOT_IMPLEMENTED, ALONE)
    return None
