"""Paths and URLs that a person gives to a job."""

from pathlib import Path

from headwater.spark.jobs.report import JobFailed
from headwater.storage.opening import open_table_store
from headwater.storage.store import TableStore


def open_location(url: str) -> TableStore:
    """The store for the files of a table; JobFailed for a URL that names none."""
    try:
        return open_table_store(url)
    except ValueError as error:
        raise JobFailed(str(error)) from error


def spark_path(path: str) -> str:
    """A path or URL for Spark, which would resolve a relative path from the folder in which its JVM was started.

    >>> spark_path("s3://bucket/x"), spark_path("/data/x")
    ('s3://bucket/x', 'file:///data/x')
    """
    return path if "://" in path else Path(path).absolute().as_uri()
