# cython: language_level=3
"""Usual appends, compiled: replies and state equal those of `appending.apply`."""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.ref cimport PyObject

from crc32c import crc32c

from headwater.protocol import message_ends
from headwater.protocol.content_types import is_json
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.producers import LastAccepted
from headwater.streams.appending import checksum, judge_and_append
from headwater.streams.hot import HOT_APPEND_BYTES, Hot
from headwater.streams.replies import Appended

cdef object _FOREVER = FOREVER, _Hot = Hot, _LastAccepted = LastAccepted, _Appended = Appended
cdef object _crc32c = crc32c, _is_json = is_json, _checksum = checksum, _judge_and_append = judge_and_append
cdef Py_ssize_t _APPEND_BYTES = HOT_APPEND_BYTES, _END_BYTES = message_ends.END_BYTES


cpdef object apply(state, command):
    """Judge, then append the messages, close the stream, and remember the producer."""
    stream = (<dict>state.streams).get(command.name)
    if stream is None or not _is_next(state, stream, command):
        return _judge_and_append(state, command)
    return _append_next(state, stream, command)


cdef bint _is_next(state, stream, command) except -1:
    """Whether `judge` certainly accepts an append, as it does nearly all: one without conditions to an open stream."""
    if stream.closed or stream.deleted or stream.lifetime is not _FOREVER or state.observers:
        return False
    if command.close or not command.payload or command.content_type != stream.content_type:
        return False
    if command.seq is not None or command.incarnation is not None:
        return False
    if command.if_match is not None or command.record_match is not None:
        return False
    producer = command.producer
    if producer is None:
        return True
    known = stream.producers
    if known is None:
        return False
    name = producer.id
    last = (<dict>known).get(name)
    if last is None or producer.epoch != last.epoch or producer.seq != last.seq + 1:
        return False
    return name not in <dict>state.finished


cdef object _append_next(state, stream, command):
    cdef Py_ssize_t size, messages
    cdef bytes payload = command.payload
    now, ends, producer = state.now, command.ends, command.producer
    offset, record = stream.tail, stream.record_next
    size = len(payload)
    messages = 1 if ends is None else len(<bytes>ends) // _END_BYTES
    hot = _Hot(offset, payload, ends, record, state.position, now, producer)
    appends = stream.hot
    if appends is None:
        stream.hot = [hot]
        state.warm[stream.name] = None
    else:
        (<list>appends).append(hot)
    _count(state.bytes, (<str>command.name).partition("/")[0], size)
    state.hot_bytes = state.hot_bytes + size + _APPEND_BYTES + messages * _END_BYTES
    tail, record_next = offset + size, record + messages
    stream.tail, stream.record_next = tail, record_next
    stream.written_at = now
    stream.touched_at = now
    epoch = seq = None
    if producer is not None:
        epoch, seq, name, known = producer.epoch, producer.seq, producer.id, stream.producers
        PyDict_DelItem(known, name)  # So that the longest idle one stays the first.
        crc = _crc32c(payload) if ends is None else _checksum(payload, ends)
        PyDict_SetItem(known, name, _LastAccepted(epoch, seq, tail, record, record_next, now, size, crc, False))
    if not _is_json(stream.content_type):
        record = record_next = None
    return _Appended(stream.incarnation, tail, False, record, record_next, epoch, seq)


cdef inline int _count(counter, key, Py_ssize_t size) except -1:
    """Add to a Counter."""
    cdef PyObject* found = PyDict_GetItem(counter, key)
    return PyDict_SetItem(counter, key, size if found is NULL else <object>found + size)
