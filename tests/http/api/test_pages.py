"""What browsers get: the front page and the API's page. Neither needs anything from elsewhere."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from headwater.testing import RunningServer

from ...examples import chromium
from ..sockets import Wire

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = ["/", "/openapi"]


@pytest.mark.parametrize("accept", [{}, {"Accept": "*/*"}, {"Accept": "application/json"}])
def test_a_program_is_introduced_to_the_server_in_json(wire: Wire, accept: dict[str, str]) -> None:
    response = wire.ask("GET", "/", accept)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert response.headers["vary"] == "Accept, Origin"
    introduction = json.loads(response.body)
    assert (introduction["name"], introduction["version"]) == ("headwater", version("headwater"))
    for target in introduction["links"].values():
        assert not target.startswith("/") or wire.ask("GET", target).status == 200


def test_a_browser_gets_a_page_with_commands_for_this_server(wire: Wire) -> None:
    response = wire.ask("GET", "/", BROWSER)
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = response.body.decode()
    assert text.count("http://localhost/v1/stream/hello") == 3
    assert version("headwater") in text
    assert "{{" not in text


def test_head_of_the_front_page_is_its_get_without_a_body(wire: Wire) -> None:
    for accept in ({}, BROWSER):
        get, head = wire.ask("GET", "/", accept), wire.ask("HEAD", "/", accept)
        assert (head.status, head.headers["content-length"]) == (200, str(len(get.body)))
        assert head.headers["content-type"] == get.headers["content-type"]


def test_the_name_that_a_client_uses_for_the_server_cannot_add_markup(wire: Wire) -> None:
    text = wire.ask("GET", "/", BROWSER | {"Host": "a'b&c.localhost"}).body.decode()
    assert "http://a&#x27;b&amp;c.localhost/v1/stream/hello" in text


def test_the_front_page_can_only_be_read(wire: Wire) -> None:
    assert wire.ask("POST", "/").headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("target", PAGES)
def test_a_page_may_use_its_own_style_and_script_and_nothing_else(wire: Wire, target: str) -> None:
    response = wire.ask("GET", target, BROWSER)
    policy = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
    text = response.body.decode()
    for kind in ("style", "script"):
        [content] = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert not re.search(r"""\bsrc=|@import|\burl\(|\bon[a-z]+="|\bstyle=""", text)
    assert re.findall(r'<link[^>]+href="([a-z]+):', text) == ["data"]


# -- In a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Page]:
    program = chromium.find()
    if program is None:
        pytest.skip("no Chromium is installed")
    with chromium.page(program) as page:
        yield page


def test_the_api_page_shows_every_operation_and_sends_a_request(server: RunningServer, browser: chromium.Page) -> None:
    browser.go(f"{server.url}/openapi#flat_put_stream")
    form = "document.querySelector('#flat_put_stream form')"
    browser.wait(f"!!{form}")
    shown = browser.evaluate("[...document.querySelectorAll('.operation')].map((one) => one.id)")
    assert {"flat_get_stream", "put_snapshot_at", "post_scan", "get_root", "ds_get_bootstrap"} <= set(shown)
    browser.evaluate(f"{form}.querySelector('input').value = 'from-the-page'; {form}.requestSubmit()")
    browser.wait(f"!!{form}.querySelector('h4 .ok')")
    assert browser.evaluate(f"{form}.querySelector('h4').textContent").startswith("201 Created")
    with Wire(server.url) as wire:
        assert wire.ask("GET", "/v1/stream/from-the-page").body == b"hello, world"


def test_the_api_page_resolves_every_reference(server: RunningServer, browser: chromium.Page) -> None:
    browser.go(f"{server.url}/openapi")
    browser.wait("document.querySelectorAll('.operation').length > 20")
    browser.evaluate("document.querySelectorAll('.operation').forEach((one) => { one.open = true; })")
    browser.wait("document.querySelectorAll('.body').length === document.querySelectorAll('.operation').length")
    text = browser.evaluate("document.getElementById('main').textContent")
    for wrong in ("[object", "undefined", "$ref", "#/components"):
        assert wrong not in text
    for right in ("stream_next_offset", "Stream-Next-Offset", "application/problem+json", '"prefix":"shop/"'):
        assert right in text, right


def test_the_filter_hides_other_operations(server: RunningServer, browser: chromium.Page) -> None:
    browser.go(f"{server.url}/openapi")
    browser.wait("document.querySelectorAll('.operation').length > 20")
    browser.evaluate(
        "document.getElementById('filter').value = 'put snapshot/';"
        "document.getElementById('filter').dispatchEvent(new Event('input'))"
    )
    visible = "[...document.querySelectorAll('.operation')].filter((one) => !one.hidden).map((one) => one.id)"
    assert browser.evaluate(visible) == ["put_snapshot_at", "ds_put_snapshot_at"]
