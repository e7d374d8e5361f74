"""The name of a node that was given none: this machine's, and the first number that no other process here uses."""

import fcntl
import os
import re
import socket
import tempfile
from pathlib import Path

HOST_CHARACTERS_MAX = 24
NUMBERS_MAX = 1_000


def node_name(folder: Path | None = None) -> str:
    """A name that no other process of this user on this machine has for as long as this process lives."""
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:HOST_CHARACTERS_MAX] or "node"
    folder = folder or Path(tempfile.gettempdir()) / f"headwater-nodes-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(1, NUMBERS_MAX + 1):
        # The descriptor is kept open, and with it the lock, until the process ends.
        held = os.open(folder / f"{host}-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            continue
        return f"{host}-{number}"
    raise OSError(f"{NUMBERS_MAX} nodes run on this machine; give this one a name with --node.")
