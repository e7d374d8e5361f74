"""Streams from the command line: made, written, read, followed, listed and deleted."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..http.processes import eventually
from .commands import Done, Shell, running, sentence


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with running_server() as server:
        yield Shell(server.url)


@pytest.fixture
def name() -> str:
    return f"demo/{secrets.token_hex(6)}"


# -- Creating ----------------------------------------------------------------------------------------------------------


def test_a_created_stream_is_told_to_a_program_as_json_and_to_a_pipe_not_at_all(shell: Shell, name: str) -> None:
    assert shell.ok("create", name, "--type", "text/plain").out == b""
    told = json.loads(shell.ok("create", name, "--type", "text/plain", "--json").out)
    assert (told["name"], told["new"], told["next_offset"]) == (name, False, "0000000000000000_0000000000000000")


def test_a_stream_may_begin_with_data_and_be_closed_and_have_a_lifetime(shell: Shell, name: str) -> None:
    shell.ok("create", name, "hello", "--type", "text/plain", "--ttl", "3600", "--closed")
    found = json.loads(shell.ok("head", name, "--json").out)
    assert (found["bytes"], found["closed"], found["ttl_seconds"]) == (5, True, 3600)
    shell.ok("create", f"{name}-2", "--expires-at", "2100-01-01T00:00:00Z")
    assert "2100-01-01T00:00:00Z" in shell.ok("head", f"{name}-2").text


def test_a_stream_may_begin_with_what_is_piped_in(shell: Shell, name: str) -> None:
    data = secrets.token_bytes(100_000)
    shell.ok("create", name, "-", stdin=data)
    assert shell.ok("read", name).out == data


def test_a_fork_shares_its_source_up_to_an_offset(shell: Shell, name: str) -> None:
    shell.ok("create", name, "abcdef", "--type", "text/plain")
    shell.ok("create", f"{name}-all", "--fork-from", name)
    shell.ok("create", f"{name}-some", "--fork-from", name, "--offset", "0000000000000000_0000000000000003")
    assert shell.ok("read", f"{name}-all").out == b"abcdef"
    assert shell.ok("read", f"{name}-some").out == b"abc"


def test_a_stream_that_is_there_but_different_is_an_error(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    assert f"headwater head {name}" in sentence(shell("create", name, "--type", "text/html"))


@pytest.mark.parametrize(
    "arguments", [["--ttl", "1", "--expires-at", "2100-01-01T00:00:00Z"], ["--offset", "now"], ["--ttl", "soon"]]
)
def test_options_that_make_no_sense_together_are_wrong_usage(shell: Shell, name: str, arguments: list[str]) -> None:
    sentence(shell("create", name, *arguments), code=2)


# -- Appending ---------------------------------------------------------------------------------------------------------


def test_each_argument_is_a_message(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    told = json.loads(shell.ok("append", name, '{"a": 1}', "[2,3]", "4", "--json").out)
    assert (told["messages"], told["duplicates"]) == (4, 0)
    assert shell.ok("read", name, "--lines").text == '{"a": 1}\n2\n3\n4\n'


def test_bytes_go_through_append_and_read_unchanged(shell: Shell, name: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    shell.ok("create", name)
    shell.ok("append", name, stdin=data)
    assert shell.ok("read", name).out == data
    shell.ok("read", name, "--output", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data


def test_a_pipe_of_lines_reads_back_as_it_was(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    done = shell.bash(
        f"seq 1 20000 | headwater append {name} --lines\nprintf 'no end' | headwater append {name} --lines"
    )
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert shell.ok("read", name).text == "".join(f"{number}\n" for number in range(1, 20_001)) + "no end"


def test_each_line_is_a_message_with_borders_of_its_own(shell: Shell, name: str) -> None:
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


def test_each_line_of_json_is_one_message_also_an_array_and_empty_ones_are_none(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    shell.ok("append", name, "--lines", stdin=b'[1,2]\n\n "x" \r\n')
    assert shell.ok("read", name, "--lines").out == b'[1,2]\n"x"\n'


def test_a_line_that_is_no_json_is_told_by_its_number_and_those_before_it_are_kept(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    told = sentence(shell("append", name, "--lines", stdin=b"1\n2\n3],[4\n5\n"))
    assert "Line 3 " in told
    assert "2 messages" in told
    assert shell.ok("read", name).out == b"[1,2]\n"


def test_json_values_are_told_apart_whatever_stands_between_them(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    long = json.dumps("é" * 400_000, ensure_ascii=False).encode()
    shell.ok("append", name, "--json-values", stdin=b'{"a":\n 1.50}[2] 34\n"x"' + long + b" 5")
    lines = shell.ok("read", name, "--lines").out.split(b"\n")
    assert lines == [b'{"a":  1.50}', b"[2]", b"34", b'"x"', long, b"5", b""]


def test_json_values_that_are_none_are_told(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "application/json")
    assert "Value 2 " in sentence(shell("append", name, "--json-values", stdin=b"1 {"))
    assert "UTF-8" in sentence(shell("append", name, "--json-values", stdin=b'"\xff"'))
    assert "not valid JSON" in sentence(shell("append", name, "{"))
    assert shell.ok("read", name).out == b"[1]\n"


def test_a_producer_writes_each_message_once_however_often_it_is_run(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    run = ("append", name, "--lines", "--producer", "import", "--json")
    assert json.loads(shell.ok(*run, stdin=b"a\nb\n").out)["messages"] == 2
    told = json.loads(shell.ok(*run, stdin=b"a\nb\nc\n").out)
    assert (told["messages"], told["duplicates"]) == (1, 2)
    assert shell.ok("read", name).out == b"a\nb\nc\n"


def test_a_producer_of_an_older_epoch_is_told_how_to_take_over(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    shell.ok("append", name, "new", "--producer", "p", "--epoch", "3")
    assert "--epoch 4" in sentence(shell("append", name, "old", "--producer", "p"))


def test_the_last_message_can_close_the_stream(shell: Shell, name: str) -> None:
    for suffix, more in (("1", []), ("2", ["--producer", "p"]), ("3", ["--lines"])):
        shell.ok("create", name + suffix, "--type", "text/plain")
        shell.ok("append", name + suffix, "--close", *more, stdin=b"x\ny")
        assert json.loads(shell.ok("head", name + suffix, "--json").out)["closed"] is True
        assert shell.ok("read", name + suffix).out == b"x\ny"
        assert "closed" in sentence(shell("append", name + suffix, "z"))


def test_an_empty_pipe_appends_nothing(shell: Shell, name: str) -> None:
    shell.ok("create", name)
    assert json.loads(shell.ok("append", name, "--json").out)["messages"] == 0
    sentence(shell("append", name, ""), code=2)


@pytest.mark.parametrize("options", [["--lines", "--json-values"], ["--epoch", "2"], ["--epoch", "-1"], ["--no"]])
def test_appending_in_two_ways_at_once_is_wrong_usage(shell: Shell, name: str, options: list[str]) -> None:
    assert shell("append", name, "x", *options).code == 2


# -- Reading -----------------------------------------------------------------------------------------------------------


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


# -- Following ---------------------------------------------------------------------------------------------------------


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


# -- Looking, closing, deleting ----------------------------------------------------------------------------------------


def test_head_says_what_a_stream_is_in_lines(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,2]", "--type", "application/json")
    facts = dict(line.split("  ", 1) for line in shell.ok("head", name).text.splitlines())
    assert {key.strip(): value.strip() for key, value in facts.items()}.items() >= {
        "name": name,
        "content type": "application/json",
        "record next": "2",
        "closed": "no",
    }.items()


def test_a_listing_has_all_pages_and_full_names(shell: Shell) -> None:
    bucket = f"many{secrets.token_hex(4)}"
    for number in range(12):
        shell.ok("create", f"{bucket}/{'ab'[number % 2]}{number:03}", "x", "--type", "text/plain")
    listed = [line.split()[0] for line in shell.ok("ls", bucket).text.splitlines()]
    assert listed == sorted(f"{bucket}/{'ab'[number % 2]}{number:03}" for number in range(12))
    assert len(json.loads(shell.ok("ls", bucket, "--prefix", "a", "--json").out)) == 6
    limited = json.loads(shell.ok("ls", bucket, "--limit", "5", "--json").out)
    assert [one["name"] for one in limited] == listed[:5]


def test_streams_without_a_bucket_are_listed_without_one(shell: Shell) -> None:
    shell.ok("create", "alone", "--type", "text/plain")
    assert "alone" in [line.split()[0] for line in shell.ok("ls").text.splitlines()]


def test_a_deleted_stream_is_gone(shell: Shell, name: str) -> None:
    shell.ok("create", name)
    assert json.loads(shell.ok("rm", name, "--json").out) == {"name": name, "deleted": True}
    for verb in ("read", "tail", "append"):
        assert f"headwater create {name}" in sentence(shell(verb, name)), verb
    for verb in ("rm", "head", "close"):
        assert (
            sentence(shell(verb, name))
            == f"There is no stream {name} at {shell.url}; list streams with `headwater ls demo`."
        )


# -- What goes wrong ---------------------------------------------------------------------------------------------------


def test_a_server_that_goes_away_in_the_middle_of_a_pipe_is_told(name: str) -> None:
    with running_server() as server:
        shell = Shell(server.url)
        shell.ok("create", name, "--type", "text/plain")
        with running(shell, "append", name, "--lines") as append:
            append.type(b"one\n")
            assert eventually(lambda: shell("read", name).out == b"one\n", 60.0)
            server.kill()
            append.type(b"two\n")
            sentence(Done(append.end(), b"", append.printed.decode()))
            assert append.printed.count(b"\n") == 1, append.printed


def test_a_name_that_is_no_text_is_wrong_usage(shell: Shell) -> None:
    sentence(shell("read", "demo/\udcff"), code=2)


def test_a_listing_of_a_server_without_streams_is_empty() -> None:
    with running_server() as server:
        assert Shell(server.url).ok("ls").out == b""
        assert json.loads(Shell(server.url).ok("ls", "--json").out) == []
        assert "headwater bucket make nowhere" in sentence(Shell(server.url)("ls", "nowhere"))


VERBS = ["create x", "append x y", "read x", "tail x", "head x", "ls", "close x", "rm x", "bucket show x", "status"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_not_there_is_told_in_one_sentence(verb: str) -> None:
    told = sentence(Shell("http://127.0.0.1:1")(*verb.split()))
    assert "http://127.0.0.1:1" in told
    assert "headwater serve" in told


def test_a_process_of_its_own_says_the_same(shell: Shell) -> None:
    done = Shell("http://127.0.0.1:1").process("read", "x")
    assert "headwater serve" in sentence(done)
    assert done.out == b""
    assert "headwater create demo/nothing" in sentence(shell.process("read", "demo/nothing"))
    assert shell.process("read").code == 2


@pytest.mark.parametrize(
    "options",
    [["--url", url] for url in ("ftp://host", "nothing", "http://[", "http://h:99999", "http://h:0", "http://ü")]
    + [["--header", line] for line in ("nothing", ": x", "a: b\n", "a: ü")],
)
def test_an_address_or_header_that_is_none_is_wrong_usage(shell: Shell, options: list[str]) -> None:
    sentence(shell("read", "x", *options), code=2)


def test_a_url_with_a_path_is_where_the_streams_are(shell: Shell, name: str) -> None:
    at = ("--url", f"{shell.url}/v1/stream", "--header", "Authorization: Bearer x")
    shell.ok("create", name, *at, "--type", "text/plain")
    shell.ok("append", name, *at, "--lines", stdin=b"a\nb\n")
    assert shell.ok("read", name, *at).out == b"a\nb\n"
    assert name in shell.ok("ls", "demo", *at).text


@pytest.mark.parametrize("offset", ["nonsense", "0000000000000000_0000000000999999"])
def test_an_offset_that_is_none_is_told(shell: Shell, name: str, offset: str) -> None:
    shell.ok("create", name, "x", "--type", "text/plain")
    sentence(shell("read", name, "--offset", offset))
    sentence(shell("tail", name, "--offset", offset))
