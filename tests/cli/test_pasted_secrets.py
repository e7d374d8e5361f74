"""A secret that is given where the name of its file is expected is not repeated in the error."""

import secrets
import traceback
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.access import tickets, tokens
from headwater.cli import main
from headwater.spark.failures import LinkFailed
from headwater.spark.link import Link, LinkSettings

from ..http.authorities import Authority

pytestmark = pytest.mark.attack

RANDOM = secrets.token_bytes(30) + b"\xff\xff"  # In base64 it ends with slashes, like a path.
SECRETS = {
    "key": urlsafe_b64encode(RANDOM).decode(),
    "key like a path": b64encode(RANDOM[::-1]).decode(),
    "token": tokens.make("ingest"),
    "ticket": tickets.sign(RANDOM, ["read *"], key_id="app", seconds=60),
    "PEM": "-----BEGIN PRIVATE KEY-----\n" + b64encode(RANDOM * 6).decode() + "\n-----END PRIVATE KEY-----\n",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(Authority(tmp_path_factory.mktemp("authority")).issue("server").cert)


def reveals(text: str, secret: str) -> bool:
    """Whether a text has some part of a secret that is long enough to matter; wrapped lines are joined."""
    text = "".join(text.split())
    return any(part[at : at + 12] in text for part in secret.split("\n")[-2:] for at in range(0, len(part) - 12, 4))


def commands(secret: str, certificate: str, folder: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """What somebody may run, and with which environment."""
    access = folder / "auth.toml"
    access.write_text(f'version = 1\n[[key]]\nid = "app"\nfile = """{secret}"""\ngrants = []\n')
    tls = ["--tls-cert", certificate, "--tls-key", secret]
    return {
        "token sign": (["token", "sign", "--key", secret, "--for", "1m", "read a/*"], {}),
        "key in the access file": (["serve", "--memory", "--auth", str(access)], {}),
        "doctor of the access file": (["doctor", "--auth", str(access)], {}),
        "serve --tls-key": (["serve", "--memory", *tls], {}),
        "HEADWATER_TLS_KEY": (["serve", "--memory", *tls[:2]], {"HEADWATER_TLS_KEY": secret}),
        "doctor --tls-key": (["doctor", *tls], {}),
        "--token-file": (["status", "--token-file", secret], {}),
        "HEADWATER_TOKEN_FILE": (["status"], {"HEADWATER_TOKEN_FILE": secret}),
        "login": (["login", "http://127.0.0.1:9", "--token-file", secret], {}),
    }


@pytest.mark.parametrize("kind", SECRETS)
def test_no_command_repeats_a_secret_in_place_of_a_path(kind: str, certificate: str, tmp_path: Path) -> None:
    secret = SECRETS[kind]
    for place, (arguments, environment) in commands(secret, certificate, tmp_path).items():
        done = CliRunner().invoke(main, arguments, env={"XDG_CONFIG_HOME": str(tmp_path), **environment})
        assert done.exit_code in (1, 2), (place, done.output)
        assert done.output, place
        assert "not exist" in " ".join(done.output.split()) or "cannot be read" in done.output, (place, done.output)
        assert not reveals(done.output, secret), (place, done.output)


@pytest.mark.parametrize("kind", ["token", "ticket"])
@pytest.mark.parametrize("command", [["serve", "--memory"], ["token", "ls"], ["doctor"]], ids=" ".join)
def test_a_token_in_place_of_the_access_file_is_not_repeated(kind: str, command: list[str]) -> None:
    secret = SECRETS[kind]
    for arguments, environment in ([*command, "--auth", secret], {}), (command, {"HEADWATER_AUTH": secret}):
        done = CliRunner().invoke(main, arguments, env=environment)
        assert done.exit_code in (1, 2)
        assert "not exist" in " ".join(done.output.split())
        assert not reveals(done.output, secret), done.output


@pytest.mark.parametrize("kind", SECRETS)
def test_spark_does_not_repeat_a_secret_in_place_of_a_path(kind: str, certificate: str) -> None:
    secret = SECRETS[kind]
    for settings in (
        LinkSettings("http://127.0.0.1:1", token_file=secret),
        LinkSettings("https://127.0.0.1:1", tls_ca=certificate, tls_cert=certificate, tls_key=secret),
    ):
        with pytest.raises(LinkFailed, match="not exist") as caught, Link(settings) as link:
            link.status()
        assert not reveals("".join(traceback.format_exception(caught.value)), secret)
