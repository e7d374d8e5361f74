"""The access log: one line for each request, if the operator wants it."""

import logging

from headwater.http.wire.requests import Request

log = logging.getLogger("headwater.access")


def log_request(
    request: Request, status: int, seconds: float, request_id: str, response: list[bytes] | None = None
) -> None:
    """Log a request that has its response, or whose streamed response begins; the length of that is unknown."""
    method, path = request.method.decode("latin-1"), request.path.decode("latin-1")
    facts = {
        "method": method,
        "path": path,
        "status": status,
        "milliseconds": round(seconds * 1000, 3),
        "request_id": request_id,
    }
    if response is not None:
        facts["bytes"] = sum(map(len, response))
    log.info("%s %s %d", method, path, status, extra=facts)
