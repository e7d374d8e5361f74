"""`headwater bucket`."""

import json

from .commands import Shell, sentence


def test_a_bucket_is_created_shown_and_deleted(shell: Shell) -> None:
    assert json.loads(shell.ok("bucket", "make", "team", "--json").out) == {"bucket": "team", "new": True}
    shell.ok("create", "team/notes", "--type", "text/plain")
    assert json.loads(shell.ok("bucket", "show", "team", "--json").out) == {"name": "team", "streams": 1}
    assert shell.ok("bucket", "show", "team").text.split() == ["name", "team", "streams", "1"]
    assert "headwater ls team" in sentence(shell("bucket", "rm", "team"))
    shell.ok("rm", "team/notes")
    assert shell.ok("bucket", "rm", "team").out == b""
    assert "headwater bucket make team" in sentence(shell("bucket", "show", "team"))


def test_an_existing_bucket_is_an_error_unless_exist_ok(shell: Shell) -> None:
    shell.ok("bucket", "make", "twice")
    assert "headwater bucket show twice" in sentence(shell("bucket", "make", "twice"))
    assert json.loads(shell.ok("bucket", "make", "twice", "--exist-ok", "--json").out)["new"] is False


def test_a_missing_bucket_is_a_wrong_name_to_rm(shell: Shell) -> None:
    assert sentence(shell("bucket", "rm", "nosuch")) == f"There is no bucket nosuch at {shell.url}; check the name."


def test_an_invalid_bucket_name_is_refused(shell: Shell) -> None:
    sentence(shell("bucket", "make", "NO"))


def test_missing_and_extra_arguments_are_wrong_usage(shell: Shell) -> None:
    for arguments in (["bucket", "make"], ["bucket", "mend", "x"], ["bucket", "rm", "a", "b"]):
        assert shell(*arguments).code == 2
