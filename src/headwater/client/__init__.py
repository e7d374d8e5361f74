"""A client for Durable Streams: for any server of the protocol, with the extensions of Headwater where they exist.

`Client` blocks, `AsyncClient` is awaited. `Admin` and `AsyncAdmin` are for operators of a Headwater server.
"""

from headwater.client.admin import ConsumerInfo, PurgeBegun, PurgeInfo, ScanRange
from headwater.client.asynchronous.admin import AsyncAdmin
from headwater.client.asynchronous.carrier import AsyncBootstrap, AsyncFollower, AsyncManyFollower
from headwater.client.asynchronous.client import AsyncBucket, AsyncClient
from headwater.client.asynchronous.runtime import AsyncFlow
from headwater.client.asynchronous.stream import AsyncStream
from headwater.client.asynchronous.writing import AsyncProducer
from headwater.client.blocking.admin import Admin
from headwater.client.blocking.carrier import Bootstrap, Follower, ManyFollower
from headwater.client.blocking.client import Bucket, Client
from headwater.client.blocking.runtime import Flow
from headwater.client.blocking.stream import Stream
from headwater.client.blocking.writing import Producer
from headwater.client.errors import (
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    Gone,
    HostRefused,
    IncarnationChanged,
    NotFound,
    OffsetTrimmed,
    OutcomeUnknown,
    PreconditionFailed,
    ProducerEnded,
    ProducerEpochUsed,
    ProducerFenced,
    ProtocolViolation,
    QuotaExceeded,
    RateLimited,
    RequestRefused,
    ResponseIncomplete,
    SequenceConflict,
    ServerUnavailable,
    StreamClosed,
    TooLarge,
    TransportFailed,
    Unauthorized,
)
from headwater.client.framing import Deframer, frame
from headwater.client.operations import Fork, IfExists
from headwater.client.retrying import RetryPolicy
from headwater.client.settings import AsyncRequestValue, RequestValue
from headwater.client.urls import ServerUrls
from headwater.client.values import (
    NOW,
    START,
    Appended,
    BatchAck,
    BucketInfo,
    Chunk,
    Created,
    ListedStream,
    Live,
    OnDuplicate,
    OnRefused,
    OnTrimmed,
    Record,
    Snapshot,
    StreamInfo,
)

__all__ = [
    "NOW",
    "START",
    "Admin",
    "Appended",
    "AsyncAdmin",
    "AsyncBootstrap",
    "AsyncBucket",
    "AsyncClient",
    "AsyncFlow",
    "AsyncFollower",
    "AsyncManyFollower",
    "AsyncProducer",
    "AsyncRequestValue",
    "AsyncStream",
    "BadRequest",
    "BatchAck",
    "Bootstrap",
    "Bucket",
    "BucketInfo",
    "Chunk",
    "Client",
    "ClientError",
    "Conflict",
    "ConsumerInfo",
    "Created",
    "Deframer",
    "Flow",
    "Follower",
    "Forbidden",
    "Fork",
    "Gone",
    "HostRefused",
    "IfExists",
    "IncarnationChanged",
    "ListedStream",
    "Live",
    "ManyFollower",
    "NotFound",
    "OffsetTrimmed",
    "OnDuplicate",
    "OnRefused",
    "OnTrimmed",
    "OutcomeUnknown",
    "PreconditionFailed",
    "Producer",
    "ProducerEnded",
    "ProducerEpochUsed",
    "ProducerFenced",
    "ProtocolViolation",
    "PurgeBegun",
    "PurgeInfo",
    "QuotaExceeded",
    "RateLimited",
    "Record",
    "RequestRefused",
    "RequestValue",
    "ResponseIncomplete",
    "RetryPolicy",
    "ScanRange",
    "SequenceConflict",
    "ServerUnavailable",
    "ServerUrls",
    "Snapshot",
    "Stream",
    "StreamClosed",
    "StreamInfo",
    "TooLarge",
    "TransportFailed",
    "Unauthorized",
    "frame",
]
