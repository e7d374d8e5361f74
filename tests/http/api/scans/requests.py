"""Requests about many streams at once, and their answers."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...sockets import Response, Wire

ARROW = "application/vnd.apache.arrow.stream"

Row = dict[str, Any]
Range = list[Any]


def ask(wire: Wire, what: str, **body: Any) -> Response:
    """The answer to a request about many streams."""
    return wire.ask("POST", f"/__headwater/{what}", {"Content-Type": "application/json"}, json.dumps(body).encode())


def table(response: Response) -> pa.Table:
    """The table of an Arrow stream, which must be complete."""
    assert response.status == 200, response.body
    assert response.headers["content-type"] == ARROW
    assert response.headers["cache-control"] == "no-store"
    assert response.body.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    return pa.ipc.open_stream(response.body).read_all()


def described(wire: Wire, **body: Any) -> list[Row]:
    """The descriptions of streams."""
    rows: list[Row] = table(ask(wire, "describe", **body)).to_pylist()
    return rows


def whole(wire: Wire, *names: str) -> list[Range]:
    """Ranges that cover some streams as they are now."""
    known = {row["stream"]: row for row in described(wire, streams=names)}
    return [[name, known[name]["incarnation"], known[name]["start"], known[name]["tail"]] for name in names]


def scanned(wire: Wire, ranges: Sequence[Range], **more: Any) -> list[Row]:
    """The rows of some ranges; times are microseconds since 1970."""
    found = table(ask(wire, "scan", ranges=ranges, **more))
    if "committed_at" in found.column_names:
        at = found.column_names.index("committed_at")
        found = found.set_column(at, "committed_at", found["committed_at"].cast(pa.int64()))
    rows: list[Row] = found.to_pylist()
    return rows


def payloads(rows: Sequence[Row]) -> list[bytes]:
    return [row["payload"] for row in rows]
