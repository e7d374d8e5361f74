"""Streams from the command line: created, listed, closed and deleted, and what goes wrong."""

import json
import secrets
import shutil
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..http.processes import eventually
from .commands import Done, Shell, running, sentence

# -- create ------------------------------------------------------------------------------------------------------------


def test_create_prints_json_if_asked_and_nothing_to_a_pipe(shell: Shell, name: str) -> None:
    assert shell.ok("create", name, "--type", "text/plain").out == b""
    created = json.loads(shell.ok("create", name, "--type", "text/plain", "--json").out)
    assert (created["name"], created["new"]) == (name, False)
    assert created["next_offset"] == json.loads(shell.ok("show", name, "--json").out)["next_offset"]


def test_a_stream_can_start_with_data_be_closed_and_have_a_lifetime(shell: Shell, name: str) -> None:
    shell.ok("create", name, "hello", "--type", "text/plain", "--ttl", "1h", "--closed")
    found = json.loads(shell.ok("show", name, "--json").out)
    assert (found["bytes"], found["closed"], found["ttl_seconds"]) == (5, True, 3600)
    shell.ok("create", f"{name}-2", "--expires-at", "2100-01-01T00:00:00Z")
    assert "2100-01-01T00:00:00Z" in shell.ok("show", f"{name}-2").text


def test_the_first_message_may_be_piped_in(shell: Shell, name: str) -> None:
    data = secrets.token_bytes(100_000)
    shell.ok("create", name, "-", stdin=data)
    assert shell.ok("read", name).out == data


def test_a_fork_shares_its_source_up_to_an_offset(shell: Shell, name: str) -> None:
    shell.ok("create", name, "abc", "--type", "text/plain")
    offset = json.loads(shell.ok("show", name, "--json").out)["next_offset"]
    shell.ok("append", name, "def")
    shell.ok("create", f"{name}-all", "--fork-from", name)
    shell.ok("create", f"{name}-some", "--fork-from", name, "--offset", offset)
    assert shell.ok("read", f"{name}-all").out == b"abcdef"
    assert shell.ok("read", f"{name}-some").out == b"abc"


def test_a_stream_that_exists_with_other_options_is_an_error(shell: Shell, name: str) -> None:
    shell.ok("create", name, "--type", "text/plain")
    reason = sentence(shell("create", name, "--type", "text/html"))
    assert reason.startswith(f"Stream {name} exists with another content type") and f"headwater show {name}" in reason
    shell.ok("close", name)
    assert sentence(shell("create", name, "--type", "text/plain")).startswith(f"Stream {name} is already closed")


@pytest.mark.parametrize(
    "arguments",
    [["--ttl", "1", "--expires-at", "2100-01-01T00:00:00Z"], ["--offset", "now"], ["--ttl", "soon"], ["--ttl", "1.5s"]],
)
def test_contradictory_options_are_wrong_usage(shell: Shell, name: str, arguments: list[str]) -> None:
    sentence(shell("create", name, *arguments), code=2)


@pytest.mark.parametrize("content_type", ["nonsense", "text/", "text/plain\n", ""])
def test_an_invalid_content_type_is_wrong_usage(shell: Shell, name: str, content_type: str) -> None:
    error = sentence(shell("create", name, "--type", content_type), code=2)
    assert f"{content_type!r} is not a content type; write it like text/plain" in error
    assert shell("show", name).code == 1


def test_a_missing_source_of_a_fork_is_blamed_by_its_name(shell: Shell, name: str) -> None:
    error = sentence(shell("create", name, "--fork-from", "nosuch"))
    assert error == f"There is no stream nosuch at {shell.url} to fork from; list streams with `headwater ls`."


# -- head, ls, close, rm -----------------------------------------------------------------------------------------------


def test_head_prints_a_fact_per_line(shell: Shell, name: str) -> None:
    shell.ok("create", name, "[1,2]", "--type", "application/json")
    facts = dict(line.split("  ", 1) for line in shell.ok("show", name).text.splitlines())
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
    for verb in ("tail", "append"):
        assert f"headwater create {name}" in sentence(shell(verb, name)), verb
    for verb in ("rm", "show", "close", "read", "bootstrap"):
        assert (
            sentence(shell(verb, name))
            == f"There is no stream {name} at {shell.url}; list streams with `headwater ls demo`."
        )


