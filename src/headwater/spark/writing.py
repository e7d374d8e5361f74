"""What to do with a table before it is written into streams."""

from pyspark.sql import DataFrame


def by_stream(rows: DataFrame, partitions: int | None = None) -> DataFrame:
    """The rows with all those of a stream in one task, as the sink needs them; in Spark's default number of tasks."""
    # By the stream alone, not by its bucket: whatever the option `bucket` does to names, equal ones stay together.
    return rows.repartition("stream") if partitions is None else rows.repartition(partitions, "stream")
