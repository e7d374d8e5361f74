"""Connections while the server starts or shuts down: it reports that it is alive, and refuses everything else."""

import asyncio
from typing import cast

import msgspec

from headwater.http.wire import statuses
from headwater.http.wire.rendering import TEXT_LINES, Renderer
from headwater.http.wire.statuses import Answer, Dialect
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Refusal

STARTING = "The server is starting; try again in a second."
ENDING = "The server is shutting down; try again in a second, or use another server."

_ALIVE = Answer(200, TEXT_LINES, b"ok\n")


class UnreadyConnection(asyncio.Protocol):
    """Answers one request by its first line, and closes."""

    def __init__(self, reason: str, renderer: Renderer, patience_seconds: float, *, by_origin: bool) -> None:
        self._renderer, self._patience_seconds = renderer, patience_seconds
        self._refusal = Refusal(Code.DRAINING, reason)
        self._dialect = Dialect(Form.FLAT, "", by_origin=by_origin)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # The server's own clock does not tick yet, or no longer.
        self._timer = asyncio.get_running_loop().call_later(self._patience_seconds, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        alive = data.split(b" ", 2)[1:2] == [b"/healthz"]
        answer = _ALIVE if alive else statuses.answer(self._refusal, self._dialect)
        answer = msgspec.structs.replace(answer, headers=answer.headers + statuses.shared_lines(self._dialect))
        self._transport.writelines(self._renderer.response(answer, close=True, head_only=data.startswith(b"HEAD ")))
        self._transport.close()
