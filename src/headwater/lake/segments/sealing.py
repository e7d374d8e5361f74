"""The seal of a footer: its own checksum, stored within it, so that an object can be verified by itself."""

from crc32c import crc32c

from headwater.lake.format import SEAL_KEY

UNSEALED = "0" * 8
"""The placeholder for the checksum while it is computed."""

# As Thrift encodes it: the key, then the next field, a string of eight bytes. No text of a client follows it.
_MARK = SEAL_KEY.encode() + b"\x18\x08"


def seal(footer: memoryview) -> None:
    """Write the checksum of a footer into its place."""
    at = bytes(footer).rindex(_MARK) + len(_MARK)
    footer[at : at + len(UNSEALED)] = b"%08x" % crc32c(footer)


def is_sealed(footer: bytes) -> bool:
    """Whether a footer has a checksum, and the right one."""
    mark, at = footer.rfind(_MARK), footer.rfind(_MARK) + len(_MARK)
    summed = footer[:at] + UNSEALED.encode() + footer[at + len(UNSEALED) :]
    return mark >= 0 and footer[at : at + len(UNSEALED)] == b"%08x" % crc32c(summed)
