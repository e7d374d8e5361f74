"""`headwater purge`: after it, a search of every byte that the server stores finds nothing."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.client import Admin, Client, Fork, NotFound, RequestRefused, Stream
from headwater.storage.folder import UPLOADS
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from ..http.guarded import guarded
from ..http.processes import eventually
from ..http.sockets import Wire
from ..searching import holders
from .commands import Shell

MARKER = b"Marker4711"
SECRET = f"team/{MARKER.decode()}"
NEVER = ("--flush-seconds", "100000", "--flush-bytes-max", "1000000000")
OTHERS = [f"team/{name}" for name in ("Aa", "Bb", "Mark")]
"""Streams beside it; in segments that have no others it is the last, so that manifests name it, too."""


PLACES = {
    "journal",
    "snapshots",
    "lake/forks/data",
    "lake/messages/metadata",
    "lake/segments/shard=0",
    "lake/streams/data",
}
"""Where `write_everywhere` leaves the marker, among others."""


class Site(NamedTuple):
    """A running server and where it stores everything."""

    server: RunningServer
    data: Path
    client: Client
    admin: Admin
    shell: Shell

    def stream(self, name: str) -> Stream:
        """A stream at its bucket's URL, which has snapshots and attributes."""
        return self.client.stream(f"{self.server.url}/ds/{name}")

    def found(self) -> list[str]:
        return holders(self.data, MARKER)

    def kinds(self) -> set[str]:
        """The folders that have the marker."""
        return {name.partition("/")[0] if "/" not in name else name.rsplit("/", 1)[0] for name in self.found()}

    def purge(self, *arguments: str) -> None:
        done = self.shell("purge", *arguments, "--yes", "--json")
        assert (done.code, done.err) == (0, ""), done
        assert json.loads(done.out)["stage"] == "done"


@contextmanager
def site(data: Path, *flags: str) -> Iterator[Site]:
    with running_server(*NEVER, *flags, data=data) as server, Client(server.url) as client, Admin(server.url) as admin:
        yield Site(server, data, client, admin, Shell(server.url))


def payload(number: int) -> bytes:
    return b"%b in message %d;" % (MARKER, number)


def write(site: Site, name: str = SECRET, messages: int = 3) -> None:
    """Rows in the lake, in several segments, and hot ones; of this stream and of others."""
    site.client.bucket("team").create(exist_ok=True)
    marked = site.stream(name)
    marked.create("text/plain", attrs={"metadata": {"who": MARKER.decode()}})
    for other in OTHERS:
        site.stream(other).create("text/plain")
    for number in range(messages):
        marked.append(payload(number))
        for other in OTHERS:
            site.stream(other).append(b"%d of %b;" % (number, other.encode()))
        if number < messages - 1:
            site.admin.flush()


def contents_of_others(site: Site) -> dict[str, bytes]:
    return {name: site.stream(name).read() for name in OTHERS}


def write_everywhere(site: Site) -> None:
    """As `write`, with forks, snapshots, a retired segment, older snapshots of the tables, a consumer and a lease."""
    write(site)
    marked = site.stream(SECRET)
    offset = marked.head().next_offset
    marked.append(payload(3))
    marked.publish_snapshot(b"snapshot of " + MARKER, offset=offset)
    marked.append(payload(4))
    fork = site.stream("team/fork")
    fork.create(fork=Fork(f"/ds/{SECRET}"))
    fork.append(b"appended to the fork of " + MARKER)
    site.admin.flush()
    site.stream("team/short").create("text/plain", body=MARKER)
    site.admin.flush()
    site.stream("team/short").delete()
    site.admin.flush()
    site.shell.ok("flush", "--all-tables")
    site.admin.register_consumer("slow", {"0": 0})
    site.admin.lease("reader", 600)


