"""The peer of every scan: one GET per stream, as in the base protocol, on all cores and over persistent connections."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.load import messages
from headwater.load.sockets import Connection
from headwater.load.targets import Target

SCHEMA = "stream string, record bigint, payload binary"
ROWS_PER_BATCH = 32_000
ANSWER_SECONDS_MAX = 120.0
DECODER = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Getter:
    """Reads streams one by one; the array of a response is split into messages without parsing them further."""

    address: tuple[str, int]
    prefix: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = Connection(Target(*self.address), timeout_seconds=ANSWER_SECONDS_MAX)
        streams: list[str] = []
        records: list[int] = []
        payloads: list[bytes] = []
        for batch in batches:
            for stream in batch["stream"].to_pylist():
                found = DECODER.decode(self._get(connection, stream))
                streams += [stream] * len(found)
                records += range(len(found))
                payloads += map(bytes, found)
                if len(payloads) >= ROWS_PER_BATCH:
                    yield _batch(streams, records, payloads)
                    streams, records, payloads = [], [], []
        yield _batch(streams, records, payloads)
        connection.close()

    def _get(self, connection: Connection, stream: str) -> bytes:
        response = connection.ask(messages.request("GET", f"{self.prefix}/{stream}?offset=-1"))
        if messages.status(response) != 200:
            raise ConnectionError(f"{stream} was answered with {bytes(response[:200])!r}")
        return messages.body(response)


def _batch(streams: list[str], records: list[int], payloads: list[bytes]) -> pa.RecordBatch:
    arrays = [pa.array(streams, pa.string()), pa.array(records, pa.int64()), pa.array(payloads, pa.binary())]
    return pa.record_batch(arrays, ["stream", "record", "payload"])


def rows(spark: SparkSession, address: tuple[str, int], prefix: str, names: list[str], tasks: int) -> DataFrame:
    """All messages of the named streams."""
    table = spark.createDataFrame(pa.table({"stream": names})).repartition(tasks)
    return table.mapInArrow(Getter(address, prefix), SCHEMA)
