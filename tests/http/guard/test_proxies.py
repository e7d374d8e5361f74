"""What proxies say about their clients: believed only from addresses that the operator has named."""

import json
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..guarded import guarded
from ..processes import eventually
from ..sockets import Wire

pytestmark = pytest.mark.attack

STREAM = "/v1/stream/mine/one"
TEXT = {"Content-Type": "text/plain"}


@pytest.mark.parametrize(
    ("flags", "claim", "scheme"),
    [
        ([], "https", "http"),
        (["--proxies", "10.0.0.0/8"], "https", "http"),
        (["--proxies", "10.0.0.0/8,127.0.0.1"], "https", "https"),
        (["--proxies", "127.0.0.1"], "HTTPS", "https"),
        (["--proxies", "127.0.0.1"], "http", "http"),
        (["--proxies", "127.0.0.1"], "https, http", "http"),
    ],
)
def test_only_a_proxy_says_that_its_client_came_over_tls(flags: list[str], claim: str, scheme: str) -> None:
    with running_server(*flags) as server, Wire(server.url) as wire:
        created = wire.ask("PUT", STREAM, {**TEXT, "X-Forwarded-Proto": claim})
        assert created.headers["location"] == f"{scheme}://localhost{STREAM}"


HOPS = [
    ("", "192.0.2.7", "127.0.0.1"),
    ("10.0.0.0/8", "192.0.2.7", "127.0.0.1"),
    ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
    ("127.0.0.1", " ", "127.0.0.1"),
    ("127.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
    ("127.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
    ("127.0.0.1", "192.0.2.7, unknown", "127.0.0.1"),
    ("127.0.0.1,10.0.0.0/8", "198.51.100.1, 192.0.2.7, 10.0.0.3", "192.0.2.7"),
    ("127.0.0.1,10.0.0.0/8", "192.0.2.7:4711, 10.0.0.3:4712", "192.0.2.7"),
    ("127.0.0.1,10.0.0.0/8", "10.0.0.4, 10.0.0.3", "10.0.0.4"),
]
"""Networks of proxies, what a peer on loopback claims, and which address counts."""


@pytest.mark.parametrize(("proxies", "claim", "address"), HOPS)
def test_only_a_proxy_says_whose_address_is_in_the_audit_log(
    proxies: str, claim: str, address: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    with guarded(tmp_path, {}, "--proxies", proxies, "--audit", str(audit)) as guard, guard.wire() as wire:
        put = {**TEXT, **guard.bearer("root"), "X-Forwarded-For": claim}
        assert wire.ask("PUT", STREAM, put).status == 201
        assert eventually(lambda: addresses(audit) == [address]), addresses(audit)


@pytest.mark.parametrize(("proxies", "claim", "address"), HOPS[1:3])
def test_the_same_holds_where_everybody_may_do_everything(
    proxies: str, claim: str, address: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    with running_server("--proxies", proxies, "--audit", str(audit)) as server, Wire(server.url) as wire:
        assert wire.ask("PUT", STREAM, {**TEXT, "X-Forwarded-For": claim}).status == 201
        assert eventually(lambda: addresses(audit) == [address]), addresses(audit)


def addresses(audit: Path) -> list[str]:
    """The addresses of those who created something."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    return [line["address"] for line in lines if line["event"] == "created"]
