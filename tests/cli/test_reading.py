"""`headwater read` and `headwater tail`."""

import json
from pathlib import Path

import pytest

from headwater.testing import running_server
from headwater.testing.ports import free_port

from .commands import Shell, running, sentence

# -- read --------------------------------------------------------------------------------------------------------------


def test_a_json_stream_of_many_pages_reads_as_one_array(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    assert shell.ok("read", name).out == b"[]\n"
    values = [{"n": number, "pad": "x" * 1000} for number in range(3000)]
    shell.ok("append", name, "--lines", stdin="\n".join(map(json.dumps, values)).encode())
    assert json.loads(shell.ok("read", name).out) == values
    assert [json.loads(line) for line in shell.ok("read", name, "--lines").out.splitlines()] == values
    pages = [json.loads(line) for line in shell.ok("read", name, "--json").out.splitlines()]
    assert len(pages) > 1
    assert [value for page in pages for value in page["messages"]] == values


def test_reading_resumes_at_an_offset(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    offset = json.loads(shell.ok("append", name, "old", "--json").out)["next_offset"]
    shell.ok("append", name, "new")
    page = json.loads(shell.ok("read", name, "--offset", offset, "--json").out)
    assert (page["text"], page["up_to_date"], page["closed"]) == ("new", True, False)


def test_binary_data_is_base64_in_json(shell: Shell, name: str) -> None:
    shell.ok("create", name, "-", stdin=b"\xff\x00")
    assert json.loads(shell.ok("read", name, "--json").out)["base64"] == "/wA="


def test_records_have_their_numbers(shell: Shell, name: str) -> None:
    shell.ok("create", name, '["a",1.10,"ü",1e400]', "--type", "application/json")
    lines = shell.ok("read", name, "--records", "--record", "1").text.splitlines()
    assert lines == ['{"record":1,"value":1.10}', '{"record":2,"value":"ü"}', '{"record":3,"value":1e400}']
    sentence(shell("read", name, "--records", "--offset", "now"), code=2)
    sentence(shell("read", name, "--record", "1"), code=2)


def test_all_pages_of_records_are_read(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    shell.ok("append", name, "--lines", stdin=(b'"' + b"x" * 1000 + b'"\n') * 3000)
    numbers = [json.loads(line)["record"] for line in shell.ok("read", name, "--records").out.splitlines()]
    assert numbers == list(range(3000))
    sentence(shell("read", f"{name}-none", "--records"))


def test_lines_of_a_stream_without_message_boundaries_are_an_error(shell: Shell, name: str) -> None:
    shell.ok("create", name, "x", "--type", "text/plain")
    assert "--lines" in sentence(shell("read", name, "--lines"))


def test_a_file_that_cannot_be_written_is_reported(shell: Shell, name: str, tmp_path: Path) -> None:
    shell.ok("create", name, "x")
    assert "--output" in sentence(shell("read", name, "--output", str(tmp_path / "no" / "file")))


def test_a_failed_read_does_not_overwrite_the_file(shell: Shell, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    sentence(shell("read", name, "--output", str(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "precious"


def test_a_closed_pipe_ends_the_command_without_an_error(shell: Shell, name: str) -> None:
    shell.ok("create", name, "-", stdin=b"line\n" * 500_000)
    done = shell.bash(f"set +o pipefail; headwater read {name} | head -n 1")
    assert (done.code, done.out, done.err) == (0, b"line\n", "")


# -- tail --------------------------------------------------------------------------------------------------------------


def test_tail_follows_until_the_stream_is_closed(shell: Shell, name: str) -> None:
    shell.ok("create", name, "before ", "--type", "text/plain")
    with running(shell, "tail", name, "--offset", "-1") as tail:
        tail.wait_for(b"before ")
        shell.ok("append", name, "after")
        tail.wait_for(b"after")
        shell.ok("close", name)
        assert tail.end() == 0
        assert tail.printed == b"before after"


def test_tail_ends_after_count_lines(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,[2],3]", "--type", "application/json")
    assert shell.ok("tail", name, "--offset", "-1", "--count", "2").out == b"1\n[2]\n"
    shell.ok("create", f"{name}-text", "a\nb\nc", "--type", "text/plain")
    assert shell.ok("tail", f"{name}-text", "--offset", "-1", "--count", "1").out == b"a\n"


def test_tail_prints_the_next_offset_to_programs(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,2]", "--type", "application/json", "--closed")
    chunk = json.loads(shell.ok("tail", name, "--offset", "-1", "--json").out)
    assert (chunk["messages"], chunk["closed"]) == ([1, 2], True)
    assert chunk["next_offset"] == json.loads(shell.ok("show", name, "--json").out)["next_offset"]


# -- tail -n -----------------------------------------------------------------------------------------------------------


def test_tail_starts_with_the_last_messages(shell: Shell, name: str) -> None:
    shell.ok("create", name, '[1,[2],{"a": 3.10},4]', "--type", "application/json")
    with running(shell, "tail", "-n", "2", name) as tail:
        tail.wait_for(b"4\n")
        shell.ok("append", name, "5", "6")
        shell.ok("close", name)
        assert tail.end() == 0
        assert tail.printed == b'{"a": 3.10}\n4\n5\n6\n'
    assert shell.ok("tail", name, "-n", "100").out == b'1\n[2]\n{"a": 3.10}\n4\n5\n6\n'
    assert shell.ok("tail", name, "-n", "0").out == b""
    assert shell.ok("tail", name, "-n", "3", "--count", "2").out == b"4\n5\n"
    chunk = json.loads(shell.ok("tail", name, "-n", "1", "--json").out)
    assert (chunk["messages"], chunk["closed"]) == ([6], True)


def test_tail_of_many_messages_takes_several_pages(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    lines = b"".join(b'"%04d%b"\n' % (number, b"x" * 1000) for number in range(3000))
    shell.ok("append", name, "--lines", "--close", stdin=lines)
    assert shell.ok("tail", name, "-n", "2500").out == b"".join(lines.splitlines(keepends=True)[500:])


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_tail_starts_with_the_last_lines_of_a_text(shell: Shell, name: str, end: bytes) -> None:
    text = b"\n".join(b"%05d %b" % (number, b"x" * (number % 100)) for number in range(5000)) + end
    shell.ok("create", name, "-", "--type", "text/plain", "--closed", stdin=text)
    lines = text.splitlines(keepends=True)
    for count in (1, 2, 3000, 10_000):
        assert shell.ok("tail", name, "-n", str(count)).out == b"".join(lines[-count:])


def test_tail_starts_with_what_is_left_of_a_trimmed_text(shell: Shell, name: str) -> None:
    shell.ok("create", name, "a\nb\n", "--type", "text/plain")
    assert shell("snapshot", "create", name, stdin=b"ab").code == 0
    shell.ok("append", name, "c\nd\n", "--close")
    assert shell.ok("tail", name, "-n", "3").out == b"c\nd\n"


def test_a_start_is_given_once(shell: Shell, name: str) -> None:
    sentence(shell("tail", name, "-n", "3", "--offset", "-1"), code=2)


def test_tail_says_that_it_retries_and_resumes_at_the_exact_byte(tmp_path: Path, name: str) -> None:
    port = str(free_port())
    with running_server("--port", port, data=tmp_path) as server:
        shell = Shell(server.url)
        shell.ok("create", name, "before ", "--type", "text/plain")
        with running(shell, "tail", name, "--offset", "-1") as tail:
            tail.wait_for(b"before ")
            server.kill()
            tail.wait_for(b"Connection lost; retrying")
            with running_server("--port", port, data=tmp_path):
                shell.ok("append", name, "after")
                tail.wait_for(b"after")
                assert b"Connected again.\n" in tail.printed
                shell.ok("close", name)
                assert tail.end() == 0
            assert tail.printed.count(b"before ") == tail.printed.count(b"after") == 1
