"""Random work before a backup, after it, and after each of two restores: every token is still true, or refused.

A token is anything that a server gave out and a client may send back: an offset with its incarnation, an entity tag, an
event id, a consumer's position, an offset of a Spark checkpoint. With each one the test keeps the bytes that it stands
for. Tokens of one server are shown to all: to the server itself, where many must be good, and to its successors.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.backup.create import create_backup
from headwater.backup.restore import restore_backup
from headwater.spark.failures import LogChanged
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.source.lake.plan import lake_url, open_lake
from headwater.spark.source.lake.stream import LakeStream
from headwater.spark.source.live.stream import LiveStream
from headwater.storage.folder import FolderStore
from headwater.testing import running_server

from ..http.sockets import Wire
from .servers import JSON, TEXT, no_progress, origin

EXAMPLES = max(1, int(os.environ.get("TESTS_EXAMPLES", "150")) // 25)
"""Every example runs three servers."""
NAMES = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["create", "append", "append", "append", "delete", "close", "flush"])
WORK = st.lists(st.tuples(KINDS, NAMES), min_size=3, max_size=12)


class Token(NamedTuple):
    """What a server gave out about a stream, and the bytes that the stream had up to there."""

    path: str
    offset: str
    incarnation: str
    etag: str
    content: bytes


class Checkpoint(NamedTuple):
    """The offsets of two queries."""

    lake: dict[str, Any]
    live: dict[str, Any]


class Generation:
    """One server, what it gave out, and what its clients did to it."""

    def __init__(self, url: str, wire: Wire, name: str) -> None:
        self.url, self.wire, self._name, self._written = url, wire, name, 0
        self.tokens: list[Token] = []
        self.checkpoints: list[Checkpoint] = []

    def work(self, events: list[tuple[str, str]]) -> None:
        """Do some work, and take a token of every stream after each step."""
        self.wire.ask("PUT", "/team")
        for kind, name in events:
            path = f"/team/{name}"
            # The same length everywhere, so that the offsets of different histories are the same.
            payload = f"{self._name}{self._written:07} ".encode()
            self._written += 1
            match kind:
                case "create":
                    self.wire.ask("PUT", path, TEXT, payload)
                case "append":
                    self.wire.ask("POST", path, TEXT, payload)
                case "close":
                    self.wire.ask("POST", path, {"Stream-Closed": "true"})
                case "delete":
                    self.wire.ask("DELETE", path)
                case _:
                    assert self.wire.ask("POST", "/__headwater/flush").status == 200
            self._take_token(path)
        self._take_checkpoint()

    def _take_token(self, path: str) -> None:
        page, head = self.wire.ask("GET", f"{path}?offset=-1"), self.wire.ask("HEAD", path)
        if page.status == 200:
            incarnation = page.headers["stream-incarnation"]
            self.tokens.append(Token(path, page.next_offset, incarnation, head.headers["etag"], page.body))

    def _take_checkpoint(self) -> None:
        with Link(LinkSettings(self.url)) as link:
            offsets = [one.latest(one.initial()) for one in queries(link)]
        self.checkpoints.append(Checkpoint(*offsets))

    @property
    def printed(self) -> set[str]:
        return {text for token in self.tokens for text in (token.incarnation, token.etag)}

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.wire.ask("GET", "/__headwater/status").body)
        return found

    # -- Showing it the tokens of another ---------------------------------------------------------------------------

    def accepts(self, token: Token) -> bool:
        """Whether a token is still good here; if so, it must mean the same bytes, and else be refused everywhere."""
        path, incarnation = token.path, {"Stream-Incarnation": token.incarnation}
        target = f"{path}?offset={token.offset}"
        read = self.wire.ask("GET", target, incarnation)
        if read.status != 200:
            assert read.status in (404, 410), read.head
            assert self.wire.ask("GET", f"{target}&incarnation={token.incarnation}").status == read.status
            with Wire(self.url) as wire:
                event_id = f"{token.offset}/{token.incarnation}"
                assert wire.ask("GET", f"{path}?live=sse", {"Last-Event-ID": event_id}).status == read.status
            same = self.wire.ask("GET", f"{path}?offset=-1", {"If-None-Match": token.etag}).status
            assert same in (200, 404), "304 for another stream's bytes"
            written = self.wire.ask("POST", path, {**TEXT, "If-Match": token.etag}, b"?" * 9).status
            assert written in (404, 409, 412), "written on a condition about another stream"
            return False
        before = self.wire.ask("GET", f"{path}?offset=-1", incarnation).body
        assert before.startswith(token.content), "the token means other bytes here"
        unchanged = self.wire.ask("GET", f"{path}?offset=-1", {"If-None-Match": token.etag})
        assert unchanged.status == 200 or before == token.content, "304 for other bytes"
        return True

    def check_foreign(self, checkpoint: Checkpoint, log_id: str, position: int) -> None:
        """Refuse a checkpoint of another generation, and a consumer that comes with one of its positions."""
        with Link(LinkSettings(self.url)) as link:
            for one, offset in zip(queries(link), checkpoint, strict=True):
                with pytest.raises(LogChanged):
                    one.latest(offset)
                with suppress(LogChanged):
                    assert one.plan(one.initial(), offset) == [], "only an empty batch means the same here"
        positions = json.dumps({"positions": {"0": position}}).encode()
        headers = {**JSON, "Stream-Log-Id": log_id}
        assert self.wire.ask("PUT", "/__headwater/consumers/job", headers, positions).status == 410
        assert self.status["lake"]["consumers"] == {}


def queries(link: Link) -> list[LakeStream | LiveStream]:
    given = {"url": link.settings.url, "bucket": "team", "startingOffsets": "earliest", "consumerName": "job"}
    options = parse_source({**given, "flushInterval": "0s"})
    url = lake_url(options, link)
    assert url is not None
    return [LakeStream(options, link, open_lake(url)), LiveStream(parse_source({**given, "via": "live"}), link)]


# Without shrinking: an example takes seconds, and a failure says enough.
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(before=WORK, after=WORK, others=st.tuples(WORK, WORK))
def test_every_token_of_before_a_restore_is_still_true_or_refused(
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
    others: tuple[list[tuple[str, str]], list[tuple[str, str]]],
) -> None:
    with TemporaryDirectory() as folder:
        data, place = Path(folder, "data"), FolderStore(Path(folder, "backup"))
        with running_server(data=data) as server, Wire(server.url) as wire:
            first = Generation(server.url, wire, "1")
            first.work([("create", "a"), *before])
            create_backup(origin(data), place, no_progress)
            first.work([*after, ("append", "a")])
            known, log_id = first.status["positions"]["0"], first.status["log_id"]
            newest = {token.path: token for token in first.tokens}
            alive = [name for name in newest if first.wire.ask("HEAD", name).status == 200]
            assert all(first.accepts(newest[name]) for name in alive), "a good token is refused"
        generations = [first]
        for number, work in enumerate(others, 2):
            again = Path(folder, f"again{number}")
            restore_backup(place, again, FolderStore(again / "lake"), no_progress)
            with running_server(data=again) as server, Wire(server.url) as wire:
                later = Generation(server.url, wire, str(number))
                for generation in generations:
                    for checkpoint in generation.checkpoints:
                        later.check_foreign(checkpoint, log_id, known)
                later.work(work)
                assert not any(later.accepts(token) for generation in generations for token in generation.tokens)
                assert not any(later.printed & generation.printed for generation in generations)
                assert later.status["positions"]["0"] > known
            generations.append(later)
