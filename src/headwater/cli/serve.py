"""`headwater serve`: run the server until it is told to stop."""

import asyncio
import gc
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import uvloop

from headwater import settings as settings_module
from headwater.cli import logs
from headwater.http.server import Server
from headwater.lake.ownership import LakeOwned, claim
from headwater.log.directory import DirectoryInUse, lock, recover
from headwater.log.images import ImageFiles
from headwater.log.journal.files import JournalDamaged
from headwater.log.memory import MemoryLog
from headwater.log.seam import CommandLog
from headwater.node.lake.flusher import FlushLimits
from headwater.node.lake.lake import LakeLimits
from headwater.node.node import Node
from headwater.node.shard import ShardParts
from headwater.settings import HELP, Settings, SettingsError
from headwater.storage.blobs import BlobStore, MemoryBlobs
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.state import State

COLLECT_AFTER_OBJECTS = 2_000
LOOK_AGAIN_AFTER = 5
"""How many more containers make a young collection worth its while, and how many of these an older one. What replaces
something else is not counted, so a collection also looks at all that caches have taken in since the last one: they are
kept small."""

READY = """\
Headwater is ready at {url} ({where}). Try it:
  curl -X PUT  {url}/v1/stream/hello -H 'Content-Type: text/plain'
  curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, world'
  curl -N      '{url}/v1/stream/hello?offset=-1&live=sse'
"""


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag per field of Settings."""
    for name in reversed(Settings.__struct_fields__):
        default = getattr(Settings(), name)
        flag = "--" + name.replace("_", "-")
        text = f"{HELP[name]}  [default: {default}]"
        if isinstance(default, bool):
            command = click.option(flag, name, is_flag=True, default=None, help=HELP[name])(command)
        else:
            command = click.option(flag, name, default=None, metavar=type(default).__name__.upper(), help=text)(command)
    return command


@click.command()
@click.option("--config", type=click.Path(path_type=Path), default=None, help="TOML file with settings.")
@_flags
def serve(config: Path | None, **flags: Any) -> None:
    """Serve durable streams; SIGTERM drains."""
    try:
        settings = settings_module.load(flags, config)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    logs.set_up(settings.log_format)
    try:
        uvloop.run(run(settings))
    except (DirectoryInUse, JournalDamaged, LakeOwned, StoreFailed, KeyMissing, ValueError, OSError) as error:
        click.echo(f"Error: {str(error).rstrip('.')}.", err=True)
        sys.exit(1)


async def run(settings: Settings) -> None:
    """Recover, listen, say so, and serve until a signal comes."""
    _tune_process()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = Server(settings)
    try:
        url = await server.listen()
    except OSError as error:
        raise OSError(f"Cannot listen on {settings.host}:{settings.port}: {error}.") from error
    # In a thread: however long it takes, whoever asks is told that the server lives and is not ready.
    node = await asyncio.get_running_loop().run_in_executor(None, _open_node, settings)
    gc.freeze()
    node.start()
    server.serve(node)
    where = "in memory, nothing is kept" if settings.memory else f"data in {settings.data_directory.resolve()}"
    click.echo(READY.format(url=url, where=where), nl=False)
    sys.stdout.flush()
    await stopping.wait()
    await server.drain()
    await node.stop()


def _open_node(settings: Settings) -> Node:
    if settings.memory:
        log_id = secrets.token_hex(8)
        return _node(settings, State(log_id), MemoryLog(log_id), None, MemoryBlobs())
    lock(settings.data_directory)
    recovered = recover(settings.data_directory, settings.segment_bytes)
    store = open_store(settings.lake or str(settings.data_directory / "lake"))
    claim(store, recovered.state.log_id)
    return _node(settings, recovered.state, recovered.journal, recovered.images, recovered.blobs, store=store)


def _node(
    settings: Settings,
    state: State,
    command_log: CommandLog,
    images: ImageFiles | None,
    blobs: BlobStore,
    *,
    store: Store | None = None,
) -> Node:
    return Node(
        [ShardParts(state, command_log, images, blobs)],
        image_log_bytes=settings.image_log_bytes,
        page_bytes=settings.page_bytes,
        store=store,
        lake_limits=_lake_limits(settings),
    )


def _lake_limits(settings: Settings) -> LakeLimits:
    flush = FlushLimits(
        settings.flush_seconds,
        settings.flush_bytes_min,
        settings.flush_bytes_max,
        settings.flush_journal_bytes,
        settings.flush_segment_bytes,
        settings.flush_concurrency,
    )
    return LakeLimits(settings.hot_bytes_max, flush, settings.lake_grace_seconds, settings.flush_at_stop)


def _tune_process() -> None:
    """Open as many sockets as allowed, and never let the collector walk all streams.

    State has no cycles. What survives a second look is frozen and never looked at again, so a pause is bounded by what
    was made since the last one, not by how many streams there are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.set_threshold(COLLECT_AFTER_OBJECTS, LOOK_AGAIN_AFTER, 10)
    gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()
