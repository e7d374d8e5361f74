"""`headwater append`: arguments, lines, JSON values, producers."""

import json
from pathlib import Path

import pytest

from headwater.protocol.limits import JSON_DEPTH_MAX

from .commands import Shell, running, sentence


def test_each_argument_is_a_message(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    appended = json.loads(shell.ok("append", name, '{"a": 1}', "[2,3]", "4", "--json").out)
    assert (appended["messages"], appended["duplicates"]) == (4, 0)
    assert shell.ok("read", name, "--lines").text == '{"a": 1}\n2\n3\n4\n'


def test_bytes_go_through_append_and_read_unchanged(shell: Shell, name: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    shell.ok("create", name)
    shell.ok("append", name, stdin=data)
    assert shell.ok("read", name).out == data
    shell.ok("read", name, "--output", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data


def test_piped_lines_read_back_unchanged(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    done = shell.bash(
        f"seq 1 20000 | headwater append {name} --lines\nprintf 'no end' | headwater append {name} --lines"
    )
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert shell.ok("read", name).text == "".join(f"{number}\n" for number in range(1, 20_001)) + "no end"


def test_each_line_is_a_message_with_its_own_boundaries(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    assert json.loads(shell.ok("append", name, "--lines", "--json", stdin=b"one\n\ntwo").out)["messages"] == 3
    lines = shell.ok("bootstrap", name, "--json").out.splitlines()
    assert len(lines) == 1 + 3


def test_lines_also_go_into_a_stream_whose_name_has_more_slashes(shell: Shell, name: str) -> None:
    shell.ok("create", f"{name}/deeper", "--type", "text/plain")
    shell.ok("append", f"{name}/deeper", "--lines", stdin=b"one\ntwo\n")
    assert shell.ok("read", f"{name}/deeper").out == b"one\ntwo\n"


@pytest.mark.parametrize("cut", ["--lines", "--json-values"])
def test_messages_are_sent_while_the_pipe_stays_open(shell: Shell, name: str, cut: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    with running(shell, "append", name, cut) as appending, running(shell, "tail", name, "--offset", "-1") as tail:
        for number in range(3):
            appending.type(b'{"n":%d}\n' % number)
            tail.wait_for(b'{"n":%d}\n' % number)
        assert appending.process.stdin is not None
        appending.process.stdin.close()
        assert appending.end() == 0


def test_each_json_line_is_one_message_even_an_array_and_empty_lines_are_skipped(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    shell.ok("append", name, "--lines", stdin=b'[1,2]\n\n "x" \r\n')
    assert shell.ok("read", name, "--lines").out == b'[1,2]\n"x"\n'


def test_a_line_that_is_not_json_is_reported_by_its_number_and_those_before_it_are_kept(
    shell: Shell, name: str
) -> None:
    shell.ok("create", name, "--type", "application/json")
    error = sentence(shell("append", name, "--lines", stdin=b"1\n2\n3],[4\n5\n"))
    assert "Line 3 " in error
    assert "2 messages" in error
    assert shell.ok("read", name).out == b"[1,2]\n"


def test_json_values_are_separated_with_and_without_white_space(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    long = json.dumps("é" * 400_000, ensure_ascii=False).encode()
    shell.ok("append", name, "--json-values", stdin=b'{"a":\n 1.50}[2] 34\n"x"' + long + b" 5")
    lines = shell.ok("read", name, "--lines").out.split(b"\n")
    assert lines == [b'{"a":  1.50}', b"[2]", b"34", b'"x"', long, b"5", b""]


def test_invalid_json_values_are_reported(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    assert "Value 2 " in sentence(shell("append", name, "--json-values", stdin=b"1 {"))
    assert "UTF-8" in sentence(shell("append", name, "--json-values", stdin=b'"\xff"'))
    error = json.loads(shell("append", name, "{", "--json").err)
    assert error["error"] == "invalid_input" and error["detail"].count("not valid JSON") == 1
    assert shell.ok("read", name).out == b"[1]\n"


@pytest.mark.parametrize("options", [["--json-values"], ["--lines"], []])
@pytest.mark.parametrize("excess", [1, 100_000])
def test_json_of_too_many_levels_is_reported(shell: Shell, name: str, options: list[str], excess: int) -> None:
    shell.ok("create", name, "--type", "application/json")
    deepest = b'{"a":' * JSON_DEPTH_MAX + b"1" + b"}" * JSON_DEPTH_MAX
    shell.ok("append", name, *options, stdin=deepest)
    deeper = b"[" * (JSON_DEPTH_MAX + excess) + b"]" * (JSON_DEPTH_MAX + excess)
    # The outermost array is what its elements are sent in, unless they are given as values or lines.
    deeper = deeper if options else b"[%b]" % deeper
    assert f"{JSON_DEPTH_MAX} levels" in sentence(shell("append", name, *options, stdin=deeper))
    assert shell.ok("read", name, "--lines").out == deepest + b"\n"


def test_a_producer_writes_each_message_once_however_often_it_is_run(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    run = ("append", name, "--lines", "--producer", "import", "--json")
    assert json.loads(shell.ok(*run, stdin=b"a\nb\n").out)["messages"] == 2
    appended = json.loads(shell.ok(*run, stdin=b"a\nb\nc\n").out)
    assert (appended["messages"], appended["duplicates"]) == (1, 2)
    assert shell.ok("read", name).out == b"a\nb\nc\n"


def test_other_messages_of_a_producer_are_an_error_or_a_note_but_never_lost_silently(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    run = ("append", name, "--lines", "--producer", "import")
    shell.ok(*run, stdin=b"a\nb\n")
    assert "higher --epoch" in sentence(shell(*run, stdin=b"x\ny\nz\n"))
    # The server knows only what it accepted last.
    done = shell(*run, stdin=b"x\n")
    assert done.code == 0 and "Nothing was appended" in done.err and "--epoch" in done.err
    assert shell.ok("read", name).out == b"a\nb\n"
    shell.ok(*run, "--epoch", "1", stdin=b"x\n")
    assert shell.ok("read", name).out == b"a\nb\nx\n"


def test_the_error_of_an_older_epoch_says_how_to_take_over(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    shell.ok("append", name, "new", "--producer", "p", "--epoch", "3")
    assert "--epoch 4" in sentence(shell("append", name, "old", "--producer", "p"))


def test_the_last_message_can_close_the_stream(shell: Shell, name: str) -> None:
    for suffix, more in (("1", []), ("2", ["--producer", "p"]), ("3", ["--lines"])):
        shell.ok("create", name + suffix, "--type", "text/plain")
        shell.ok("append", name + suffix, "--close", *more, stdin=b"x\ny")
        assert json.loads(shell.ok("show", name + suffix, "--json").out)["closed"] is True
        assert shell.ok("read", name + suffix).out == b"x\ny"
        assert "closed" in sentence(shell("append", name + suffix, "z"))


@pytest.mark.parametrize("more", [[], ["--close"]])
def test_a_longer_input_after_the_close_is_refused(shell: Shell, name: str, more: list[str]) -> None:
    shell.ok("create", name, "--type", "text/plain")
    run = "append", name, "--lines", "--producer", "p"
    shell.ok(*run, "--close", stdin=b"a\nb\n")
    assert shell(*run, "--close", stdin=b"a\nb\n").code == 0
    assert "something else" in sentence(shell(*run, *more, stdin=b"a\nb\nc\n"))
    assert shell.ok("read", name).out == b"a\nb\n"


def test_an_empty_pipe_appends_nothing(shell: Shell, name: str) -> None:
    shell.ok("create", name)
    assert json.loads(shell.ok("append", name, "--json").out)["messages"] == 0
    sentence(shell("append", name, ""), code=2)


@pytest.mark.parametrize("options", [["--lines", "--json-values"], ["--epoch", "2"], ["--epoch", "-1"], ["--no"]])
def test_appending_in_two_ways_at_once_is_wrong_usage(shell: Shell, name: str, options: list[str]) -> None:
    assert shell("append", name, "x", *options).code == 2
