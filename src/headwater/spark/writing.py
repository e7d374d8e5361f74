"""Preparing a table to be written into streams."""

from pyspark.sql import DataFrame


def by_stream(rows: DataFrame, partitions: int | None = None) -> DataFrame:
    """The same rows, repartitioned so that one task has all rows of a stream, as the sink requires.

    Without `partitions` Spark chooses the number of tasks.
    """
    # By stream alone, not by bucket: rows that the option `bucket` moves into one stream must stay together.
    return rows.repartition("stream") if partitions is None else rows.repartition(partitions, "stream")
