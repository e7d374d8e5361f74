"""What pages can do to a server on loopback, tried in Chromium: from elsewhere nothing, from this machine everything.

Each attack is also tried on a server that is open to everybody, where it succeeds: it is the server that refuses it.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import RunningServer, running_server

from ..examples import chromium
from .guarded import guarded
from .sites import Document, Site, running_site
from .sockets import Wire

pytestmark = pytest.mark.attack

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser" / "index.html"
EVIL = "evil.example"
NAMES = [EVIL, "localhost.evil.com", "127.0.0.1.nip.io"]
"""Names that an attacker has; in the test's browser all of them mean this machine."""

TEXT = {"Content-Type": "text/plain"}
SECRET, MORE = b"secret", b"of the attacker"


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Page]:
    program = chromium.find()
    if program is None:
        pytest.skip("no Chromium is installed")
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in NAMES)
    with chromium.page(program, f"--host-resolver-rules={rules}") as page:
        yield page


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as site:
        yield site


@pytest.fixture(scope="module")
def local() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def everybodys() -> Iterator[RunningServer]:
    with running_server("--no-auth") as server:
        yield server


def visit(page: chromium.Page, url: str) -> None:
    """Open a page anew and wait until it is complete."""
    page.go("about:blank")
    page.wait("location.href === 'about:blank'")
    page.go(url)
    page.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")


def outcome(page: chromium.Page, script: str, url: str) -> object:
    """What a promise comes to in the page; `url` is what it calls URL."""
    return page.evaluate(f"(() => {{ const URL = {json.dumps(url)}; return {script} }})().catch(() => 'refused')")


def put(server: RunningServer, name: str, content_type: str, body: bytes) -> str:
    """Make a stream anew, and return its URL."""
    with Wire(server.url) as wire:
        wire.ask("DELETE", f"/v1/stream/local/{name}")
        assert wire.ask("PUT", f"/v1/stream/local/{name}", {"Content-Type": content_type}, body).status == 201
    return f"{server.url}/v1/stream/local/{name}"


def content(server: RunningServer, name: str) -> bytes | None:
    with Wire(server.url) as wire:
        response = wire.ask("GET", f"/v1/stream/local/{name}")
        return response.body if response.status == 200 else None


# -- Pages from elsewhere ----------------------------------------------------------------------------------------------

LOAD = """new Promise((done, fail) => {{
    const element = document.createElement('{tag}'); element.onerror = fail;
    element.onload = () => done('loaded'); Object.assign(element, {{{attributes}}});
    document.head.append(element); }})"""
EVENTS = """new Promise((done, fail) => {
    const source = new EventSource(`${URL}?offset=-1&live=sse`);
    source.addEventListener('data', (event) => { source.close(); done(event.data); });
    source.onerror = () => { source.close(); fail(); }; })"""

READS = {
    "fetch": ("text/plain", SECRET, "fetch(URL).then((response) => response.text())", "secret"),
    "EventSource": ("text/plain", SECRET, EVENTS, "secret"),
    "a script": (
        "text/javascript",
        b"self.taken = 'secret'",
        LOAD.format(tag="script", attributes="src: URL") + ".then(() => self.taken)",
        "secret",
    ),
    "a style": ("text/css", b"a {}", LOAD.format(tag="link", attributes="rel: 'stylesheet', href: URL"), "loaded"),
    "an image": (
        "image/svg+xml",
        b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        LOAD.format(tag="img", attributes="src: URL"),
        "loaded",
    ),
}


@pytest.mark.parametrize("way", READS)
def test_a_page_from_elsewhere_reads_nothing(
    browser: chromium.Page, site: Site, local: RunningServer, everybodys: RunningServer, way: str
) -> None:
    content_type, body, script, success = READS[way]
    for server, expected in ((everybodys, success), (local, "refused")):
        visit(browser, site.url(EVIL))
        assert outcome(browser, script, put(server, way.replace(" ", "-"), content_type, body)) == expected


POST = "{method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body: 'of the attacker'}"
BEACON = """new Promise((done) => {
    new PerformanceObserver((list) => list.getEntriesByName(URL).length && done()).observe({type: 'resource'});
    navigator.sendBeacon(URL, new Blob(['of the attacker'], {type: 'text/plain'})); })"""
