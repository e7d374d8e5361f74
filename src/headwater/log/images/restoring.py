"""Restoring a state from the newest image that is good."""

import logging
from typing import NamedTuple

from headwater.log.images.files import ImageDamaged, Images
from headwater.streams.images import restore
from headwater.streams.state import State

log = logging.getLogger(__name__)


class RestoredImage(NamedTuple):
    """The state in an image, and what the log needs to know to continue from there."""

    state: State
    mark: bytes


def newest_good_image(images: Images) -> RestoredImage | None:
    """The newest image that can be used; None if there is none.

    The positions are listed again after each failure: another process may have dropped an image while it was read, but
    only after it had written newer ones.
    """
    tried: set[int] = set()
    while (position := next((one for one in images.positions() if one not in tried), None)) is not None:
        tried.add(position)
        try:
            return RestoredImage(restore(images.read(position)), images.mark(position))
        except (ImageDamaged, ValueError, OSError) as error:
            log.error("the image at position %d cannot be used, falling back to the one before: %s", position, error)
    return None
