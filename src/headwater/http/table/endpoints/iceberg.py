"""Rows of the read-only Iceberg REST catalog."""

from headwater.access.grants import Action
from headwater.http.api import iceberg
from headwater.http.table.routes import Endpoint, Gives, Route, Takes
from headwater.http.wire.addresses import ICEBERG
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL

_ABOUT = (CACHE_CONTROL,)
_V1 = f"/{ICEBERG}/v1"
_NONE = {404: Gives("There is no such namespace or table.", _ABOUT, content={JSON: "IcebergError"})}
_AWAY = {503: Gives("The lake's store does not answer.", _ABOUT, content={JSON: "IcebergError"})}

_REFUSED = Route(
    iceberg.refuse_write,
    Action.PIPELINE,
    "Refuse to change a table: only the server writes them",
    {406: Gives("Nothing can be changed here.", _ABOUT, content={JSON: "IcebergError"})},
    takes=Takes({JSON: "Anything"}),
)

ICEBERG_CATALOG = (
    Endpoint(
        f"{_V1}/config",
        "iceberg-config",
        {
            b"GET": Route(
                iceberg.config,
                Action.PIPELINE,
                "Say what the Iceberg catalog can do",
                {200: Gives("Its configuration.", _ABOUT, content={JSON: "IcebergConfig"})},
            )
        },
    ),
    Endpoint(
        f"{_V1}/namespaces",
        "iceberg-namespaces",
        {
            b"GET": Route(
                iceberg.namespaces,
                Action.PIPELINE,
                "List the namespaces of the Iceberg catalog",
                {200: Gives("All of them.", _ABOUT, content={JSON: "IcebergNamespaces"})},
            ),
            b"POST": _REFUSED,
        },
    ),
    Endpoint(
        f"{_V1}/namespaces/{{namespace}}",
        "iceberg-namespace",
        {
            b"GET": Route(
                iceberg.namespace,
                Action.PIPELINE,
                "Inspect a namespace of the Iceberg catalog",
                {
                    200: Gives("Its properties.", _ABOUT, content={JSON: "IcebergNamespace"}),
                    204: Gives("It exists.", _ABOUT),
                }
                | _NONE,
            ),
            b"DELETE": _REFUSED,
        },
    ),
    Endpoint(
        f"{_V1}/namespaces/{{namespace}}/tables",
        "iceberg-tables",
        {
            b"GET": Route(
                iceberg.tables,
                Action.PIPELINE,
                "List the tables of the lake",
                {200: Gives("All of them.", _ABOUT, content={JSON: "IcebergTables"})} | _NONE | _AWAY,
            ),
            b"POST": _REFUSED,
        },
    ),
    Endpoint(
        f"{_V1}/namespaces/{{namespace}}/tables/{{table}}",
        "iceberg-table",
        {
            b"GET": Route(
                iceberg.table,
                Action.PIPELINE,
                "Load a table of the lake",
                {
                    200: Gives("Its metadata.", _ABOUT, content={JSON: "IcebergTable"}),
                    204: Gives("It exists.", _ABOUT),
                }
                | _NONE
                | _AWAY,
            ),
            b"POST": _REFUSED,
            b"DELETE": _REFUSED,
        },
    ),
    Endpoint(
        f"{_V1}/namespaces/{{namespace}}/tables/{{table}}/metrics",
        "iceberg-metrics",
        {
            b"POST": Route(
                iceberg.metrics,
                Action.PIPELINE,
                "Take the report of a scan of a table",
                {204: Gives("It was taken.", _ABOUT)} | _NONE,
                takes=Takes({JSON: "Anything"}),
            )
        },
    ),
)
