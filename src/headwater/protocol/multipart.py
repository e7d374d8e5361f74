"""The multipart body of a bootstrap: parts between boundaries that cannot occur in what they hold.

The boundary is drawn at random after the data was committed, 128 bits of it, so no data can have been made to contain
it.
"""


def content_type(boundary: str) -> str:
    return f"multipart/mixed; boundary={boundary}"


def part_head(boundary: str, part_type: str, *, first: bool) -> bytes:
    r"""What stands before the bytes of a part.

    >>> part_head("b", "text/plain", first=True)
    b'--b\r\nContent-Type: text/plain\r\n\r\n'
    """
    lead = "" if first else "\r\n"
    return f"{lead}--{boundary}\r\nContent-Type: {part_type}\r\n\r\n".encode("latin-1")


def end(boundary: str) -> bytes:
    """What stands after the last part."""
    return f"\r\n--{boundary}--\r\n".encode("latin-1")