FORM = """new Promise((done) => {
    const frame = document.createElement('iframe'); frame.name = 'answer';
    const form = document.createElement('form');
    Object.assign(form, {action: URL, method: 'post', enctype: 'text/plain', target: 'answer'});
    form.innerHTML = '<input name="of the attacker" value="">';
    document.body.append(frame, form); frame.onload = done; form.submit();
    setTimeout(done, 1000); })"""
"""A refusal is shown in the frame; success, which has no content, is not."""
WITHOUT_ORIGIN = f"""new Promise((done) => {{
    const frame = document.createElement('iframe'); frame.sandbox = 'allow-scripts';
    self.addEventListener('message', done, {{once: true}});
    frame.srcdoc = `<script>fetch('${{URL}}', {POST}).catch(() => 0).then(() => parent.postMessage(1, '*'))</script>`;
    document.body.append(frame); }})"""

WRITES = {
    "POST": f"fetch(URL, {POST})",
    "POST without a referrer": f"fetch(URL, {{...{POST}, referrerPolicy: 'no-referrer'}})",
    "POST of a page without an origin": WITHOUT_ORIGIN,
    "a beacon": BEACON,
    "a form": FORM,
    "DELETE": "fetch(URL, {method: 'DELETE'})",
    "PUT": "fetch(`${URL}-new`, {method: 'PUT', headers: {'Content-Type': 'text/plain'}, body: 'of the attacker'})",
}


@pytest.mark.parametrize("way", WRITES)
def test_a_page_from_elsewhere_changes_nothing(
    browser: chromium.Page, site: Site, local: RunningServer, everybodys: RunningServer, way: str
) -> None:
    for server, succeeds in ((everybodys, True), (local, False)):
        visit(browser, site.url(EVIL))
        outcome(browser, WRITES[way], put(server, "write", "text/plain", SECRET))
        found, new = content(server, "write"), content(server, "write-new")
        if not succeeds:
            assert (found, new) == (SECRET, None)
        elif way == "PUT":
            assert new == MORE
        elif way == "DELETE":
            assert found is None
        else:
            assert found is not None
            assert found.startswith(SECRET + MORE)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_looks_like_this_machine_is_elsewhere(
    browser: chromium.Page, site: Site, local: RunningServer, name: str
) -> None:
    url = put(local, "alike", "text/plain", SECRET)
    visit(browser, site.url(name))
    for script in (READS["fetch"][2], WRITES["POST"], WRITES["DELETE"]):
        assert outcome(browser, script, url) == "refused"
    assert content(local, "alike") == SECRET


CALLS = """(async () => {
    const headers = {'Content-Type': 'text/plain'}, statuses = [];
    for (const [method, body] of [['GET'], ['POST', 'of the attacker'], ['DELETE']])
        statuses.push((await fetch(URL, {method, headers, body})).status);
    return statuses; })()"""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_does_not_reach_the_server_under_a_name_of_its_own(
    browser: chromium.Page, site: Site, local: RunningServer, everybodys: RunningServer, name: str
) -> None:
    for server, expected in ((everybodys, [200, 204, 204]), (local, [421, 421, 421])):
        url = put(server, "rebound", "text/plain", SECRET)
        visit(browser, site.url(name))
        site.rebound_to = server.url  # What the name means changes while the page is open.
        statuses = outcome(browser, CALLS, url.removeprefix(server.url))
        site.rebound_to = None
        assert statuses == expected
    assert content(local, "rebound") == SECRET


# -- Streams in a tab --------------------------------------------------------------------------------------------------

RUN = "<script>document.documentElement.setAttribute('class', 'ran')</script>"
STYLESHEET = f"""<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><html><body>{RUN}</body></html></xsl:template></xsl:stylesheet>"""
PAGES: dict[str, Document] = {
    "html": ("text/html", f"<!doctype html><body>{RUN}".encode()),
    "xhtml": ("application/xhtml+xml", f"<html xmlns='http://www.w3.org/1999/xhtml'>{RUN}</html>".encode()),
    "svg": ("image/svg+xml", f"<svg xmlns='http://www.w3.org/2000/svg'>{RUN}</svg>".encode()),
    "xml": ("application/xml", b"<?xml-stylesheet type='text/xsl' href='stylesheet'?><a/>"),
    "stylesheet": ("text/xsl", STYLESHEET.encode()),
}
HAS_RUN = "document.documentElement?.getAttribute('class') === 'ran'"


