"""`headwater bucket`."""

import json

from headwater.testing import running_server

from .commands import Shell, sentence


def test_a_bucket_is_created_shown_and_deleted(shell: Shell) -> None:
    assert json.loads(shell.ok("bucket", "create", "team", "--json").out) == {"bucket": "team", "new": True}
    shell.ok("create", "team/notes", "--type", "text/plain")
    assert json.loads(shell.ok("bucket", "show", "team", "--json").out) == {"name": "team", "streams": 1}
    assert shell.ok("bucket", "show", "team").text.split() == ["name", "team", "streams", "1"]
    assert "headwater ls team" in sentence(shell("bucket", "rm", "team"))
    shell.ok("rm", "team/notes")
    assert shell.ok("bucket", "rm", "team").out == b""
    assert "check the name" in sentence(shell("bucket", "show", "team"))


def test_an_existing_bucket_is_an_error_unless_exist_ok(shell: Shell) -> None:
    shell.ok("bucket", "create", "twice")
    assert "headwater bucket show twice" in sentence(shell("bucket", "create", "twice"))
    assert json.loads(shell.ok("bucket", "create", "twice", "--exist-ok", "--json").out)["new"] is False


def test_every_bucket_and_every_stream_can_be_listed() -> None:
    with running_server() as server:
        shell = Shell(server.url)
        names = ["a/1", "ab/1", "ab/2", "demo/x", "notes"]
        for name in names:
            shell.ok("create", name, "--type", "text/plain")
        shell.ok("bucket", "create", "empty")
        buckets = {"_default": 1, "a": 1, "ab": 2, "demo": 1, "empty": 0}
        listed = json.loads(shell.ok("bucket", "ls", "--json").out)
        assert {one["name"]: one["streams"] for one in listed} == buckets
        assert [line.split() for line in shell.ok("bucket", "ls", "a").text.splitlines()] == [["a", "1"], ["ab", "2"]]
        assert len(shell.ok("bucket", "ls", "--limit", "2").text.splitlines()) == 2

        def streams(*arguments: str) -> list[str]:
            return [one["name"] for one in json.loads(shell.ok("ls", *arguments, "--json").out)]

        assert sorted(streams("--all")) == names
        assert len(names) == json.loads(shell.ok("status", "--json").out)["streams"]
        assert streams("a") == streams("a/") == ["a/1"]
        assert streams("ab/2") == streams("ab", "--prefix", "2") == ["ab/2"]
        assert streams("--all", "--prefix", "a") == ["a/1", "ab/1", "ab/2"]
        assert streams("--all", "--limit", "2") == ["notes", "a/1"]
        assert streams("no") == ["notes"]
        sentence(shell("ls", "demo", "--all"), code=2)
        assert streams("a/2") == []
        for arguments in (["x"], ["x/"], ["x/y"], ["x", "--prefix", "y"]):
            assert sentence(shell("ls", *arguments)) == (
                f"There is no bucket x at {shell.url}; it comes with its first stream: `headwater create x/NAME`."
            )
        assert "reserved" in sentence(shell("ls", "__ds/"))
        removed = shell("rm", "--prefix", "x/", "--yes")
        assert (removed.code, removed.err.strip()) == (0, f"No stream at {shell.url} begins with x/.")
        shell.ok("rm", "--prefix", "ab/", "--yes", "--json")
        assert streams("--all") == ["notes", "a/1", "demo/x"]


def test_a_missing_bucket_is_a_wrong_name_to_rm(shell: Shell) -> None:
    assert sentence(shell("bucket", "rm", "nosuch")) == f"There is no bucket nosuch at {shell.url}; check the name."


def test_an_invalid_bucket_name_is_refused(shell: Shell) -> None:
    sentence(shell("bucket", "create", "NO"))


def test_missing_and_extra_arguments_are_wrong_usage(shell: Shell) -> None:
    for arguments in (["bucket", "create"], ["bucket", "mend", "x"], ["bucket", "rm", "a", "b"]):
        assert shell(*arguments).code == 2
