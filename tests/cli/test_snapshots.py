"""`headwater snapshot` and `headwater bootstrap`."""

import json
import secrets
from base64 import b64decode
from pathlib import Path

import pytest

from headwater.testing import running_server

from .commands import Shell, sentence


@pytest.fixture
def name(shell: Shell) -> str:
    """A JSON stream of three messages."""
    name = f"demo/{secrets.token_hex(6)}"
    shell.ok("create", name, "[1,2,3]", "--type", "application/json")
    return name


def publish(shell: Shell, *arguments: str, stdin: bytes = b"") -> str:
    """Publish a snapshot, and return the remark on what the server has trimmed."""
    done = shell("snapshot", "create", *arguments, stdin=stdin)
    assert done.code == 0, done
    return done.err


def test_a_snapshot_of_bytes_comes_back_as_it_was(shell: Shell, name: str, tmp_path: Path) -> None:
    data = secrets.token_bytes(200_000)
    put = json.loads(shell.ok("snapshot", "create", name, "--json", stdin=data).out)
    assert (put["bytes"], put["offset"]) == (200_000, json.loads(shell.ok("show", name, "--json").out)["next_offset"])
    assert shell.ok("snapshot", "show", name).out == data
    assert b64decode(json.loads(shell.ok("snapshot", "show", name, "--json").out)["base64"]) == data
    facts = shell.ok("snapshot", "show", name, "--offset", put["offset"], "--output", str(tmp_path / "copy"), "--json")
    assert json.loads(facts.out)["bytes"] == 200_000
    assert (tmp_path / "copy").read_bytes() == data


def test_a_snapshot_can_be_at_a_record_and_come_from_a_file(shell: Shell, name: str, tmp_path: Path) -> None:
    (tmp_path / "sum").write_text('{"sum":3}')
    publish(shell, name, str(tmp_path / "sum"), "--record", "2", "--type", "application/json")
    assert json.loads(shell.ok("show", name, "--json").out)["record_first"] == 2
    assert "headwater bootstrap" in sentence(shell("read", name))


def test_a_bootstrap_is_the_snapshot_and_all_messages_after_it(shell: Shell, name: str) -> None:
    assert shell.ok("bootstrap", name).out == b"1\n2\n3\n"
    publish(shell, name, "--type", "text/plain", stdin=b"six")
    shell.ok("append", name, "4", '{"five":5}')
    assert shell.ok("bootstrap", name).out == b'six\n4\n{"five":5}\n'
    head, *messages = map(json.loads, shell.ok("bootstrap", name, "--json").out.splitlines())
    assert (b64decode(head["snapshot"]), head["snapshot_content_type"], head["up_to_date"]) == (
        b"six",
        "text/plain",
        True,
    )
    assert [b64decode(one["message"]) for one in messages] == [b"4", b'{"five":5}']


def test_a_bootstrap_can_be_saved_in_a_folder(shell: Shell, name: str, tmp_path: Path) -> None:
    publish(shell, name, stdin=b"\x00six")
    shell.ok("append", name, "4", "5")
    folder = tmp_path / "new" / "copy"
    shell.ok("bootstrap", name, "--output", str(folder))
    assert (folder / "snapshot").read_bytes() == b"\x00six"
    assert (folder / "messages").read_bytes() == b"4\n5\n"
    facts = json.loads((folder / "bootstrap.json").read_text())
    shell.ok("append", name, "6")
    assert facts["messages"] == 2
    assert shell.ok("read", name, "--offset", facts["next_offset"]).out == b"[6]\n"


def test_a_missing_snapshot_or_stream_is_reported(shell: Shell, name: str, tmp_path: Path) -> None:
    assert f"headwater snapshot create {name}" in sentence(shell("snapshot", "show", name))
    assert "headwater create demo/none" in sentence(shell("snapshot", "create", "demo/none", stdin=b"x"))
    assert "headwater ls demo" in sentence(shell("bootstrap", "demo/none"))
    shell.ok("create", "two/letters", "3")
    assert "a bucket with snapshots has 4 to 64" in sentence(shell("snapshot", "create", "two/letters", stdin=b"x"))
    sentence(shell("snapshot", "create", name, str(tmp_path / "none")))
    (tmp_path / "file").write_text("")
    sentence(shell("bootstrap", name, "--output", str(tmp_path / "file")))


def test_offset_and_record_exclude_each_other(shell: Shell, name: str) -> None:
    sentence(shell("snapshot", "create", name, "--offset", "now", "--record", "1", stdin=b"x"), code=2)


def test_history_that_a_snapshot_trims_is_reported_once(shell: Shell, name: str) -> None:
    end = json.loads(shell.ok("show", name, "--json").out)["next_offset"]
    remark = publish(shell, name, stdin=b"six")
    assert remark.count("\n") == 1
    assert f"deleted the messages of {name} before offset {end}" in remark
    assert "--retention explicit" in remark
    shell.ok("append", name, "4")
    assert json.loads(shell.ok("snapshot", "create", name, "--json", stdin=b"ten").out)["trimmed_before"] > end


def test_a_server_that_keeps_history_is_not_said_to_trim_it() -> None:
    with running_server("--retention", "explicit") as server:
        shell = Shell(server.url)
        shell.ok("create", "kept", "[1,2]", "--type", "application/json")
        shell.ok("snapshot", "create", "kept", stdin=b"three")
        assert (
            json.loads(shell.ok("snapshot", "create", "kept", "--json", stdin=b"three").out)["trimmed_before"] is None
        )


def test_a_type_that_is_none_is_wrong_usage(shell: Shell, name: str) -> None:
    assert "'nonsense' is not a content type" in sentence(
        shell("snapshot", "create", name, "--type", "nonsense", stdin=b"x"), code=2
    )
