"""The health check of the image, run as Docker runs it, against servers with and without TLS."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.testing import running_server
from headwater.testing.ports import free_port

from ..http.authorities import Authority

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text().replace("\\\n", " ")
[CHECK] = [json.loads(command) for command in re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)]


def is_healthy(port: int | None, **more: str) -> bool:
    variables = {"HEADWATER_HOST": "0.0.0.0", "HEADWATER_PORT": str(port), **more}
    assert CHECK[0] == "python"
    done = subprocess.run(
        [sys.executable, *CHECK[1:]], check=False, env={**os.environ, **variables}, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    return done.returncode == 0


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    # For another name than that of this machine, as certificates are.
    return list(Authority(tmp_path_factory.mktemp("authority")).issue("server", "DNS:streams.example").flags)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority(tmp_path_factory.mktemp("clients")).ca


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a process that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_server_is_healthy_with_tls_and_without(tls: list[str], by_variable: bool) -> None:
    more = {"HEADWATER_TLS_CERT": tls[1]} if by_variable else {}
    for flags in ([], tls):
        with running_server(*flags) as server:
            assert is_healthy(urlsplit(server.url).port, **more)


def test_a_server_that_requires_client_certificates_is_healthy(tls: list[str], ca: Path) -> None:
    with running_server(*tls, "--tls-client-ca", str(ca)) as server:
        assert is_healthy(urlsplit(server.url).port, HEADWATER_TLS_CERT=tls[1])


def test_without_a_server_or_with_one_that_hangs_it_is_not(silent: int) -> None:
    assert not is_healthy(free_port())
    assert not is_healthy(silent)
