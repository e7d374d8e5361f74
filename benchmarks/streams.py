"""The paths of the streams of a measurement; wrk.lua builds the same."""

from headwater.load import sources


def stem(prefix: str) -> str:
    """Return the common beginning of the paths of all streams below a prefix."""
    return f"{prefix}/s"


def stream_path(prefix: str, index: int) -> str:
    return sources.stream_path(stem(prefix), index)
