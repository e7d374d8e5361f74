"""The seal of a footer: its own sum, within it, so that an object tells by itself whether it is what was written."""

from crc32c import crc32c

from headwater.lake.format import SEAL_KEY

UNSEALED = "0" * 8
"""What stands in the place of the sum while it is summed up."""

# How Thrift has it: the key, then as the next field a string of eight bytes. Nothing that a client named is behind it.
_MARK = SEAL_KEY.encode() + b"\x18\x08"


def seal(footer: memoryview) -> None:
    """Put the sum of a footer into its place."""
    at = bytes(footer).rindex(_MARK) + len(_MARK)
    footer[at : at + len(UNSEALED)] = b"%08x" % crc32c(footer)


def is_sealed(footer: bytes) -> bool:
    """Whether a footer has a sum, and it is the right one."""
    mark, at = footer.rfind(_MARK), footer.rfind(_MARK) + len(_MARK)
    summed = footer[:at] + UNSEALED.encode() + footer[at + len(UNSEALED) :]
    return mark >= 0 and footer[at : at + len(UNSEALED)] == b"%08x" % crc32c(summed)
