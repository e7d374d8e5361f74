"""Requests that say which log their positions and incarnations came from: bare numbers of another log mean nothing."""

from headwater.http.exchange.exchange import Exchange
from headwater.http.table.routes import Handler
from headwater.http.wire.addresses import Address
from headwater.http.wire.requests import Request
from headwater.protocol import headers
from headwater.protocol.refusals import log_changed

_LOG_ID = headers.STREAM_LOG_ID.key


def of_one_log(run: Handler) -> Handler:
    """A handler that refuses requests about the log of another server, or of this one before a restore."""

    def checked(request: Request, address: Address, exchange: Exchange) -> None:
        theirs, ours = request.header(_LOG_ID), exchange.node.log_id
        if theirs is None or theirs == ours:
            run(request, address, exchange)
        else:
            exchange.reply(log_changed(ours, theirs))

    return checked
