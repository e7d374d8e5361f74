# cython: language_level=3, boundscheck=False, wraparound=False
"""Short commits, compiled: a batch that the journal commits on the loop, from the queue to its answers in one step.

Does what `Committer._send`, `Journal.append` and `Committer.deliver` do, where nothing is in the way; all other batches
are left to them. With one client at a time, the interpreter would otherwise take most of an append's time, because
each sync leaves the processor's caches cold.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from headwater._clocks cimport elapsed_us, monotonic
from headwater.streams._appending cimport apply as apply_append

from crc32c import crc32c

from headwater.log import frames
from headwater.log.journal.journal import SHORT_BATCH_BYTES_MAX, SHORT_SYNC_SECONDS, SYNCS_AVERAGED
from headwater.log.journal.writer import RESERVE_PART
from headwater.node.clock import ELAPSED, SLEW_EVERY_US, Clock
from headwater.node.committer import BATCH_COMMANDS_MAX, log
from headwater.storage.disk import RealFile
from headwater.streams.apply import HANDLERS
from headwater.streams.batches import ENCODER
from headwater.streams.commands import Append
from headwater.streams.replies import Duplicate

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    Py_ssize_t pwritev2(int, iovec*, int, long long, int)
    enum:
        RWF_DSYNC

cdef enum:
    HEADER_BYTES = 28
    ALIGNMENT = 64

assert frames.HEADER.size == HEADER_BYTES and frames.HEADER.format == "<4sIIIIQ" and frames.ALIGNMENT == ALIGNMENT

cdef object _crc32c = crc32c, _encode = ENCODER.encode, _Append = Append, _RealFile = RealFile
cdef object _Duplicate = Duplicate, _log = log
cdef dict _HANDLERS = HANDLERS
cdef bytes _MAGIC = frames.MAGIC
cdef Py_ssize_t _COMMANDS_MAX = BATCH_COMMANDS_MAX, _BYTES_MAX = SHORT_BATCH_BYTES_MAX
cdef double _SHORT_SYNC_SECONDS = SHORT_SYNC_SECONDS, _SYNCS_AVERAGED = SYNCS_AVERAGED
cdef int _RESERVE_PART = RESERVE_PART, _ELAPSED = ELAPSED
cdef long long _SLEW_EVERY_US = SLEW_EVERY_US


cdef class ShortCommits:
    """Sends the batches of one committer to the journal of this process."""

    cdef object _committer, _journal, _state, _tails, _metrics, _now, _clock
    cdef bint _is_unsupported
    """Whether the system cannot write and sync at once."""

    def __init__(self, committer, journal, state, tails, metrics, now):
        self._committer, self._journal, self._state = committer, journal, state
        self._tails, self._metrics, self._now = tails, metrics, now
        clock = getattr(now, "__self__", None)
        self._clock = clock if type(clock) is Clock else None

    def send(self):
        """Commit what has gathered, and answer it; what cannot be committed at once is sent as the committer does."""
        cdef Py_ssize_t count
        cdef double began_at
        committer, journal = self._committer, self._journal
        committer._scheduled = False
        queue = committer._queue
        count = len(queue)
        if not count or not committer._may_send or committer._in_flight:
            return
        if journal._sync_seconds > _SHORT_SYNC_SECONDS or committer.queued_bytes > _BYTES_MAX or count > _COMMANDS_MAX:
            committer._send()
            return
        if self._is_unsupported or not journal.has_room or not committer._may_answer:
            committer._send()
            return
        began_at = monotonic()
        cdef list commands = [], waiters = []
        for command, done, _ in queue:
            commands.append(command)
            waiters.append(done)
        at = self._time()
        try:
            position = self._commit(_encode((at, commands)), count)
        except Exception as error:
            committer._may_send = False  # A failed write is never retried.
            journal._on_failure(error)
            return
        if position is None:
            committer._send()
            return
        queue.clear()
        committer.queued_bytes = 0
        self._deliver(position, at, commands, waiters, began_at)

    cdef object _time(self):
        """The time of a batch, as the clock has it."""
        cdef long long elapsed
        clock = self._clock
        if clock is None:
            return self._now()
        elapsed = elapsed_us(_ELAPSED)
        if elapsed - <long long>clock._slewed_at >= _SLEW_EVERY_US:
            return clock.now()
        return elapsed + <long long>clock._offset

    cdef object _commit(self, bytes record, Py_ssize_t entries):
        """Write and sync one record, as `stage` and `sync` of the journal; its position, or None to leave it to the journal."""
        cdef Py_ssize_t length = PyBytes_GET_SIZE(record), total, written
        cdef unsigned char header[HEADER_BYTES]
        cdef unsigned char padding[ALIGNMENT]
        cdef iovec parts[3]
        cdef uint64_t position
        cdef long long at
        cdef double began_at
        cdef int fd
        journal = self._journal
        file = journal._file
        total = (HEADER_BYTES + length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        at = journal._file_at
        room_end = journal._room_end
        if at + total >= room_end - room_end // _RESERVE_PART or type(file) is not _RealFile:
            return None
        if length > _BYTES_MAX or journal._staged or journal._cutting or journal._closing:
            return None
        place = journal._next_position
        position = place
        memcpy(header, PyBytes_AS_STRING(_MAGIC), 4)
        _put(header + 12, length, 4)
        _put(header + 16, entries, 4)
        _put(header + 20, position, 8)
        head_crc = _crc32c((<char*>header)[12:HEADER_BYTES], journal._seed)
        _put(header + 4, head_crc, 4)
        _put(header + 8, _crc32c(record, head_crc), 4)
        memset(padding, 0, ALIGNMENT)
        parts[0].iov_base, parts[0].iov_len = header, HEADER_BYTES
        parts[1].iov_base, parts[1].iov_len = PyBytes_AS_STRING(record), length
        parts[2].iov_base, parts[2].iov_len = padding, total - HEADER_BYTES - length
        fd = file._fd
        began_at = monotonic()
        with nogil:
            # Returns when these bytes survive a loss of power, as after `fdatasync`: the file already has its full size.
            written = pwritev2(fd, parts, 3, at, RWF_DSYNC)
        if written < 0:
            self._is_unsupported = errno in (EINVAL, ENOSYS, EOPNOTSUPP)
            if not self._is_unsupported and errno != EINTR:
                PyErr_SetFromErrno(OSError)
        if written != total:
            # The system cannot do both at once, or was interrupted: write all of it again, and sync it.
            journal.stage(record, entries, frees=False, waits=False)
            journal.sync()
            return place
        self._sync_took(monotonic() - began_at)
        journal._file_at = at + total
        journal._next_position = place + entries
        journal.size_bytes = journal.size_bytes + length
        return place

    cdef int _sync_took(self, double seconds) except -1:
        journal = self._journal
        cdef double average = journal._sync_seconds
        journal._sync_seconds = average + (seconds - average) / _SYNCS_AVERAGED

    cdef int _deliver(self, position, at, list commands, list waiters, double began_at) except -1:
        """Apply a decided batch and answer it, as `Committer.deliver`."""
        cdef Py_ssize_t index, count = len(commands)
        cdef list replies = []
        cdef int duplicates = 0
        cdef double seconds = monotonic() - began_at
        state, committer = self._state, self._committer
        try:
            assert position == state.position + 1, "the log has a hole or was applied twice"
            if at > state.now:
                state.now = at
            for command in commands:
                state.position = state.position + 1
                if type(command) is _Append:
                    reply = apply_append(state, command)
                else:
                    reply = _HANDLERS[type(command)](state, command)
                if type(reply) is _Duplicate:
                    duplicates += 1
                replies.append(reply)
        except Exception as error:
            committer.fail(error)
            return 0
        if duplicates:
            self._metrics.producer_duplicates += duplicates
        for index in range(count):
            try:
                waiters[index](replies[index])
            except Exception:
                _log.exception("a reply could not be delivered")
        if self._tails.names:
            committer.wake(commands)
        # In the next turn: the answers leave before that.
        committer._loop.call_soon(self.after_batch, count, seconds)
        return 0

    def after_batch(self, count, seconds):
        """Count a batch, and let the chores look for work."""
        self._metrics.committed(count, seconds)
        self._committer.after_batch()


cdef inline void _put(unsigned char* place, uint64_t number, int size) noexcept:
    """Write a number, its lowest byte first."""
    cdef int index
    for index in range(size):
        place[index] = (number >> (8 * index)) & 0xFF
