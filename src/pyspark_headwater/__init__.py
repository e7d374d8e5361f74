"""Registers `format("headwater")` in every session: Spark imports all packages named `pyspark_*`."""

from headwater.spark.source.source import Headwater as DefaultSource

__all__ = ["DefaultSource"]
