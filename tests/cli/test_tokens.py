"""`headwater token`."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.access.document import PolicyError, TokenTable, parse_document
from headwater.access.policy import load
from headwater.cli.tokens.editing import add_token, remove_token

from .commands import COMMAND, Shell, in_terminal, sentence

SHELL = Shell("http://127.0.0.1:1")
TOKEN = re.compile(r"hw_[a-z0-9-]+_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}")
FILE = """\
# The rules of this server.
version = 1

# The gateway; ask Ann before you change it.
[[token]]
id = "gateway"   # do not rename
sha256 = "{gateway}"
grants = [
  "append,create agents/*",  # it writes
  "read public/*",
]

# For the dashboard.
[[token]]
id = "dashboard"
sha256 = "{dashboard}"
grants = ["observe *"]

# How much they may do.
[limits.service]
requests_per_second = 50
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def auth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "auth.toml"
    path.write_text(FILE.format(gateway=digest("g"), dashboard=digest("d")))
    path.chmod(0o600)
    monkeypatch.setenv("HEADWATER_AUTH", str(path))
    monkeypatch.delenv("HEADWATER_TOKEN", raising=False)
    yield path


def test_init_writes_a_file_with_one_token_that_is_printed_once(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    made = SHELL.ok("token", "init", str(path)).text.strip()
    assert TOKEN.fullmatch(made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert made not in path.read_text() and digest(made) in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
    assert SHELL.ok("token", "check", "--auth", str(path), "admin *", stdin=made.encode()).code == 0
    before = path.read_bytes()
    assert "headwater token create" in sentence(SHELL("token", "init", str(path)))
    assert path.read_bytes() == before
    assert "cannot be read or written" in sentence(SHELL("token", "init", str(tmp_path / "no" / "auth.toml")))


def test_make_appends_a_token_and_leaves_the_rest_as_it_is(auth: Path) -> None:
    before = auth.read_text()
    made = SHELL.ok(
        "token", "create", "ingest", "append agents/*", "--limits", "service", "--note", 'say "hi"'
    ).text.strip()
    after = auth.read_text()
    assert after.startswith(before) and made not in after
    entry = tomllib.loads(after)["token"][-1]
    assert entry == {
        "id": "ingest",
        "sha256": digest(made),
        "grants": ["append agents/*"],
        "limits": "service",
        "note": 'say "hi"',
    }
    assert load(auth).tokens[hashlib.sha256(made.encode()).digest()].identity.name == "ingest"
    assert auth.stat().st_mode & 0o777 == 0o600 and list(auth.parent.iterdir()) == [auth]


def test_a_token_may_end(auth: Path) -> None:
    facts = json.loads(SHELL.ok("token", "create", "short", "read a/*", "--expires", "90d", "--json").text)
    assert TOKEN.fullmatch(facts.pop("token"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts["expires"])
    assert {**facts, "expires": None} == {
        "id": "short",
        "grants": ["read a/*"],
        "expires": None,
        "limits": None,
        "note": "",
    }
    assert facts["expires"] in SHELL.ok("token", "ls").text
    sentence(SHELL("token", "create", "long", "read a/*", "--expires", "99999999999d"), code=2)


def test_an_edit_keeps_the_mode_and_follows_a_link(auth: Path) -> None:
    real = auth.with_name("real.toml")
    auth.rename(real)
    auth.symlink_to(real)
    real.chmod(0o640)
    SHELL.ok("token", "create", "x", "read a/*")
    assert auth.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert "[[token]]" in real.read_text() and '"x"' in real.read_text()


def test_what_cannot_be_made_leaves_the_file_as_it_is(auth: Path) -> None:
    before = auth.read_bytes()
    assert "already" in sentence(SHELL("token", "create", "gateway", "read a/*"))
    assert "[limits.none]" in sentence(SHELL("token", "create", "x", "read a/*", "--limits", "none"))
    assert "tenant-1*/*" in sentence(SHELL("token", "create", "x", "read tenant-1*"), code=2)
    assert "not the id of a token" in sentence(SHELL("token", "create", "X_Y", "read a/*"), code=2)
    sentence(SHELL("token", "create", "x", "read a/*", "--expires", "soon"), code=2)
    assert SHELL("token", "create", "x").code == 2
    assert auth.read_bytes() == before
    auth.write_text("version = 1\nx = 1\n")
    assert "unknown field 'x'" in sentence(SHELL("token", "create", "x", "read a/*"))
    auth.unlink()
    assert "cannot be read" in sentence(SHELL("token", "create", "x", "read a/*"))


def test_without_a_file_the_usage_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_AUTH", raising=False)
    for arguments in (["ls"], ["create", "x", "read a/*"], ["rm", "x"], ["check", "x", "read a/b"]):
        assert "--auth or HEADWATER_AUTH" in sentence(SHELL("token", *arguments), code=2)


def test_list_shows_every_token_and_nothing_secret(auth: Path) -> None:
    text = SHELL.ok("token", "ls").text
    assert [line.split()[0] for line in text.splitlines()] == ["gateway", "dashboard"]
    assert "append,create agents/*; read public/*" in text and digest("g") not in text
    listed = json.loads(SHELL.ok("token", "ls", "--json").text)
    assert [one["id"] for one in listed] == ["gateway", "dashboard"] and "sha256" not in listed[0]
    auth.write_text("version = 1\n")
    assert json.loads(SHELL.ok("token", "ls", "--json").text) == []


def test_revoke_cuts_one_entry_and_keeps_every_other_comment(auth: Path) -> None:
    SHELL.ok("token", "rm", "gateway")
    text = auth.read_text()
    assert [one["id"] for one in tomllib.loads(text)["token"]] == ["dashboard"]
    for kept in (
        "# The rules of this server.",
        "# The gateway; ask Ann",
        "# For the dashboard.",
        "# How much they may do.",
    ):
        assert kept in text
    assert "do not rename" not in text
    assert json.loads(SHELL.ok("token", "rm", "dashboard", "--json").text) == {"id": "dashboard", "revoked": True}
    assert "token" not in tomllib.loads(auth.read_text()) and "[limits.service]" in auth.read_text()
    assert "has no token 'dashboard'" in sentence(SHELL("token", "rm", "dashboard"))


def test_a_layout_that_cannot_be_edited_is_left_alone(auth: Path) -> None:
    inline = f'version = 1\ntoken = [{{ id = "a", sha256 = "{digest("a")}", grants = [] }}]\n'
    auth.write_text(inline)
    for arguments in (["create", "x", "read a/*"], ["rm", "a"]):
        assert "by hand" in sentence(SHELL("token", *arguments))
    assert auth.read_text() == inline


def test_many_commands_at_once_lose_no_token(auth: Path) -> None:
    running = [
        subprocess.Popen([*COMMAND, "token", "create", f"t{number}", "read a/*"], stdout=subprocess.PIPE)
        for number in range(4)
    ]
    made = [process.communicate(timeout=60)[0].decode().strip() for process in running]
    assert {one["sha256"] for one in tomllib.loads(auth.read_text())["token"]} >= set(map(digest, made))


def test_check_says_which_grant_decides(auth: Path) -> None:
    done = SHELL.ok("token", "check", "gateway", "append agents/x")
    assert done.text == "gateway may append agents/x: 'append,create agents/*' covers it.\n"
    for asked, why in {
        "append agents2/x": "the nearest grant is 'append,create agents/*'",
        "delete agents/x": "the nearest grant is 'append,create agents/*'",
        "read agents/x": "the nearest grant is 'read public/*'",
        "observe *": "the nearest grant is",
        "read p*/*": "the nearest grant is 'read public/*'",
    }.items():
        done = SHELL("token", "check", "gateway", asked)
        assert (done.code, done.err) == (1, "") and why in done.text, done
    assert SHELL.ok("token", "check", "gateway", "read public/*").code == 0
    found = json.loads(SHELL("token", "check", "gateway", "read a/x", "--json").text)
    assert found == {
        "who": "gateway",
        "asked": "read a/x",
        "allowed": False,
        "why": "the nearest grant is 'read public/*'",
    }
    assert "has no token 'x'" in sentence(SHELL("token", "check", "x", "read a/x"))


@pytest.mark.parametrize("asked", ["", "read", "read x", "write a/x", "read,append a/x", "none a/x", "* a/x"])
def test_a_question_that_cannot_be_asked_is_wrong_usage(auth: Path, asked: str) -> None:
    sentence(SHELL("token", "check", "gateway", asked), code=2)
    assert SHELL("token", "check", "a", "b", "c").code == 2


def test_a_token_is_checked_from_standard_input_or_the_environment(auth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SHELL.ok("token", "create", "mine", "read a/*").text
    assert SHELL.ok("token", "check", "read a/x", stdin=made.encode()).text.startswith("mine may read a/x")
    assert SHELL("token", "check", "append a/x", stdin=made.encode()).code == 1
    assert "checksum" in sentence(SHELL("token", "check", "read a/x", stdin=made[:-3].encode()))
    assert "not a token of the access file" in sentence(SHELL("token", "check", "read a/x", stdin=b"other"))
    assert "standard input" in sentence(SHELL("token", "check", "read a/x"), code=2)
    monkeypatch.setenv("HEADWATER_TOKEN", made.strip())
    assert SHELL.ok("token", "check", "read a/x").code == 0
    SHELL.ok("token", "rm", "mine")
    done = SHELL("token", "check", "read a/x", "--json")
    assert json.loads(done.err)["error"] == "token_invalid" and made.strip() not in done.err


def test_a_token_among_the_arguments_is_refused(auth: Path) -> None:
    made = SHELL.ok("token", "create", "mine", "read a/*").text.strip()
    for arguments in (["check", made, "read a/x"], ["check", "eyJhbGciOi", "read a/x"], ["rm", made]):
        done = SHELL("token", *arguments)
        assert "as an argument" in sentence(done, code=2) and made not in done.err


def test_a_ticket_is_signed_and_checked(auth: Path) -> None:
    key = auth.with_name("app-2026.key")
    key.write_text("A" * 43 + "=\n")
    key.chmod(0o600)
    with auth.open("a") as file:
        file.write('[[key]]\nid = "app-2026"\nfile = "app-2026.key"\ngrants = ["read chat/*"]\n')
    sign = ["token", "sign", "--key", str(key), "--for", "10m", "--sub", "user-17"]
    ticket = SHELL.ok(*sign, "read,append chat/room-42").text
    assert SHELL.ok("token", "check", "read chat/room-42", stdin=ticket.encode()).text.startswith("user-17 may read")
    assert SHELL("token", "check", "append chat/room-42", stdin=ticket.encode()).code == 1
    assert json.loads(SHELL.ok(*sign, "read chat/*", "--kid", "k", "--json").text)["kid"] == "k"
    other = SHELL.ok(*sign, "--kid", "other", "read chat/*").text
    assert "would not accept" in sentence(SHELL("token", "check", "read chat/x", stdin=other.encode()))
    assert "tenant-1*/*" in sentence(SHELL(*sign, "read tenant-1*"), code=2)
    key.chmod(0o644)
    assert "chmod 600" in sentence(SHELL(*sign, "read chat/*"))


def test_on_a_terminal_make_says_that_the_token_is_not_shown_again(auth: Path) -> None:
    with in_terminal(SHELL, "token", "create", "x", "read a/*") as running:
        assert running.end() == 0
    assert b"cannot be shown again" in running.printed


def test_a_file_of_another_user_keeps_its_owner(auth: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(auth, 12345, 12345)
    SHELL.ok("token", "create", "x", "read a/*")
    assert (auth.stat().st_uid, auth.stat().st_gid) == (12345, 12345)


IDS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)
NOISE = st.sampled_from(
    ["", "\n", "# a comment\n", "# [[token]]\n", "[limits.x]\nlive_reads = 1\n", '  # "quoted"\r\n']
)
NOTES = st.text("ab\"'\\#[]= é\x7f", max_size=12) | st.just('"""\n[[token]]\nid = "z"')


@given(IDS, st.lists(NOISE, min_size=5, max_size=5), NOTES, st.data())
def test_adding_and_removing_change_one_entry_or_nothing(
    ids: list[str], noise: list[str], note: str, data: st.DataObject
) -> None:
    path = Path("auth.toml")
    text = "version = 1\n"
    used_limits = False
    for number, token_id in enumerate(ids):
        between = noise[number]
        if between.startswith("[limits"):
            between, used_limits = ("" if used_limits else between), True
        entry = TokenTable(id=token_id, sha256=digest(token_id), grants=["read a/*"], note=note)
        text = add_token(text + between, entry, path)
    assert [token.id for token in parse_document(text.encode(), path).token] == ids
    assert remove_token(text, "z", path) is None
    if ids:
        gone = data.draw(st.sampled_from(ids))
        try:
            left = remove_token(text, gone, path)
        except PolicyError as refused:
            assert "by hand" in str(refused)
            return
        assert left is not None
        assert [token.id for token in parse_document(left.encode(), path).token] == [one for one in ids if one != gone]
        assert left.count("# a comment") == text.count("# a comment")


def test_the_command_needs_nothing_of_the_server() -> None:
    source = "import sys, headwater.cli.tokens.command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert not {"cryptography", "pyarrow", "uvloop", "httptools"} & set(loaded.stdout.split())
