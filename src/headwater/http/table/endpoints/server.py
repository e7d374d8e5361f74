"""Rows about the server itself."""

from collections.abc import Callable, Sequence

from headwater.access.grants import Action
from headwater.http.api import access, operate
from headwater.http.table import pages
from headwater.http.table.routes import Endpoint, Gives, Route
from headwater.http.wire.addresses import OWN
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY
from headwater.protocol.refusals import Code

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
                operate.metrics,
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
        f"/{OWN}/whoami",
        "whoami",
        {
            b"GET": Route(
                access.whoami,
                Action.NONE,
                "Find out who the server takes a client for",
                {200: Gives("The name, and what proves it.", _ABOUT, content={JSON: "Whoami"})},
            )
        },
    ),
    Endpoint(
        f"/{OWN}/usage",
        "usage",
        {
            b"GET": Route(
                access.usage,
                Action.ADMIN,
                "Show what each client and each bucket uses",
                {
                    200: Gives(
                        "Since the server started, or since a client was last idle.", _ABOUT, content={JSON: "Usage"}
                    )
                },
            )
        },
    ),
    Endpoint(
        f"/{OWN}/reload",
        "reload",
        {
            b"POST": Route(
                access.reload,
                Action.ADMIN,
                "Read the access file again",
                {200: Gives("New rules are in force; these entries have changed.", _ABOUT, content={JSON: "Reloaded"})},
                (Code.RELOAD_REFUSED, Code.NOT_FOUND),
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