@pytest.mark.parametrize("verb", ["show", "tail", "append", "read", "rm"])
def test_a_missing_stream_has_the_same_code_for_every_verb(shell: Shell, name: str, verb: str) -> None:
    # `head`, `tail` and `append` begin with a HEAD, whose answer has no body and so no code.
    error = json.loads(shell(verb, name, "--json").err)
    assert (error["error"], error["status"]) == ("stream_not_found", 404)


@pytest.mark.parametrize("path", ["../../{bucket}", "./x", "a/../b", ".."])
def test_a_name_with_dot_segments_reaches_no_other_url(shell: Shell, path: str) -> None:
    bucket = f"dots-{secrets.token_hex(4)}"
    shell.ok("bucket", "create", bucket)
    for verb in ("rm", "create", "show"):
        assert "is not a valid name" in sentence(shell(verb, path.format(bucket=bucket)), code=2)
    shell.ok("bucket", "show", bucket)


def test_several_streams_are_deleted_and_a_missing_one_does_not_stop_the_others(shell: Shell, name: str) -> None:
    names = [f"{name}-{number}" for number in range(3)]
    for one in (names[0], names[2]):
        shell.ok("create", one)
    done = shell("rm", *names, "--json")
    assert done.code == 1
    assert [json.loads(line)["name"] for line in done.out.splitlines()] == [names[0], names[2]]
    error = json.loads(done.err)
    assert (error["error"], error["status"]) == ("stream_not_found", 404)
    assert names[1] in error["detail"]