# -- What goes ---------------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_stream_and_its_forks_and_others_are_unharmed(tmp_path: Path) -> None:
    with site(tmp_path / "data", "--image-log-bytes", "65536") as here:
        write_everywhere(here)
        before = contents_of_others(here)
        assert here.kinds() >= PLACES
        refused = here.shell("purge", SECRET, "--yes")
        assert refused.code == 1
        assert "team/fork" in refused.err
        assert here.stream("team/fork").snapshot().data == b"snapshot of " + MARKER, "a refused purge changes nothing"

        here.purge("--prefix", SECRET, "--with-forks")
        here.purge("team/short")
        assert here.found() == []
        assert contents_of_others(here) == before
        for name in (SECRET, "team/fork", "team/short"):
            with pytest.raises(NotFound):
                here.stream(name).head()
        assert [consumer.name for consumer in here.admin.consumers()] == []
        with pytest.raises(RequestRefused, match="rows may be missing"):
            here.admin.lease("reader", 600, renew=True)
    with site(tmp_path / "data") as again:
        assert again.found() == []
        assert contents_of_others(again) == before
        assert again.shell("lake", "verify", (tmp_path / "data" / "lake").as_uri()).code == 0


def test_a_stream_that_was_deleted_is_purged_by_its_name_and_twice_does_no_harm(tmp_path: Path) -> None:
    with site(tmp_path / "data") as here:
        write(here)
        here.stream(SECRET).delete()
        assert here.found()
        for _ in range(2):
            here.purge(SECRET)
            assert here.found() == []
        assert len(contents_of_others(here)) == len(OTHERS)


def test_a_stream_that_is_created_anew_begins_empty_and_stays(tmp_path: Path) -> None:
    with site(tmp_path / "data") as here:
        write(here)
        here.purge(SECRET)
        here.stream(SECRET).create("text/plain", body=b"a new life")
        assert here.stream(SECRET).read() == b"a new life"
        assert here.found(), "its name is there"


def test_a_consumer_that_has_read_everything_stays_and_one_that_has_not_is_told(tmp_path: Path) -> None:
    with site(tmp_path / "data") as here:
        write(here)
        position = here.admin.flush()["0"]
        here.admin.register_consumer("quick", {"0": position})
        here.admin.register_consumer("slow", {"0": 1})
        here.purge(SECRET)
        here.admin.register_consumer("quick", {"0": position}, renew=True)
        with pytest.raises(RequestRefused, match="rows may be missing"):
            here.admin.register_consumer("slow", {"0": 1}, renew=True)


def test_what_a_killed_process_has_left_of_an_upload_goes_too(tmp_path: Path) -> None:
    with site(tmp_path / "data") as here:
        write(here)
        leftover = tmp_path / "data" / "lake" / UPLOADS / "0123456789abcdef0123456789abcdef"
        leftover.write_bytes(b"a job that rewrites segments had begun to store " + MARKER)
        here.purge(SECRET)
        assert here.found() == []


def test_a_server_without_files_forgets_a_stream(tmp_path: Path) -> None:
    with running_server() as server, Client(server.url) as client:
        client.stream(SECRET).create("text/plain", body=MARKER)
        done = Shell(server.url)("purge", SECRET, "--yes", "--json")
        assert json.loads(done.out)["stage"] == "done"
        with pytest.raises(NotFound):
            client.stream(SECRET).head()


# -- Crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_seconds", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_a_purge_goes_on_after_a_crash_and_can_be_repeated(tmp_path: Path, pause_seconds: float) -> None:
    with site(tmp_path / "data") as here:
        write_everywhere(here)
        before = contents_of_others(here)
        purge_id = here.admin.purge(prefix="team/Marker", with_forks=True).id
        time.sleep(pause_seconds)
        here.server.kill()
    with site(tmp_path / "data") as again:
        assert eventually(lambda: again.admin.purge_info(purge_id).done, 30)
        assert again.admin.purge_info(purge_id).stage == "done"
        again.purge("team/short")
        assert again.found() == []
        assert contents_of_others(again) == before
        again.purge("--prefix", "team/Marker", "--with-forks")
        assert again.found() == []
        assert contents_of_others(again) == before


# -- Several processes -------------------------------------------------------------------------------------------------


def test_workers_purge_together(tmp_path: Path) -> None:
    with site(tmp_path / "data", "--workers", "2") as here:
        write_everywhere(here)
        before = contents_of_others(here)
        here.purge("--prefix", SECRET, "--with-forks")
        here.purge("team/short")
        assert here.found() == []
        assert contents_of_others(here) == before


# -- Who may -----------------------------------------------------------------------------------------------------------


