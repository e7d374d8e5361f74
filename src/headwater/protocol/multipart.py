"""The multipart body of a bootstrap: parts separated by a boundary that cannot occur in them.

The boundary is 128 random bits, drawn after the data was committed, so no client can have put it into the data.
"""


def content_type(boundary: str) -> str:
    return f"multipart/mixed; boundary={boundary}"


def part_head(boundary: str, part_type: str, *, first: bool) -> bytes:
    r"""The lines before the bytes of a part.

    >>> part_head("b", "text/plain", first=True)
    b'--b\r\nContent-Type: text/plain\r\n\r\n'
    """
    lead = "" if first else "\r\n"
    return f"{lead}--{boundary}\r\nContent-Type: {part_type}\r\n\r\n".encode("latin-1")


def end(boundary: str) -> bytes:
    """The line after the last part."""
    return f"\r\n--{boundary}--\r\n".encode("latin-1")
