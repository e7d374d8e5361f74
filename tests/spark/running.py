"""Running queries to their end, and collecting the rows of each batch."""

from pyspark.sql import DataFrame, SparkSession

from headwater.testing import RunningServer

QUERY_SECONDS_MAX = 120
"""Far more than a query takes on a busy machine, so that a slow query does not look like one that hangs."""


class Batches:
    """Collects the rows of a query, batch by batch; can fail in a chosen batch."""

    def __init__(self, fail_in: int | None = None) -> None:
        self.found: list[tuple[int, list[str]]] = []
        self._fail_in = fail_in

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.found.append((batch, sorted(row.payload.decode() for row in frame.select("payload").collect())))
        if batch == self._fail_in:
            raise RuntimeError("as planned")

    @property
    def rows(self) -> list[list[str]]:
        return [rows for _, rows in self.found if rows]

    @property
    def all_rows(self) -> list[str]:
        return sorted(row for rows in self.rows for row in rows)


def run(spark: SparkSession, server: RunningServer, checkpoint: str, batches: Batches, **options: str) -> None:
    """Run a query over everything that is new, to its end."""
    frame = spark.readStream.format("headwater").options(url=server.url, **options).load()
    writer = frame.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query did not end"
    finally:
        query.stop()
