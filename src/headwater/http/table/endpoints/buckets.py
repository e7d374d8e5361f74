"""Rows for buckets."""

from headwater.access.audit import Event
from headwater.access.grants import Action
from headwater.http.api import buckets
from headwater.http.table.routes import Endpoint, Gives, Route
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL
from headwater.protocol.refusals import Code

BUCKETS = (
    Endpoint(
        "/{bucket}",
        "bucket",
        {
            b"PUT": Route(
                buckets.create,
                Action.CREATE,
                "Create a bucket",
                {201: Gives("The bucket was created.", (CACHE_CONTROL,), event=Event.BUCKET_MADE)},
                (Code.BUCKET_EXISTS,),
            ),
            b"GET": Route(
                buckets.inspect,
                Action.READ,
                "Inspect a bucket",
                {200: Gives("Its name and its number of streams.", (CACHE_CONTROL,), content={JSON: "Bucket"})},
                (Code.BUCKET_NOT_FOUND,),
            ),
            b"DELETE": Route(
                buckets.delete,
                Action.DELETE,
                "Delete an empty bucket",
                {204: Gives("The bucket was deleted.", event=Event.BUCKET_DROPPED)},
                (Code.BUCKET_NOT_FOUND, Code.BUCKET_NOT_EMPTY),
            ),
        },
    ),
    Endpoint(
        "/{bucket}/streams",
        "streams",
        {
            b"GET": Route(
                buckets.listing,
                Action.READ,
                "List the streams of a bucket, sorted by id",
                {200: Gives("A page of the listing.", (CACHE_CONTROL,), content={JSON: "Listing"})},
                (Code.BUCKET_NOT_FOUND,),
                names_inside=True,
                query=("prefix", "after", "limit"),
            )
        },
    ),
)
