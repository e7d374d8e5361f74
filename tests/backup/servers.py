"""Fill a server with streams of every kind, and observe everything that a client can see of them."""

from pathlib import Path

from headwater.backup.create import Origin
from headwater.storage.folder import FolderStore

from ..http.sockets import Wire

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0"}
FACTS = ("stream-next-offset", "stream-closed", "stream-snapshot-offset", "stream-ttl")
PATHS = [f"/{bucket}/{name}" for bucket in ("team", "other") for name in ("text", "json", "trimmed", "fork", "closed")]


def no_progress(what: str, done: int, total: int) -> None:
    pass


def origin(data: Path, bucket: str | None = None) -> Origin:
    """A server whose lake is in its data directory."""
    return Origin(data, FolderStore(data / "lake"), bucket)


def fill(wire: Wire) -> None:
    """Streams of every kind, some of whose bytes are in the lake and some not."""
    for bucket in ("team", "other"):
        assert wire.ask("PUT", f"/{bucket}").status == 201
        wire.ask("PUT", f"/{bucket}/text", {**TEXT, "Stream-TTL": "3600"}, b"cold ")
        wire.ask("PUT", f"/{bucket}/json", JSON)
        wire.ask("POST", f"/{bucket}/json", {**JSON, **PRODUCER, "Producer-Seq": "0"}, b'[1, {"a": 2}]')
        wire.ask("PUT", f"/{bucket}/trimmed", TEXT, b"old and ")
        wire.ask("POST", f"/{bucket}/trimmed", TEXT, b"new")
        wire.ask("PUT", f"/{bucket}/trimmed/snapshot/{8:020}", TEXT, b"snapshot of " + bucket.encode())
        wire.ask("PUT", f"/{bucket}/fork", {"Stream-Forked-From": f"/{bucket}/text"})
        wire.ask("PUT", f"/{bucket}/closed", TEXT, b"closed for good")
        wire.ask("POST", f"/{bucket}/closed", {"Stream-Closed": "true"})
    wire.ask("PUT", "/other/gone", TEXT, b"gone")
    assert wire.ask("POST", "/__headwater/flush").status == 200
    wire.ask("DELETE", "/other/gone")
    for bucket in ("team", "other"):
        wire.ask("POST", f"/{bucket}/text", TEXT, b"and hot")
        wire.ask("POST", f"/{bucket}/json", {**JSON, **PRODUCER, "Producer-Seq": "1"}, b"[3]")


def observe(url: str, paths: list[str]) -> dict[str, object]:
    """Everything that a client can see of some streams."""
    seen: dict[str, object] = {}
    with Wire(url) as wire:
        for path in paths:
            head = wire.ask("HEAD", path).headers
            seen[path] = [head.get(name) for name in FACTS]
            parts = wire.ask("GET", f"{path}/bootstrap")
            boundary = parts.headers["content-type"].rpartition("=")[2].encode()
            seen[f"{path} bootstrap bytes"] = parts.body.replace(boundary, b"")
            page = wire.ask("GET", f"{path}?offset={head.get('stream-snapshot-offset') or -1}")
            seen[f"{path} bytes"] = page.status, page.body
    return seen


def bodies(seen: dict[str, object]) -> dict[str, object]:
    """The bodies among what was observed."""
    return {path: value for path, value in seen.items() if path.endswith("bytes")}
