"""A server for durable streams, and a client for them."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("headwater")
except PackageNotFoundError:
    # The package's metadata is the only place that has the version. A copy of the sources alone does not have it.
    __version__ = "unknown"
