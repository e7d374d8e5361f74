"""A client for Durable Streams: any server's, with what Headwater adds where it is there."""

from headwater.client.admin import ConsumerInfo, ScanRange
from headwater.client.asynchronous.admin import AsyncAdmin
from headwater.client.asynchronous.client import AsyncBucket, AsyncClient
from headwater.client.asynchronous.flows import AsyncBootstrap, AsyncFollower
from headwater.client.asynchronous.stream import AsyncStream
from headwater.client.asynchronous.writing import AsyncProducer
from headwater.client.blocking.admin import Admin
from headwater.client.blocking.client import Bucket, Client
from headwater.client.blocking.flows import Bootstrap, Follower
from headwater.client.blocking.stream import Stream
from headwater.client.blocking.writing import Producer
from headwater.client.errors import (
    BadRequest,
    ClientError,
    Conflict,
    Gone,
    IncarnationChanged,
    NotFound,
    OffsetTrimmed,
    OutcomeUnknown,
    PreconditionFailed,
    ProducerEnded,
    ProducerFenced,
    ProtocolViolation,
    RequestRefused,
    ResponseIncomplete,
    SequenceConflict,
    ServerUnavailable,
    StreamClosed,
    TooLarge,
    TransportFailed,
)
from headwater.client.framing import Deframer, frame
from headwater.client.operations import Fork
from headwater.client.retrying import RetryPolicy
from headwater.client.values import NOW, START, Appended, BatchAck, Chunk, Created, Record, Snapshot, StreamInfo

__all__ = [
    "NOW",
    "START",
    "Admin",
    "Appended",
    "AsyncAdmin",
    "AsyncBootstrap",
    "AsyncBucket",
    "AsyncClient",
    "AsyncFollower",
    "AsyncProducer",
    "AsyncStream",
    "BadRequest",
    "BatchAck",
    "Bootstrap",
    "Bucket",
    "Chunk",
    "Client",
    "ClientError",
    "Conflict",
    "ConsumerInfo",
    "Created",
    "Deframer",
    "Follower",
    "Fork",
    "Gone",
    "IncarnationChanged",
    "NotFound",
    "OffsetTrimmed",
    "OutcomeUnknown",
    "PreconditionFailed",
    "Producer",
    "ProducerEnded",
    "ProducerFenced",
    "ProtocolViolation",
    "Record",
    "RequestRefused",
    "ResponseIncomplete",
    "RetryPolicy",
    "ScanRange",
    "SequenceConflict",
    "ServerUnavailable",
    "Snapshot",
    "Stream",
    "StreamClosed",
    "StreamInfo",
    "TooLarge",
    "TransportFailed",
    "frame",
]
