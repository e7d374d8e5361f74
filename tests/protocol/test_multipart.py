from email import message_from_bytes
from email.message import Message

from headwater.protocol import multipart


def test_parts_come_out_as_they_went_in() -> None:
    parts = [("application/octet-stream", b""), ("text/plain", b"a\r\n--b\r\n"), ("application/json", b"\r\n1")]
    body = b"".join(
        multipart.part_head("boundary", kind, first=not number) + data for number, (kind, data) in enumerate(parts)
    )
    head = f"Content-Type: {multipart.content_type('boundary')}\r\n\r\n".encode()
    message = message_from_bytes(head + body + multipart.end("boundary"))
    found = message.get_payload()
    assert isinstance(found, list)
    payloads = [(part.get_content_type(), part.get_payload(decode=True)) for part in found if isinstance(part, Message)]
    assert payloads == parts
    assert message.defects == []
