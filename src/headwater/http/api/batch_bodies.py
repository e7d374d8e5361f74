"""From a request to append-batch to the appends that it asks for, or a refusal."""

from typing import NamedTuple

from headwater.http.api.parsing import Writer, parse_conditions, parse_writer, split_messages
from headwater.http.wire.requests import Request
from headwater.protocol import content_types, framing, json_mode
from headwater.protocol.etags import Version
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands import Append
from headwater.streams.replies import Duplicate


class Batch(NamedTuple):
    """An append-batch: one append if it is atomic, else one per frame; the bytes and messages of each frame."""

    appends: list[Append | BadBody]
    frames: list[tuple[int, int]]
    atomic: bool

    def is_same(self, accepted: Duplicate) -> bool:
        """Whether an atomic batch can be the request that was accepted: as many bytes, and as many messages."""
        if accepted.size != sum(size for size, _ in self.frames):
            return False
        if accepted.record is None or accepted.record_next is None:
            return True
        return accepted.record_next - accepted.record == sum(messages for _, messages in self.frames)


def parse_batch(request: Request, name: str, log_id: str) -> Batch | Refusal:
    """A POST to append-batch: with producer headers all frames are one append, without each is its own."""
    writer = parse_writer(request, log_id)
    if isinstance(writer, Refusal):
        return writer
    conditions = parse_conditions(request, log_id)
    if isinstance(conditions, Refusal):
        return conditions
    frames = framing.split(request.body)
    if isinstance(frames, Refusal):
        return frames
    content_type = request.header(b"content-type")
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    split: list[list[bytes] | Refusal] = [[frame] for frame in frames]
    if content_types.is_json(content_type):
        split = [split_messages(frame) for frame in frames]
    close = request.says_true(b"stream-closed")
    if writer.producer is not None:
        return _atomic_batch(name, split, writer, conditions, content_type=content_type, close=close)
    return _separate_batch(name, split, writer, conditions, content_type=content_type, close=close)


def _atomic_batch(
    name: str,
    split: list[list[bytes] | Refusal],
    writer: Writer,
    conditions: tuple[tuple[Version, ...] | None, int | None],
    *,
    content_type: str,
    close: bool,
) -> Batch | Refusal:
    whole: list[bytes] = []
    frames = []
    for messages in split:
        if isinstance(messages, Refusal):
            return messages
        whole += messages
        frames.append((sum(map(len, messages)), len(messages)))
    append = Append(name, b"".join(whole), json_mode.message_ends(whole), content_type, close, *writer, *conditions)
    return Batch([append], frames, atomic=True)


def _separate_batch(
    name: str,
    split: list[list[bytes] | Refusal],
    writer: Writer,
    conditions: tuple[tuple[Version, ...] | None, int | None],
    *,
    content_type: str,
    close: bool,
) -> Batch:
    """Each frame with the conditions as they are after those before it, so that they hold for all or fail for all."""
    versions, record = conditions
    appends: list[Append | BadBody] = []
    for index, messages in enumerate(split):
        last = close and index == len(split) - 1
        if isinstance(messages, Refusal):
            appends.append(BadBody(Append(name, b"-", None, content_type, last, *writer), messages))
            continue
        payload = b"".join(messages)
        appends.append(
            Append(name, payload, json_mode.message_ends(messages), content_type, last, *writer, versions, record)
        )
        if versions is not None:
            versions = tuple(Version(v.incarnation, v.tail + len(payload), v.closed) for v in versions)
        record = None if record is None else record + len(messages)
    return Batch(appends, [], atomic=False)
