"""Names of files that hold secrets: a message shows them only if there is such a file."""

import os
from pathlib import Path


def may_be_secret(path: str | Path) -> bool:
    """Whether what was given as a path may be the secret itself, because there is no such file.

    >>> may_be_secret("/dev/null"), may_be_secret("hw_ingest_x4Gk")
    (False, True)
    """
    return not os.path.lexists(path)