def test_streams_are_deleted_by_prefix(shell: Shell, name: str) -> None:
    for suffix in ("-a", "-b", ""):
        shell.ok("create", name + suffix)
    assert "matches 2 streams; confirm with --yes" in sentence(shell("rm", "--prefix", f"{name}-"), code=2)
    deleted = shell.ok("rm", "--prefix", f"{name}-", "--yes", "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in deleted] == [f"{name}-a", f"{name}-b"]
    shell.ok("show", name)
    for nothing in (f"{name}-", "no-such-bucket/"):
        done = shell("rm", "--prefix", nothing, "--yes")
        assert (done.code, done.err) == (0, f"No stream at {shell.url} begins with {nothing}.\n")
    # The bucket demo has streams, but a prefix without a slash is about streams without a bucket.
    assert shell("rm", "--prefix", "demo", "--yes").err.endswith("for bucket demo, use --prefix demo/.\n")


@pytest.mark.parametrize("prefix", ["", "/"])
def test_an_empty_prefix_deletes_nothing(shell: Shell, prefix: str) -> None:
    name = f"unbucketed-{secrets.token_hex(4)}"
    shell.ok("create", name)
    assert "use --prefix _default/" in sentence(shell("rm", "--prefix", prefix, "--yes"), code=2)
    shell.ok("show", name)
    shell.ok("rm", "--prefix", f"_default/{name}", "--yes")
    assert shell("show", name).code == 1


@pytest.mark.parametrize("arguments", [[], ["x", "--prefix", "y/"]])
def test_names_or_a_prefix_are_needed_to_delete(shell: Shell, arguments: list[str]) -> None:
    sentence(shell("rm", *arguments), code=2)


def test_a_prefix_can_be_listed_with_and_without_a_bucket(shell: Shell) -> None:
    token = secrets.token_hex(4)
    for name in (f"{token}-1", f"{token}-2", f"demo/{token}-3"):
        shell.ok("create", name, "--type", "text/plain")

    def listed(*arguments: str) -> list[str]:
        return [line.split()[0] for line in shell.ok("ls", *arguments).text.splitlines()]

    assert listed(f"{token}-") == [f"{token}-1", f"{token}-2"]
    assert listed(f"demo/{token}") == listed("demo", "--prefix", token) == [f"demo/{token}-3"]
    assert "demo/" + token + "-3" in listed("demo/")
    sentence(shell("ls", f"demo/{token}", "--prefix", "x"), code=2)


# -- Failures ----------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_during_a_pipe_is_reported(name: str) -> None:
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


def test_a_name_that_is_not_utf_8_is_wrong_usage(shell: Shell) -> None:
    sentence(shell("read", "demo/\udcff"), code=2)


def test_a_listing_of_a_server_without_streams_is_empty() -> None:
    with running_server() as server:
        assert Shell(server.url).ok("ls").out == b""
        assert json.loads(Shell(server.url).ok("ls", "--json").out) == []
        assert "headwater bucket create nowhere" in sentence(Shell(server.url)("ls", "nowhere"))


VERBS = ["create x", "append x y", "read x", "tail x", "head x", "ls", "close x", "rm x", "bucket show x", "status"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_server_is_reported_soon_and_in_one_sentence(verb: str) -> None:
    began = time.monotonic()
    error = sentence(Shell("http://127.0.0.1:1")(*verb.split()))
    assert time.monotonic() - began < 5
    assert "http://127.0.0.1:1" in error
    assert "headwater serve" in error


def test_a_separate_process_reports_the_same(shell: Shell) -> None:
    done = Shell("http://127.0.0.1:1").process("read", "x")
    assert "headwater serve" in sentence(done)
    assert done.out == b""
    assert "headwater ls demo" in sentence(shell.process("read", "demo/nothing"))
    assert shell.process("read").code == 2


@pytest.mark.parametrize(
    "options",
    [["--url", url] for url in ("ftp://host", "nothing", "http://[", "http://h:99999", "http://h:0", "http://ü")]
    + [["--header", line] for line in ("nothing", ": x", "a: b\n", "a: ü")],
)
def test_an_invalid_url_or_header_is_wrong_usage(shell: Shell, options: list[str]) -> None:
    sentence(shell("read", "x", *options), code=2)


def test_a_url_with_a_path_is_the_place_of_the_streams(shell: Shell, name: str) -> None:
    at = ("--url", f"{shell.url}/v1/stream", "--header", "Authorization: Bearer x")
    shell.ok("create", name, *at, "--type", "text/plain")
    shell.ok("append", name, *at, "--lines", stdin=b"a\nb\n")
    assert shell.ok("read", name, *at).out == b"a\nb\n"
    assert name in shell.ok("ls", "demo", *at).text


@pytest.mark.parametrize("offset", ["nonsense", "0000000000000000_0000000009999900"])
def test_an_invalid_offset_is_reported(shell: Shell, name: str, offset: str) -> None:
    shell.ok("create", name, "x", "--type", "text/plain")
    sentence(shell("read", name, "--offset", offset))
    sentence(shell("tail", name, "--offset", offset))


# -- Errors as JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "error", "status"),
    [
        (["read", "demo/nosuch"], 1, "stream_not_found", 404),
        (["bucket", "show", "nosuch"], 1, "bucket_not_found", 404),
        (["bucket", "create", "NO"], 1, "invalid_name", 400),
        (["append", "demo/nosuch", "x", "--no-such-option"], 2, "usage", None),
        (["create"], 2, "usage", None),
        (["show", "x", "--url", "http://127.0.0.1:1"], 1, "unreachable", None),
        (["lake", "show", "/nowhere"], 1, "failed", None),
        (["backup", "verify", "/nowhere"], 1, "failed", None),
    ],
)
def test_with_json_an_error_is_one_object(
    shell: Shell, arguments: list[str], code: int, error: str, status: int | None
) -> None:
    done = shell(*arguments, "--json")
    assert (done.code, done.out) == (code, b"")
    found = json.loads(done.err)
    assert found.keys() == {"error", "detail", "status"}
    assert (found["error"], found["status"]) == (error, status)
    assert found["detail"]


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is needed to make a certificate.")
class QuietServer(HTTPServer):
    """Prints nothing about a client that hangs up: the command under test shares its standard error."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def test_a_certificate_that_is_not_trusted_is_reported_as_that(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with QuietServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"https://localhost:{server.server_port}"
            error = sentence(Shell(url)("status", "--retry-seconds", "0"))
            trusting = Shell(url).process("show", "x", env={"SSL_CERT_FILE": str(certificate)})
        finally:
            server.shutdown()
            thread.join()
    assert f"The certificate of {url} is not trusted (self-signed certificate); set SSL_CERT_FILE" in error
    assert "certificate" not in trusting.err


def test_a_password_in_the_url_is_sent_and_never_printed(shell: Shell) -> None:
    url = shell.url.replace("http://", "http://ada:secret@")
    Shell(url).ok("create", "with-a-password", "--json")
    Shell(url).ok("append", "with-a-password", "x", "--json")
    failures = [
        Shell(url)("show", "missing"),
        Shell("http://ada:secret@127.0.0.1:1")("show", "x", "--retry-seconds", "0"),
        Shell("http://ada:secret@127.0.0.1:1")("doctor", "--json"),
    ]
    for done in failures:
        printed = f"{done.out!r}{done.err}"
        assert done.code == 1 and "http://127.0.0.1" in printed
        assert "secret" not in printed and "ada:" not in printed


def test_a_server_without_tls_is_reported_as_that(shell: Shell) -> None:
    url = shell.url.replace("http:", "https:")
    assert sentence(Shell(url)("show", "x")) == f"{url} does not speak TLS; try the URL with http://."
