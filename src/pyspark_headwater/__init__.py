"""Found by Spark through its name: makes `format("headwater")` known in every session."""

from headwater.spark.source.source import Headwater as DefaultSource

__all__ = ["DefaultSource"]
