"""Rows about the server itself."""

from collections.abc import Callable, Sequence

from headwater.http.addresses import OWN
from headwater.http.api import metrics, operate, pages
from headwater.http.routes import Action, Endpoint, Gives, Route
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY

_ABOUT = (CACHE_CONTROL,)
_TEXT = {"text/plain": "Text"}
_PAGE = (CONTENT_SECURITY_POLICY, REFERRER_POLICY)


SERVER = (
    Endpoint(
        "/",
        "root",
        {
            b"GET": Route(
                pages.root,
                Action.NONE,
                "Introduce the server: a page for browsers, JSON for other clients",
                {
                    200: Gives(
                        "Its name, its version and where to go next.",
                        (CACHE_CONTROL, VARY),
                        _PAGE,
                        {JSON: "Root", "text/html": "Text"},
                    )
                },
            )
        },
    ),
    Endpoint(
        "/healthz",
        "healthz",
        {
            b"GET": Route(
                operate.alive,
                Action.NONE,
                "Check whether the process is alive",
                {200: Gives("It is.", _ABOUT, content=_TEXT)},
                on_reserve=True,
            )
        },
    ),
    Endpoint(
        "/readyz",
        "readyz",
        {
            b"GET": Route(
                operate.ready,
                Action.NONE,
                "Check whether to send requests here: not while the server starts or shuts down",
                {200: Gives("It is ready.", _ABOUT, content=_TEXT)},
                on_reserve=True,
            )
        },
    ),
    Endpoint(
        "/metrics",
        "metrics",
        {
            b"GET": Route(
                metrics.metrics,
                Action.OBSERVE,
                "Read all metrics in the text format of Prometheus",
                {200: Gives("The metrics.", _ABOUT, content=_TEXT)},
                on_reserve=True,
            )
        },
    ),
    Endpoint(
        f"/{OWN}/status",
        "status",
        {
            b"GET": Route(
                operate.status,
                Action.OBSERVE,
                "Show the server's version, health and usage",
                {200: Gives("For people and scripts; fields may be added.", _ABOUT, content={JSON: "Status"})},
            )
        },
    ),
    Endpoint(
        "/openapi",
        "openapi",
        {
            b"GET": Route(
                pages.openapi,
                Action.NONE,
                "Browse this API and try requests",
                {200: Gives("A page.", (CACHE_CONTROL, VARY, *_PAGE), content={"text/html": "Text"})},
            )
        },
        operation="openapi_page",
    ),
)
"""All of them except the OpenAPI document."""


def document_endpoint(endpoints: Callable[[], Sequence[Endpoint]]) -> Endpoint:
    """The OpenAPI document, which describes all rows, this one included."""
    return Endpoint(
        "/openapi.json",
        "openapi",
        {
            b"GET": Route(
                pages.serve_document(endpoints),
                Action.NONE,
                "Read this API as an OpenAPI document",
                {200: Gives("The document.", (CACHE_CONTROL, VARY), content={JSON: "Document"})},
            )
        },
    )
