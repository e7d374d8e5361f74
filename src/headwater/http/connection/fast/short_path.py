"""The short path answers usual requests in one compiled step, if it was built.

`_short_path.pyx` says which requests those are. Without it, `dispatch` answers them like all others.
"""

from typing import Protocol

from headwater.compiled import compiled
from headwater.http.connection.fast.seam import ConnectionView
from headwater.http.context import Context
from headwater.http.table.router import Router


class ShortPath(Protocol):
    """Takes the usual requests on one listener."""

    def take(self, connection: ConnectionView, data: bytes) -> bool:
        """Take the input of a connection with no unanswered request, if it is a usual one; returns whether it was."""


def short_path(context: Context, router: Router) -> ShortPath | None:
    """The short path of one listener; None if it was not built, or if every request is logged."""
    module = compiled("headwater.http.connection.fast._short_path")
    if module is None or context.settings.access_log:
        return None
    path: ShortPath = module.ShortPath(context, router.find_cached, context.heads)
    return path