def test_only_an_administrator_of_everything_may_purge_and_it_is_audited(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with (
        guarded(
            tmp_path,
            {
                "root": ["* *"],
                "owner": ["* team/*"],
                "admin": ["admin *"],
                "deleter": ["delete *"],
                "ops": ["admin *", "delete team/*"],
            },
            "--audit",
            str(audit),
        ) as place,
        place.wire() as wire,
    ):
        body = json.dumps({"stream": SECRET}).encode()
        forked = {"stream": SECRET, "with_forks": True}
        for target in ({"stream": "other/s"}, {"prefix": "other/"}, {"prefix": "te"}, forked):
            others = json.dumps(target).encode()
            assert wire.ask("POST", "/__headwater/purge", place.bearer("ops"), others).status == 403
        for who, status in (("owner", 403), ("deleter", 403), ("admin", 403), ("ops", 202)):
            answer = wire.ask("POST", "/__headwater/purge", place.bearer(who), body)
            assert answer.status == status, (who, answer.body)
        purge = json.loads(answer.body)["purge"]
        assert wire.ask("GET", f"/__headwater/purges/{purge}", place.bearer("owner")).status == 403
        assert wire.ask("GET", f"/__headwater/purges/{purge}", place.bearer("ops")).status == 200
        assert wire.ask("POST", "/__headwater/purge", {}, body).status == 401

        def audited() -> list[dict[str, str]]:
            return [line for line in map(json.loads, audit.read_text().splitlines()) if line["event"] == "purged"]

        assert eventually(lambda: len(audited()) == 1)
        [line] = audited()
        assert (line["who"], line["name"]) == ("ops", SECRET)


def test_with_a_listener_for_operators_the_command_asks_for_its_url(tmp_path: Path) -> None:
    ops = free_port()
    with running_server("--ops", f"127.0.0.1:{ops}") as server, Client(server.url) as client:
        client.stream(SECRET).create("text/plain", body=MARKER)
        refused = Shell(server.url)("purge", SECRET, "--yes")
        assert refused.code == 1
        assert "listener for operators" in refused.err
        assert Shell(f"http://127.0.0.1:{ops}")("purge", SECRET, "--yes").code == 0
        with pytest.raises(NotFound):
            client.stream(SECRET).head()


# -- The command and its request ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Either name the stream"),
        (("a/b", "--prefix", "a/"), "Either name the stream"),
        (("--prefix", ""), "--prefix is empty"),
        (("a/b",), "confirm with --yes"),
    ],
)
def test_the_command_asks_for_what_is_missing(small: RunningServer, arguments: tuple[str, ...], problem: str) -> None:
    done = Shell(small.url)("purge", *arguments)
    assert done.code == 2
    assert problem in done.err


def test_it_says_how_many_streams_there_were_and_if_there_was_none(small: RunningServer) -> None:
    shell = Shell(small.url)
    with Client(small.url) as client:
        for name in ("shop/a", "shop/b"):
            client.stream(name).create("text/plain", body=b"x")
        assert json.loads(shell.ok("purge", "--prefix", "shop/", "--yes", "--json").out)["streams"] == 2
        done = shell("purge", "shop/a", "--yes")
        assert done.code == 0
        assert done.err == f"No stream shop/a exists at {small.url}; only the remains of deleted ones are removed.\n"


def test_a_prefix_means_what_it_means_to_rm(small: RunningServer) -> None:
    """One without a bucket is of streams without one: if it is a character short, it must not purge whole buckets."""
    shell = Shell(small.url)
    with Client(small.url) as client:
        for name in ("chat-1", "chat/2", "chat-room/3", "talk/4", "talk/5"):
            client.stream(name).create("text/plain", body=b"x")
        assert json.loads(shell.ok("purge", "--prefix", "chat", "--yes", "--json").out)["streams"] == 1
        assert json.loads(shell.ok("purge", "--prefix", "/talk/4", "--yes", "--json").out)["streams"] == 1
        for name in ("chat/2", "chat-room/3", "talk/5"):
            assert client.stream(name).read() == b"x"
        for name in ("chat-1", "talk/4"):
            with pytest.raises(NotFound):
                client.stream(name).head()


@pytest.mark.parametrize("body", [{}, {"stream": "a/b", "prefix": "a"}, {"prefix": ""}, {"stream": "a"}, {"x": 1}, []])
def test_a_request_that_is_not_one_is_refused(small: RunningServer, body: object) -> None:
    with Wire(small.url) as wire:
        assert wire.ask("POST", "/__headwater/purge", {}, json.dumps(body).encode()).status == 400
        assert wire.ask("GET", "/__headwater/purges/unknown").status == 404
