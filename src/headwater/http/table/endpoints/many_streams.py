"""Rows about many streams at once, and about the lake."""

from dataclasses import replace

from headwater.access.audit import Event
from headwater.access.grants import Action
from headwater.http.api import buckets, bulk, lake, purges, scans, tail
from headwater.http.exchange.exchange import Exchange
from headwater.http.table.routes import Endpoint, Gives, Handler, Route, Takes
from headwater.http.wire.addresses import OWN, Address
from headwater.http.wire.requests import Request
from headwater.node.bulk.arrow import MEDIA_TYPE as ARROW
from headwater.protocol.content_types import JSON
from headwater.protocol.headers import CACHE_CONTROL, STREAM_LOG_ID, X_ACCEL_BUFFERING
from headwater.protocol.limits import BULK_BYTES_MAX, TAIL_BYTES_MAX
from headwater.protocol.refusals import Code, log_changed

_ABOUT = (CACHE_CONTROL,)
_NAME = "shop/orders"

_LISTING = (
    Endpoint(
        f"/{OWN}/buckets",
        "buckets",
        {
            b"GET": Route(
                buckets.all_buckets,
                Action.OBSERVE,
                "List all buckets, sorted by id: those that were created, and those that hold streams",
                {200: Gives("A page of the listing.", _ABOUT, content={JSON: "BucketListing"})},
                query=("prefix", "after", "limit"),
            )
        },
    ),
    Endpoint(
        f"/{OWN}/streams",
        "all-streams",
        {
            b"GET": Route(
                buckets.all_streams,
                Action.READ,
                "List the streams of all buckets, sorted by whole name",
                {200: Gives("A page of the listing.", _ABOUT, content={JSON: "WholeListing"})},
                names_inside=True,
                query=("prefix", "after", "limit"),
            )
        },
    ),
)

_READING = (
    Endpoint(
        f"/{OWN}/describe",
        "describe",
        {
            b"POST": Route(
                scans.describe,
                Action.PIPELINE,
                "Describe many streams: by name, or a page of those whose whole names begin with a prefix",
                {200: Gives("A row for each that exists, sorted by name.", _ABOUT, content={ARROW: "Descriptions"})},
                names_inside=True,
                takes=Takes({JSON: "DescribeRequest"}, required=True, examples={JSON: {"prefix": "shop/"}}),
                body_bytes_max=scans.BODY_BYTES_MAX,
            )
        },
    ),
    Endpoint(
        f"/{OWN}/locate",
        "locate",
        {
            b"POST": Route(
                scans.locate,
                Action.PIPELINE,
                "Find the offsets at which records begin",
                {
                    200: Gives(
                        "An offset for each; null if the incarnation is gone, trimmed past the record, or shorter.",
                        _ABOUT,
                        content={JSON: "Offsets"},
                    )
                },
                names_inside=True,
                takes=Takes({JSON: "LocateRequest"}, required=True, examples={JSON: {"records": [[_NAME, 1, 0]]}}),
                body_bytes_max=scans.BODY_BYTES_MAX,
            )
        },
    ),
    Endpoint(
        f"/{OWN}/scan",
        "scan",
        {
            b"POST": Route(
                scans.scan,
                Action.PIPELINE,
                "Read ranges of many streams: the messages that begin in each range",
                {
                    200: Gives(
                        "The rows range by range, in the columns of the lake, as of one instant.",
                        _ABOUT,
                        content={ARROW: "Scanned"},
                    )
                },
                (Code.RANGES_UNAVAILABLE,),
                names_inside=True,
                takes=Takes({JSON: "ScanRequest"}, required=True, examples={JSON: {"ranges": [[_NAME, 1, 0, 1000]]}}),
                body_bytes_max=scans.BODY_BYTES_MAX,
            )
        },
    ),
)

_EVENTS = {
    200: Gives(
        "Batches of all these streams as they come.",
        (CACHE_CONTROL, X_ACCEL_BUFFERING),
        content={"text/event-stream": "TailEvents"},
    )
}
_FOLLOWING = (
    Endpoint(
        f"/{OWN}/tail",
        "tail",
        {
            b"POST": Route(
                tail.follow,
                Action.READ,
                "Follow many streams on one connection",
                _EVENTS,
                (Code.INVALID_OFFSET, Code.WAITERS_TOO_MANY),
                names_inside=True,
                takes=Takes(
                    {JSON: "TailRequest"},
                    required=True,
                    examples={JSON: {"streams": [{"stream": _NAME, "offset": "-1"}]}},
                ),
                body_bytes_max=TAIL_BYTES_MAX,
            ),
            b"GET": Route(
                tail.follow_few,
                Action.READ,
                "Follow a few streams on one connection, for clients that can send no body, such as `EventSource`",
                _EVENTS,
                (Code.INVALID_OFFSET, Code.WAITERS_TOO_MANY),
                names_inside=True,
                query=("s",),
            ),
        },
        head=False,
    ),
)

_WRITING = (
    Endpoint(
        f"/{OWN}/append",
        "append",
        {
            b"POST": Route(
                bulk.append,
                Action.PIPELINE,
                "Append to many streams: each row is an append and is judged on its own",
                {
                    200: Gives(
                        "The outcome of each row, in order, when all are decided; after a refused row, later rows of "
                        "the same stream are refused too.",
                        _ABOUT,
                        content={ARROW: "Outcomes"},
                    )
                },
                names_inside=True,
                takes=Takes({ARROW: "Appends"}, required=True),
                body_bytes_max=BULK_BYTES_MAX,
                intake=bulk.intake,
            )
        },
    ),
    Endpoint(
        f"/{OWN}/producers/{{producer}}",
        "producer",
        {
            b"DELETE": Route(
                bulk.finish,
                Action.PIPELINE,
                "Finish a producer: nothing more is accepted of it, and streams forget it",
                {204: Gives("It has finished.", _ABOUT)},
            )
        },
    ),
)

