"""Creations in a request about many streams: each is charged and recorded as if it had a request of its own."""

from functools import partial

from headwater.access.allowances import Exceeded
from headwater.access.audit import Event
from headwater.http.api.streams import submitter
from headwater.http.exchange.auditing import record_change
from headwater.http.exchange.exchange import Exchange
from headwater.http.guard.accounts import refuse
from headwater.node.committer import Done, Submit
from headwater.protocol.refusals import Refusal
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Create
from headwater.streams.replies import Created, Reply

_STATUS = 201


def submitter_of_many(exchange: Exchange) -> Submit:
    """Submits the appends and creations of a request about many streams that limits and quotas allow."""
    return partial(_submit, exchange, submitter(exchange))


def _submit(exchange: Exchange, submit: Submit, command: Command, done: Done) -> None:
    if not isinstance(command, Create):
        submit(command, done)
        return
    refusal = _charge(exchange)
    if refusal is not None:
        done(refusal)
    elif exchange.context.audit is None:
        submit(command, done)
    else:
        submit(command, partial(_created, exchange, command.name, done))


def _charge(exchange: Exchange) -> Refusal | None:
    if exchange.account is None:
        return None
    outcome = exchange.account.creates.take(1)
    if not isinstance(outcome, Exceeded):
        return None
    if exchange.context.guard is not None:
        exchange.context.guard.limited += 1
    return refuse(outcome)


def mute_for_debt(exchange: Exchange) -> None:
    """Take nothing from a client for a while that has created more than its share."""
    if exchange.account is not None:
        seconds = exchange.account.creates.debt_seconds()
        if seconds:
            exchange.connection.mute(min(seconds, 1.0))


def _created(exchange: Exchange, name: str, done: Done, reply: Reply) -> None:
    if isinstance(reply, Created):
        identity = exchange.identity
        who, kind = identity.name, identity.kind.value
        record_change(exchange.context, exchange.request, exchange.connection, Event.CREATED, name, who, kind, _STATUS)
    done(reply)
