"""Buckets from the command line."""

import json
from collections.abc import Iterator

import pytest

from headwater.testing import running_server

from .commands import Shell, sentence


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with running_server() as server:
        yield Shell(server.url)


def test_a_bucket_is_made_shown_and_dropped(shell: Shell) -> None:
    assert json.loads(shell.ok("bucket", "make", "team", "--json").out) == {"bucket": "team", "new": True}
    shell.ok("create", "team/notes", "--type", "text/plain")
    assert json.loads(shell.ok("bucket", "show", "team", "--json").out) == {"name": "team", "streams": 1}
    assert shell.ok("bucket", "show", "team").text.split() == ["name", "team", "streams", "1"]
    assert "headwater ls team" in sentence(shell("bucket", "rm", "team"))
    shell.ok("rm", "team/notes")
    assert shell.ok("bucket", "rm", "team").out == b""
    assert "headwater bucket make team" in sentence(shell("bucket", "show", "team"))


def test_a_bucket_that_is_there_already_is_an_error_unless_that_is_fine(shell: Shell) -> None:
    shell.ok("bucket", "make", "twice")
    assert "headwater bucket show twice" in sentence(shell("bucket", "make", "twice"))
    assert json.loads(shell.ok("bucket", "make", "twice", "--exist-ok", "--json").out)["new"] is False


def test_a_name_that_no_bucket_can_have_is_told(shell: Shell) -> None:
    sentence(shell("bucket", "make", "NO"))


def test_what_is_missing_on_the_command_line_is_wrong_usage(shell: Shell) -> None:
    for arguments in (["bucket", "make"], ["bucket", "mend", "x"], ["bucket", "rm", "a", "b"]):
        assert shell(*arguments).code == 2