_LOG = (
    Endpoint(
        f"/{OWN}/log",
        "log",
        {
            b"GET": Route(
                lake.describe_log,
                Action.PIPELINE,
                "Find out how far the log is, and where its lake is",
                {200: Gives("The lake's URL is for those who may reach all of it.", _ABOUT, content={JSON: "Log"})},
                names_inside=True,
            )
        },
    ),
)

_LAKE = (
    Endpoint(
        f"/{OWN}/flush",
        "flush",
        {
            b"POST": Route(
                lake.flush,
                Action.PIPELINE,
                "Flush everything acknowledged so far to the lake, and wait until it is there",
                {
                    200: Gives(
                        "The position on each shard up to which that is true.", _ABOUT, content={JSON: "Positions"}
                    )
                },
                query=("tables",),
            )
        },
    ),
    Endpoint(
        f"/{OWN}/consumers",
        "consumers",
        {
            b"GET": Route(
                lake.consumers,
                Action.PIPELINE,
                "List the registered consumers of the lake",
                {200: Gives("All of them, sorted by name.", _ABOUT, content={JSON: "Consumers"})},
            )
        },
    ),
    Endpoint(
        f"/{OWN}/consumers/{{consumer}}",
        "consumer",
        {
            b"GET": Route(
                lake.consumers,
                Action.PIPELINE,
                "Inspect a registered consumer of the lake",
                {200: Gives("Its position.", _ABOUT, content={JSON: "Consumer"})},
                (Code.CONSUMER_NOT_FOUND,),
            ),
            b"PUT": Route(
                lake.register,
                Action.PIPELINE,
                "Record the position of a consumer of the lake, which keeps everything above it, or take a lease",
                {
                    204: Gives(
                        "Recorded; it counts for seven days, or for the seconds that it says.",
                        _ABOUT,
                        event=Event.CONSUMER_REGISTERED,
                    )
                },
                (Code.CONSUMER_LAPSED, Code.CONSUMERS_TOO_MANY),
                takes=Takes({JSON: "Registration"}, required=True, examples={JSON: {"positions": {"0": 0}}}),
            ),
            b"DELETE": Route(
                lake.forget,
                Action.PIPELINE,
                "Remove a consumer of the lake",
                {204: Gives("It is not registered.", _ABOUT, event=Event.CONSUMER_DROPPED)},
            ),
        },
    ),
    Endpoint(
        f"/{OWN}/swap",
        "swap",
        {
            b"POST": Route(
                lake.swap,
                Action.ADMIN,
                "Replace segments of the lake by rewritten ones, whose objects are in the store already",
                {
                    200: Gives(
                        "Replaced at this position or before.", _ABOUT, content={JSON: "Swapped"}, event=Event.SWAPPED
                    )
                },
                (Code.SWAP_REFUSED,),
                takes=Takes({JSON: "SwapRequest"}, required=True),
                for_jobs=True,
            )
        },
    ),
)

_PURGING = (
    Endpoint(
        f"/{OWN}/purge",
        "purge",
        {
            b"POST": Route(
                purges.begin,
                Action.ADMIN,
                "Delete streams and remove every byte of them now: from lake, log, images and snapshots",
                {
                    202: Gives(
                        "It has begun; ask how far it is.", _ABOUT, content={JSON: "PurgeBegun"}, event=Event.PURGED
                    )
                },
                (Code.FORK_CONFLICT, Code.NOT_IMPLEMENTED, Code.LOG_UNAVAILABLE, Code.OUTCOME_UNKNOWN),
                takes=Takes({JSON: "PurgeRequest"}, required=True, examples={JSON: {"stream": _NAME}}),
            )
        },
    ),
    Endpoint(
        f"/{OWN}/purges/{{purge}}",
        "purge",
        {
            b"GET": Route(
                purges.show,
                Action.ADMIN,
                "Ask how far a purge is",
                {
                    200: Gives(
                        "Its stage; done when nothing is left, or when it was refused.",
                        _ABOUT,
                        content={JSON: "PurgeStatus"},
                    )
                },
                (Code.PURGE_NOT_FOUND,),
            )
        },
    ),
)


def _check_log(run: Handler) -> Handler:
    """A handler that refuses requests about the log of another server, or of this one before a restore.

    Bare positions and incarnations of another log mean nothing.
    """

    def checked(request: Request, address: Address, exchange: Exchange) -> None:
        theirs, ours = request.header(STREAM_LOG_ID.key), exchange.node.log_id
        if theirs is None or theirs == ours:
            run(request, address, exchange)
        else:
            exchange.reply(log_changed(ours, theirs))

    return checked


def _of_one_log(endpoint: Endpoint) -> Endpoint:
    """The same endpoint, for requests that may say which log their positions and incarnations came from."""
    routes = {
        method: replace(
            route,
            run=_check_log(route.run),
            headers=(*route.headers, STREAM_LOG_ID),
            refuses=(*route.refuses, Code.INCARNATION_CHANGED),
        )
        for method, route in endpoint.routes.items()
        if method != b"HEAD"  # It comes with GET.
    }
    return replace(endpoint, routes=routes)


MANY_STREAMS = (*_LISTING, *_FOLLOWING, *_LOG, *_PURGING, *map(_of_one_log, (*_READING, *_WRITING, *_LAKE)))
