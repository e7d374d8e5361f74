"""Rows about a cluster."""

from headwater.access.grants import Action
from headwater.http.api import cluster
from headwater.http.table.routes import Endpoint, Gives, Route
from headwater.http.wire.addresses import OWN
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL
from headwater.protocol.refusals import Code

_ABOUT = (CACHE_CONTROL,)

CLUSTER = (
    Endpoint(
        f"/{OWN}/cluster",
        "cluster",
        {
            b"GET": Route(
                cluster.show,
                Action.OBSERVE,
                "Show the cluster as this node sees it",
                {200: Gives("Members, chores, NATS; fields may be added.", _ABOUT, content={JSON: "Cluster"})},
                (Code.NOT_IMPLEMENTED,),
                on_reserve=True,
            )
        },
    ),
    Endpoint(
        f"/{OWN}/cluster/checkpoint",
        "checkpoint",
        {
            b"POST": Route(
                cluster.checkpoint,
                Action.ADMIN,
                "Have every node hash its state at one position",
                {200: Gives("The id of the checkpoint.", _ABOUT, content={JSON: "Checkpoint"})},
                (Code.NOT_IMPLEMENTED, Code.LOG_UNAVAILABLE, Code.OUTCOME_UNKNOWN),
            )
        },
    ),
    Endpoint(
        f"/{OWN}/cluster/image",
        "image",
        {
            b"POST": Route(
                cluster.image,
                Action.ADMIN,
                "Have this node store an image of its state",
                {200: Gives("The log, and how far the image reaches in it.", _ABOUT, content={JSON: "ImageTaken"})},
                (Code.NOT_IMPLEMENTED, Code.OVERLOADED),
            )
        },
    ),
    Endpoint(
        f"/{OWN}/cluster/drain",
        "drain",
        {
            b"POST": Route(
                cluster.drain,
                Action.ADMIN,
                "Have this node finish its requests, leave the cluster and end",
                {202: Gives("It does.", _ABOUT)},
                (Code.NOT_IMPLEMENTED,),
            )
        },
    ),
)