@pytest.mark.parametrize("kind", PAGES)
def test_a_stream_that_is_opened_in_a_tab_runs_no_script_and_has_no_origin(
    browser: chromium.Page, site: Site, local: RunningServer, kind: str
) -> None:
    for name, document in PAGES.items():
        put(local, name, *document)
        site.documents[f"/{name}"] = document
    visit(browser, site.url("127.0.0.1", f"/{kind}"))
    # Chromium is about to give up XSLT, so that this script may not run anywhere one day.
    assert browser.evaluate(HAS_RUN) or kind == "xml"
    visit(browser, f"{local.url}/v1/stream/local/{kind}")
    assert not browser.evaluate(HAS_RUN)
    assert browser.evaluate("self.origin") == "null"


@pytest.mark.parametrize("content_type", ["application/pdf", "text/javascript", "application/json", "text/plain"])
def test_a_stream_that_holds_no_page_is_not_taken_for_one(
    browser: chromium.Page, local: RunningServer, content_type: str
) -> None:
    visit(browser, put(local, content_type.replace("/", "-"), content_type, f'"<!doctype html><body>{RUN}"'.encode()))
    assert not browser.evaluate(HAS_RUN)
    assert browser.evaluate("document.contentType") == content_type


@pytest.mark.parametrize("path", ["/", "/openapi"])
def test_no_stream_runs_as_a_script_of_the_servers_own_pages(
    browser: chromium.Page, local: RunningServer, path: str
) -> None:
    url = put(local, "script", "text/javascript", b"self.ran = true; self.postMessage?.('ran')")
    visit(browser, f"{local.url}{path}")
    ways = {
        "a script": LOAD.format(tag="script", attributes="src: URL"),
        "a module": "import(URL)",
        "a worker": "new Promise((done, fail) => Object.assign(new Worker(URL), {onmessage: done, onerror: fail}))",
        "a service worker": "navigator.serviceWorker.register(URL)",
    }
    for way, script in ways.items():
        assert outcome(browser, f"(async () => {script})()", url) == "refused", way
    assert browser.evaluate("self.ran") is None
    assert browser.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0


REGISTER = "navigator.serviceWorker.register(URL).then(() => 'registered')"


def test_no_stream_becomes_a_service_worker_of_the_site_that_a_server_belongs_to(
    browser: chromium.Page, site: Site, everybodys: RunningServer
) -> None:
    # The site has pages of its own, and passes everything else on, as a proxy does.
    site.documents["/worker.js"] = ("text/javascript", b"self.onfetch = () => {}")
    url = put(everybodys, "worker", "text/javascript", b"self.onfetch = () => {}")
    visit(browser, site.url("127.0.0.1"))
    site.rebound_to = everybodys.url
    assert outcome(browser, REGISTER, "/worker.js") == "registered"
    assert outcome(browser, REGISTER, url.removeprefix(everybodys.url)) == "refused"
    assert outcome(browser, "fetch(URL).then((found) => found.text())", url.removeprefix(everybodys.url)) != "refused"
    site.rebound_to = None
    everything = (
        "navigator.serviceWorker.getRegistrations().then((all) => Promise.all(all.map((one) => one.unregister())))"
    )
    assert browser.evaluate(f"{everything}.then((all) => all.length)") == 1


# -- Pages that may ----------------------------------------------------------------------------------------------------


def test_a_page_of_this_machine_does_everything(browser: chromium.Page, site: Site, local: RunningServer) -> None:
    url = put(local, "ours", "text/plain", SECRET)
    for host in ("localhost", "127.0.0.1"):
        visit(browser, site.url(host))
        assert outcome(browser, f"fetch(URL, {{...{POST}, mode: 'cors'}}).then((done) => done.status)", url) == 204
        assert outcome(browser, READS["fetch"][2], url) == (content(local, "ours") or b"").decode()
        assert str(outcome(browser, EVENTS, url)).startswith("secret")
        assert outcome(browser, "fetch(URL, {credentials: 'include'})", url) == "refused"  # Cookies are never taken.
        outcome(browser, WRITES["PUT"], url)
        assert content(local, "ours-new") == MORE
        outcome(browser, WRITES["DELETE"], f"{url}-new")
        assert content(local, "ours-new") is None


