"""A server in this process, so that a test sees what it holds."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from headwater.http.server import Server
from headwater.settings import Settings

from ...node.lake.lakes import Bench, bench
from ..processes import eventually
from ..sockets import Wire
from .bulk.requests import PATIENCE_SECONDS


def against(work: Callable[[str, Bench, Server], None], **settings: object) -> None:
    """Run a client against a server in this process; nothing may be in progress or held afterwards."""

    async def run() -> None:
        async with bench() as node:
            server = Server(msgspec.convert({"port": 0, **settings}, Settings))
            url = await server.listen()
            server.serve(node.node)
            in_thread = asyncio.get_running_loop().run_in_executor
            try:
                await in_thread(None, work, url, node, server)
                assert await in_thread(None, eventually, lambda: not node.node.only.scans.in_progress)
                assert await in_thread(None, eventually, lambda: not server.context.bulk_appends.inside)
                assert not server.context.bulk_appends.waiting
                assert not server.context.receiving.used
                assert not +node.lake.reads.in_use
                assert not node.state.observers
            finally:
                await server.drain()

    asyncio.run(run())


@contextmanager
def wire_to(url: str, receive_buffer_bytes: int = 0) -> Iterator[Wire]:
    with Wire(url, timeout_seconds=PATIENCE_SECONDS, receive_buffer_bytes=receive_buffer_bytes) as wire:
        yield wire
