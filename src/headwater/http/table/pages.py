"""What browsers get: the front page, and the page that shows the OpenAPI document. Both need nothing from elsewhere."""

import base64
import hashlib
import html
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import metadata
from importlib.resources import files
from typing import NamedTuple

import msgspec

from headwater import __version__
from headwater.http.exchange.exchange import Exchange
from headwater.http.table.openapi import document
from headwater.http.table.routes import Endpoint, Handler
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import CONTENT_TYPE, JSON_LINES, NO_STORE_LINE
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol import headers

PROTOCOL_URL = "https://durablestreams.com"
LINKS = {
    "api": "/openapi",
    "openapi": "/openapi.json",
    "status": "/__headwater/status",
    "metrics": "/metrics",
    "ready": "/readyz",
}
CACHED_LINE = f"{headers.CACHE_CONTROL.line}public, max-age=300\r\n"
VARY_LINE = f"{headers.VARY.line}Accept, Origin\r\n"
VARY_ORIGIN_LINE = f"{headers.VARY.line}Origin\r\n"
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class Page(NamedTuple):
    """An HTML page, and the header lines without which a browser must not show it."""

    text: str
    lines: str


@cache
def page(name: str) -> Page:
    """A page of this package; its security policy allows exactly the style and the script in it."""
    text = (files("headwater.http") / "pages" / f"{name}.html").read_text()
    policy = ["default-src 'none'", "connect-src 'self'", "img-src data:"]
    for kind, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        policy.append(f"{kind}-src 'sha256-{digest}'")
    policy += "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"
    lines = (
        f"{CONTENT_TYPE}text/html; charset=utf-8\r\n"
        f"{headers.CONTENT_SECURITY_POLICY.line}{'; '.join(policy)}\r\n"
        f"{headers.REFERRER_POLICY.line}no-referrer\r\n"
    )
    return Page(text, lines)


# -- The front page ---------------------------------------------------------------------------------------------------


def root(request: Request, address: Address, exchange: Exchange) -> None:
    """Introduce the server: to a person in HTML, to a program in JSON."""
    number = __version__
    if prefers_html(request.header(headers.ACCEPT.key) or ""):
        front = page("root")
        facts = {"origin": exchange.origin(), "version": number, "documentation": documentation_url()}
        text = front.text
        for name, value in facts.items():
            text = text.replace(f"{{{{{name}}}}}", html.escape(value))
        exchange.answer(Answer(200, front.lines + NO_STORE_LINE + VARY_LINE, text.encode(), is_page=True))
    else:
        body = {"name": "headwater", "version": number, "links": LINKS | {"documentation": documentation_url()}}
        exchange.answer(Answer(200, JSON_LINES + VARY_LINE, msgspec.json.encode(body)))


def prefers_html(accept: str) -> bool:
    """Whether a client would rather have HTML than JSON.

    >>> prefers_html("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
    True
    >>> prefers_html("*/*"), prefers_html("text/html;q=0.5, application/json"), prefers_html("")
    (False, False, False)
    """
    weights: dict[str, float] = {}
    for item in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in item.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        weights[media_range] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    any_weight = weights.get("*/*", 0.0)
    wanted_html = weights.get("text/html", weights.get("text/*", any_weight))
    return wanted_html > weights.get("application/json", weights.get("application/*", any_weight))


@cache
def documentation_url() -> str:
    """Where the documentation is, as the installed package says; else the protocol's site."""
    for entry in metadata("headwater").get_all("Project-URL") or ():
        label, _, url = entry.partition(", ")
        if label == "Documentation":
            return str(url)
    return PROTOCOL_URL


# -- The API ----------------------------------------------------------------------------------------------------------


def openapi(request: Request, address: Address, exchange: Exchange) -> None:
    """A page that shows the OpenAPI document and sends requests."""
    shown = page("openapi")
    exchange.answer(Answer(200, shown.lines + CACHED_LINE + VARY_ORIGIN_LINE, shown.text.encode(), is_page=True))


def serve_document(endpoints: Callable[[], Sequence[Endpoint]]) -> Handler:
    """A handler for the OpenAPI document of an endpoint table, which is made when it is first needed."""
    encoded = cache(lambda: document.encode(endpoints()))

    def handle(request: Request, address: Address, exchange: Exchange) -> None:
        exchange.answer(Answer(200, f"{CONTENT_TYPE}application/json\r\n{CACHED_LINE}{VARY_ORIGIN_LINE}", encoded()))

    return handle
