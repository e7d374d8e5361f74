"""Requests for purges: judged by what is applied here, and answered with how far a purge has come."""

import secrets
from typing import NamedTuple

import msgspec

from headwater.node.committer import ask
from headwater.node.purges import scope
from headwater.node.shard import Shard
from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.names import parse_whole
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.purges import DELETING, AskPurge, Purge
from headwater.streams.membership import judge_proposal


class PurgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to purge: a stream by its whole name, or all whose whole names begin with a prefix."""

    stream: str | None = None
    prefix: str | None = None
    with_forks: bool = False

    @property
    def target(self) -> str:
        return self.stream or self.prefix or ""

    def judge(self) -> Refusal | None:
        """What is wrong with it."""
        if (self.stream is None) == (self.prefix is None) or not self.target:
            detail = 'Send {"stream": "bucket/stream"} or {"prefix": "bucket/beginning"}, which may not be empty.'
            return Refusal(Code.BAD_REQUEST, detail)
        if self.stream is not None:
            named = parse_whole(self.stream)
            return named if isinstance(named, Refusal) else None
        if len(self.target.encode()) > NAME_BYTES_MAX:
            return Refusal(Code.BAD_REQUEST, f"A prefix has at most {NAME_BYTES_MAX} bytes, as names do.")
        return None


class PurgeBegun(NamedTuple):
    """A purge that is recorded."""

    purge: str
    streams: int
    """How many existing streams it removes. It also removes what deleted ones left, which is not counted."""


class PurgeStatus(NamedTuple):
    """How far a purge has come."""

    purge: str
    stage: str
    done: bool
    problem: str | None


async def ask_purge(shard: Shard, request: PurgeRequest) -> PurgeBegun | Refusal:
    """Begin a purge."""
    state = shard.state
    if (refusal := judge_proposal(state, AskPurge, "A purge")) is not None:
        return refusal
    is_prefix = request.stream is None
    wanted = Purge(DELETING, state.position, request.target, is_prefix, request.with_forks)
    if (refusal := await scope.judge(state, wanted)) is not None:
        return refusal
    streams = await scope.count(state, wanted)
    purge_id = secrets.token_hex(8)
    reply = await ask(shard.submit, AskPurge(purge_id, request.target, is_prefix, request.with_forks))
    return reply if isinstance(reply, Refusal) else PurgeBegun(purge_id, streams)


def status_of(shard: Shard, purge_id: str) -> PurgeStatus | Refusal:
    """How far a purge has come, as far as it is remembered."""
    purge = shard.state.cold.purges.get(purge_id)
    if purge is None:
        return Refusal(Code.PURGE_NOT_FOUND, f"There is no purge {purge_id!r}, or it ended long ago.")
    purger = None if shard.chores is None else shard.chores.purger
    return PurgeStatus(purge_id, purge.stage, purge.has_ended, None if purger is None else purger.problem)
