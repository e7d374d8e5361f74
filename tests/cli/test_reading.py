"""`headwater read` and `headwater tail`."""

import json
from pathlib import Path

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


def test_reading_goes_on_at_an_offset_that_was_given(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    offset = json.loads(shell.ok("append", name, "old", "--json").out)["next_offset"]
    shell.ok("append", name, "new")
    page = json.loads(shell.ok("read", name, "--offset", offset, "--json").out)
    assert (page["text"], page["up_to_date"], page["closed"]) == ("new", True, False)


def test_bytes_that_are_no_text_are_base64_in_json(shell: Shell, name: str) -> None:
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


def test_lines_of_a_stream_without_borders_are_an_error(shell: Shell, name: str) -> None:
    shell.ok("create", name, "x", "--type", "text/plain")
    assert "--lines" in sentence(shell("read", name, "--lines"))


def test_a_file_that_cannot_be_written_is_told(shell: Shell, name: str, tmp_path: Path) -> None:
    shell.ok("create", name, "x")
    assert "--output" in sentence(shell("read", name, "--output", str(tmp_path / "no" / "file")))


def test_a_failed_read_leaves_the_file_alone(shell: Shell, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    sentence(shell("read", name, "--output", str(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "precious"


def test_a_reader_that_has_enough_ends_the_command_without_a_word(shell: Shell, name: str) -> None:
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


def test_tail_ends_after_as_many_lines_as_wanted(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,[2],3]", "--type", "application/json")
    assert shell.ok("tail", name, "--offset", "-1", "--count", "2").out == b"1\n[2]\n"
    shell.ok("create", f"{name}-text", "a\nb\nc", "--type", "text/plain")
    assert shell.ok("tail", f"{name}-text", "--offset", "-1", "--count", "1").out == b"a\n"


def test_tail_tells_programs_where_to_go_on(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,2]", "--type", "application/json", "--closed")
    told = json.loads(shell.ok("tail", name, "--offset", "-1", "--json").out)
    assert (told["messages"], told["closed"]) == ([1, 2], True)
    assert told["next_offset"] == json.loads(shell.ok("head", name, "--json").out)["next_offset"]