def test_the_example_page_works_on_this_machine(browser: chromium.Page, site: Site, local: RunningServer) -> None:
    site.documents["/example"] = ("text/html; charset=utf-8", EXAMPLE.read_bytes())
    visit(browser, site.url("localhost", f"/example?stream={local.url}/v1/stream/local/example"))
    browser.wait("document.getElementById('state')?.textContent === 'live'")
    browser.evaluate("document.getElementById('text').value = 'from the page'")
    browser.evaluate("document.getElementById('form').requestSubmit()")
    browser.wait("document.querySelector('#messages li span')?.textContent === 'from the page'")
    assert b'"from the page"' in (content(local, "example") or b"")


# -- With tickets ------------------------------------------------------------------------------------------------------

FOLLOW = """
    Object.assign(self, {seen: [], ends: 0, problems: []});
    async function follow(id) {
        const query = new URLSearchParams({live: 'sse', access_token: await (await fetch('/ticket')).text()});
        const [offset, incarnation] = id.split('/');
        query.set('offset', offset);
        if (incarnation) query.set('incarnation', incarnation);
        const source = new EventSource(`${STREAM}?${query}`);
        source.addEventListener('data', (event) => { seen.push(...JSON.parse(event.data)); id = event.lastEventId; });
        source.addEventListener('control', (event) => { id = event.lastEventId; });
        source.addEventListener('credential-expired', () => { ends += 1; source.close(); follow(id); });
        source.onerror = () => problems.push(source.readyState);
    }
    follow('-1');"""


def test_an_event_source_goes_on_with_a_new_ticket_where_the_old_one_ended(
    browser: chromium.Page, site: Site, tmp_path: Path
) -> None:
    path, numbers, stop = "/v1/stream/chat/room", [0], threading.Event()
    with guarded(tmp_path, {}) as guard:
        writer = {**guard.bearer("root"), "Content-Type": "application/json"}
        with guard.wire() as wire:
            assert wire.ask("PUT", path, writer, b"[0]").status == 201

        def write() -> None:
            with guard.wire() as wire:
                while not stop.wait(0.01):
                    numbers.append(numbers[-1] + 1)
                    assert wire.ask("POST", path, writer, str(numbers[-1]).encode()).status == 204

        site.answers["/ticket"] = lambda: guard.ticket("read chat/room", seconds=2)
        visit(browser, site.url(EVIL))  # With a ticket, the origin does not matter.
        thread = threading.Thread(target=write)
        thread.start()
        try:
            browser.evaluate(f"const STREAM = {json.dumps(guard.server.url + path)}; {FOLLOW}")
            browser.wait("ends >= 3")
        finally:
            stop.set()
            thread.join()
        browser.wait(f"seen.length >= {len(numbers)}")
        assert browser.evaluate("seen") == numbers
        assert browser.evaluate("problems") == []


def test_an_event_source_without_a_valid_ticket_gives_up(browser: chromium.Page, site: Site, tmp_path: Path) -> None:
    with guarded(tmp_path, {}) as guard:
        with guard.wire() as wire:
            assert wire.ask("PUT", "/v1/stream/chat/room", {**guard.bearer("root"), **TEXT}, SECRET).status == 201
        short = guard.ticket("read chat/room", seconds=1)
        time.sleep(1.1)
        visit(browser, site.url(EVIL))
        for ticket in (short, guard.ticket("read chat/other"), guard.tokens["root"]):
            script = EVENTS.replace("?offset", f"?access_token={ticket}&offset")
            assert outcome(browser, script, f"{guard.server.url}/v1/stream/chat/room") == "refused"
        script = EVENTS.replace("?offset", f"?access_token={guard.ticket('read chat/room')}&offset")
        assert outcome(browser, script, f"{guard.server.url}/v1/stream/chat/room") == "secret"
