from email import message_from_bytes

from headwater.protocol import multipart


def test_parts_come_out_as_they_went_in() -> None:
    parts = [("application/octet-stream", b""), ("text/plain", b"a\r\n--b\r\n"), ("application/json", b"\r\n1")]
    body = b"".join(
        multipart.part_head("boundary", kind, first=not number) + data for number, (kind, data) in enumerate(parts)
    )
    head = f"Content-Type: {multipart.content_type('boundary')}\r\n\r\n".encode()
    message = message_from_bytes(head + body + multipart.end("boundary"))
    found = [part for part in message.walk() if not part.is_multipart()]
    assert [(part.get_content_type(), part.get_payload(decode=True)) for part in found] == parts
    assert message.defects == []
