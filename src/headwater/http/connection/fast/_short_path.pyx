# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The short path: requests of the usual kind, from their bytes to their responses in one compiled step.

A usual request is an append of a few JSON messages or of bytes, without conditions, perhaps with producer headers; or a
read from an offset, of the last few messages or of a page that ends before the tail. It must be the only unanswered request of its connection. On a guarded
server, the same client must also have been the last one admitted to that URL. Responses equal those of `dispatch` byte
for byte; everything else, including an append with an unusual outcome, goes to `dispatch`.

What it uses of connections, parsers, shards and their committers is declared in `seam`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

from headwater._clocks cimport monotonic
from headwater.http.wire._scanning cimport Order, Scanner, Text, bytes_of

import logging

import msgspec

from headwater.http.api import reads, streams
from headwater.http.connection.dispatch import replace_with_exchange
from headwater.http.exchange import crowding
from headwater.http.exchange.exchange import WRITE
from headwater.http.guard.gates import EVERYBODY
from headwater.http.table.router import Found
from headwater.http.wire import _scanning
from headwater.http.wire.rendering import COPY_BYTES_MAX, TEMPLATES_MAX
from headwater.http.wire.requests import CACHED_BYTES_MAX, NOTHING
from headwater.http.wire.stages import IDLE
from headwater.node.committer import QUEUE_BYTES_MAX
from headwater.node.metrics import SECONDS, Histogram
from headwater.node.shard import Shard
from headwater.protocol import content_types
from headwater.protocol import message_ends
from headwater.protocol.json_mode import SHALLOW_BYTES_MAX, VALUE, is_object, is_too_deep, split
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import PRODUCER_ID_BYTES_MAX, SECOND_US
from headwater.protocol.producers import PLAIN_DIGITS_MAX, Producer, text_of
from headwater.streams.commands.command import COMMAND_BYTES
from headwater.streams.commands.streams import Append
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, Page

cdef object _Read = Read, _count_page = crowding.count
cdef object _IDLE = IDLE, _WRITE = WRITE, _NOTHING = NOTHING, _FOREVER = FOREVER, _Found = Found, _Histogram = Histogram
cdef object _append_handler = streams.append, _read_handler = reads.read, _replace_with_exchange = replace_with_exchange
cdef object _of_header = content_types.of_header, _is_json = content_types.is_json, _is_object = is_object
cdef object _decode = VALUE.decode, _DecodeError = msgspec.DecodeError, _is_too_deep = is_too_deep
cdef Py_ssize_t _SHALLOW_BYTES_MAX = SHALLOW_BYTES_MAX
cdef object _Append = Append, _Producer = Producer, _Appended = Appended, _Page = Page, _text_of = text_of
cdef int _OWN_LINES = _scanning.OWN_LINES, _READS = _scanning.READS, _WRITES = _scanning.WRITES
cdef Py_ssize_t _PATH_BYTES_MAX = CACHED_BYTES_MAX, _QUEUE_BYTES_MAX = QUEUE_BYTES_MAX
cdef Py_ssize_t _BODY_BYTES_MAX = streams.SPLIT_ON_LOOP_BYTES_MAX, _PAGE_BYTES_MAX = COPY_BYTES_MAX
cdef Py_ssize_t _ID_BYTES_MAX = PRODUCER_ID_BYTES_MAX, _DIGITS_MAX = PLAIN_DIGITS_MAX
cdef object _split = split, _ends_of = message_ends.of
cdef long long _SECOND_US = SECOND_US
cdef Py_ssize_t _COMMAND_BYTES = COMMAND_BYTES
cdef double _NEVER = float("inf")
cdef object _log = logging.getLogger("headwater.http.connection.fast.short_path")

cdef enum:
    BOUNDS = 32
    PARTS = 16
    APPENDS_MAX = 128
    MESSAGES_MAX = 16


cdef double _BOUNDS[BOUNDS]
cdef int _BOUNDS_COUNT = len(SECONDS)
assert len(SECONDS) <= BOUNDS
for _index, _bound in enumerate(SECONDS):
    _BOUNDS[_index] = _bound


cdef class Template:
    """A response with places for numbers, and perhaps for a body at the end; the text of `Renderer`'s templates."""

    cdef list _literals
    cdef Text literal[PARTS]
    """The text before each number, and after the last one."""
    cdef int width[PARTS]
    cdef int count

    def __init__(self, bytes template):
        pieces = template.replace(b"%%", b"\0").split(b"%")
        self._literals = literals = [pieces[0].replace(b"\0", b"%")]
        self.count = 0
        for piece in pieces[1:]:
            digits, kind, rest = piece.partition(b"b" if piece[:1] == b"b" else b"d")
            assert self.count < PARTS - 1 and (not digits or digits[:1] == b"0") and int(digits or 0) <= 24
            if kind == b"d":
                self.width[self.count] = int(digits or 0)
                self.count += 1
                literals.append(rest.replace(b"\0", b"%"))
            else:
                assert rest == b"", "a body comes last"
        for index, literal in enumerate(literals):
            self.literal[index].at = PyBytes_AS_STRING(literal)
            self.literal[index].size = PyBytes_GET_SIZE(literal)

    cdef bytes fill(self, long long* numbers, list payloads, bint is_json, Py_ssize_t body_bytes):
        """The response with these numbers and the payloads as its body."""
        cdef char digits[PARTS][24]
        cdef int sizes[PARTS]
        cdef int index
        cdef Py_ssize_t size = self.literal[self.count].size + body_bytes
        for index in range(self.count):
            sizes[index] = _render(numbers[index], self.width[index], digits[index])
            size += self.literal[index].size + sizes[index]
        response = PyBytes_FromStringAndSize(NULL, size)
        cdef char* p = PyBytes_AS_STRING(response)
        for index in range(self.count):
            p = _copy(p, self.literal[index].at, self.literal[index].size)
            p = _copy(p, digits[index] + 24 - sizes[index], sizes[index])
        p = _copy(p, self.literal[self.count].at, self.literal[self.count].size)
        if payloads is not None:
            _copy_page(p, payloads, is_json)
        return response


cdef inline int _render(long long number, int width, char* digits) except -1:
    """Write a number to the end of 24 places, with zeros before it up to a width; returns how many it takes."""
    cdef int at = 24
    assert number >= 0, "positions, counts and sizes are never negative"
    while number or at == 24:
        at -= 1
        digits[at] = c"0" + <char>(number % 10)
        number //= 10
    while 24 - at < width:
        at -= 1
        digits[at] = c"0"
    return 24 - at


cdef inline char* _copy(char* p, const char* text, Py_ssize_t size):
    memcpy(p, text, size)
    return p + size


cdef Py_ssize_t _size_of_page(list payloads, bint is_json):
    """How many bytes `_copy_page` writes."""
    cdef Py_ssize_t size = 0
    cdef bytes payload
    for payload in payloads:
        size += PyBytes_GET_SIZE(payload)
    return size + 2 + max(len(payloads) - 1, 0) if is_json else size


cdef void _copy_page(char* p, list payloads, bint is_json):
    cdef bint is_first = True
    cdef bytes payload
    if is_json:
        p[0] = c"["
        p += 1
    for payload in payloads:
        if is_json and not is_first:
            p[0] = c","
            p += 1
        is_first = False
        p = _copy(p, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
    if is_json:
        p[0] = c"]"


cdef bint _is_one_object(bytes body) except -1:
    """As `is_object`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    cdef char* text = PyBytes_AS_STRING(body)
    if size < 2 or text[0] != c"{" or text[size - 1] != c"}":
        return False
    if not body.isascii():
        return _is_object(body)
    try:
        _decode(body)
    except (RecursionError, _DecodeError):
        return False
    return size <= _SHALLOW_BYTES_MAX or not _is_too_deep(body)


cdef list _few_messages(bytes body):
    """The messages of an array of a few; None for all others."""
    if PyBytes_GET_SIZE(body) < 2 or PyBytes_AS_STRING(body)[0] != c"[":
        return None
    messages = _split(body)
    return messages if type(messages) is list and 0 < len(messages) <= MESSAGES_MAX else None


cdef class Waiting:
    """An append that waits for the log, in the place of an `Exchange` among those of its connection."""

    cdef ShortPath path
    cdef readonly object connection, found, dialect, identity, account
    cdef readonly bytes head, body
    cdef bytes own_lines
    cdef bint renews
    """Whether its stream is as alive as it was when this was asked for, until it has been applied."""
    cdef readonly int judged_by
    cdef readonly double began_at_seconds
    cdef public bint close
    cdef public object response

    @property
    def kind(self):
        return _WRITE

    @property
    def start(self):
        return None

    @property
    def fetching(self):
        return False

    @property
    def live_slots(self):
        return 0

    @property
    def request(self):
        return _NOTHING

    def drop(self):
        """It is not answered any more."""

    def __call__(self, reply):
        """Answer with the outcome."""
        if self.renews:
            self.path.renewals.end(self.found.address.name)
        if type(reply) is _Appended and not self.close and not reply.closed:
            self.path.answer(self, reply)
        else:
            _replace_with_exchange(self).reply(reply)


cdef class ShortPath:
    """Takes the usual requests on one listener."""

    cdef Scanner _scanner
    cdef object _context, _guard, _origin_lines, _find, _shard, _state, _committer, _log, _renderer, _metrics
    cdef object renewals
    cdef object _identity, _account
    """Of the client whose request is being taken."""
    cdef bytes _own_lines
    """What the response says to its origin."""
    cdef object _stream
    """What is appended to; None if only the shard may say that it is there."""
    cdef int _judged_by
    cdef dict _templates
    """By dialect; those of the last one are at hand, because to find a dialect takes longer than to find a template."""
    cdef object _last_dialect
    cdef dict _last_templates
    cdef double _templates_until, _idle_seconds
    cdef Py_ssize_t _page_bytes_max
    cdef bint _is_alone

    def __init__(self, context, find, scanner):
        self._context, self._guard, self._find, self._scanner = context, context.guard, find, scanner
        self._identity, self._account, self._judged_by = EVERYBODY, None, 0
        self._shard = shard = context.node.only
        self._is_alone = type(shard) is Shard and not context.node.shared
        self._state, self._committer, self._log = shard.state, shard.committer, shard.command_log
        self.renewals, self._origin_lines = shard.renewals, context.origins.lines
        self._renderer, self._metrics = context.renderer, context.node.metrics
        self._idle_seconds = context.settings.idle_seconds
        self._page_bytes_max = min(context.settings.page_bytes, _PAGE_BYTES_MAX)
        self._templates, self._last_dialect, self._last_templates = {}, None, {}
        self._templates_until = 0.0

    def take(self, connection, bytes data):
        """Take the input of a connection with no unanswered request, if it is a usual one; returns whether it was."""
        cdef Scanner scanner = self._scanner
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef bint is_read = size > 0 and PyBytes_AS_STRING(data)[0] == c"G"
        parser = connection.parser
        if parser.stage is not _IDLE or not parser.plain or parser.refused or parser.full or parser.rest:
            return False
        if connection.write_paused or connection.reserved or self._context.draining:
            return False
        form = parser.read_form if is_read else parser.write_form
        if not scanner.scan(data, 0, form):
            return False
        if scanner.body_at + scanner.body_bytes != size or scanner.path.size > _PATH_BYTES_MAX:
            return False
        if scanner.order is not form and scanner.order.is_kept:
            if is_read:
                parser.read_form = scanner.order
            else:
                parser.write_form = scanner.order
        if scanner.order.traits & (_OWN_LINES | (_READS if is_read else _WRITES)):
            return False
        self._own_lines = b""
        if scanner.order.origin_at >= 0:
            self._own_lines = self._origin_lines(bytes_of(scanner.value[scanner.order.origin_at]))
            if self._own_lines is None:
                return False
        found = self._find(scanner.method, bytes_of(scanner.path))
        if type(found) is not _Found or found.run is not (_read_handler if is_read else _append_handler):
            return False
        if self._guard is not None:
            dialect = self._recognise(found, is_read)
        else:
            dialect = self._context.dialect if found.address.flat else self._context.plain_dialect
        if dialect is None:
            return False
        try:
            answer = self._page(found, dialect) if is_read else self._command(found, data)
        except Exception:
            _log.exception("the short path failed, so a request takes the long one")
            return False
        if answer is None:
            return False
        self._context.received_bytes = self._context.received_bytes + size
        if is_read:
            self._send(connection, answer)
        else:
            self._submit(connection, found, dialect, data, answer)
        return True

    cdef object _recognise(self, found, bint is_read):
        """How to answer a client that is in credit and was the last one to be admitted here; None for all others."""
        cdef Scanner scanner = self._scanner
        cdef int at = scanner.order.authorization_at
        guard = self._guard
        known = guard.known.get(bytes_of(scanner.value[at]) if at >= 0 else b"")
        if known is None or known.by != guard.changes or monotonic() >= known.until:
            return None
        identity, account = known.identity, known.account
        if found.admitted is not identity or account is None or account.forgotten or account.requests.level < 1:
            return None
        if not is_read and (account.appends.level < scanner.body_bytes or guard.policy.buckets):
            return None
        self._identity, self._account, self._judged_by = identity, account, known.by
        return found.admitted_dialect

    # -- Appends --------------------------------------------------------------------------------------------------

    cdef object _command(self, found, bytes data):
        """The command for a usual append; None for all others."""
        cdef Scanner scanner = self._scanner
        cdef Order order = scanner.order
        if order.content_type_at < 0 or not 0 < scanner.body_bytes <= _BODY_BYTES_MAX or scanner.query.size:
            return None
        content_type = _of_header(bytes_of(scanner.value[order.content_type_at]))
        producer = None
        if order.producer_at >= 0:
            producer = self._producer()
            if producer is None:
                return None
        elif order.epoch_at >= 0 or order.seq_at >= 0:
            return None
        body = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + scanner.body_at, scanner.body_bytes)
        name, ends, asked_at = found.address.name, None, None
        if _is_json(content_type) and not _is_one_object(body):
            messages = _few_messages(body)
            if messages is None:
                return None
            body, ends = b"".join(messages), _ends_of(messages)
        self._stream = stream = (<dict>self._state.streams).get(name) if self._is_alone else None
        if stream is not None and stream.lifetime is not _FOREVER:
            alive_at = self.renewals.time_for(name)
            if not _lasts(stream, alive_at):
                return None
            if stream.lifetime.ttl_seconds is not None:
                asked_at = alive_at
        return _Append(name, body, ends, content_type, False, None, producer, None, None, None, asked_at)

    cdef int _submit(self, connection, found, dialect, bytes data, command) except -1:
        """Have an append decided, which the connection waits for."""
        cdef Waiting waiting = Waiting.__new__(Waiting)
        cdef bytes body = command.payload
        account = self._account
        if account is not None:
            account.appends.level = account.appends.level - self._scanner.body_bytes
            account.requests.level = account.requests.level - 1
        waiting.path, waiting.connection, waiting.found = self, connection, found
        waiting.head, waiting.body = data[: self._scanner.body_at], body
        waiting.dialect, waiting.identity, waiting.account = dialect, self._identity, account
        waiting.own_lines = self._own_lines
        waiting.began_at_seconds, waiting.judged_by = monotonic(), self._judged_by
        connection.deadline = _NEVER
        connection.exchanges.append(waiting)
        try:
            self._enqueue(command, waiting)
        except Exception:
            _replace_with_exchange(waiting).fail()
        return 0

    cdef object _producer(self):
        """The producer in headers of the usual form; None for all others."""
        cdef Scanner scanner = self._scanner
        cdef Order order = scanner.order
        cdef Text text
        if order.epoch_at < 0 or order.seq_at < 0:
            return None
        cdef long long epoch = _number(scanner.value[order.epoch_at])
        cdef long long seq = _number(scanner.value[order.seq_at])
        text = scanner.value[order.producer_at]
        if epoch < 0 or seq < 0 or text.size > _ID_BYTES_MAX:
            return None
        name = _text_of(bytes_of(text))
        return _Producer(name, epoch, seq) if name else None

    cdef int _enqueue(self, command, Waiting waiting) except -1:
        """Queue an append, as `Shard.submit` does."""
        stream = self._stream
        if stream is None or stream.closed or stream.deleted:
            self._shard.submit(command, waiting)
        elif self._committer.queued_bytes >= _QUEUE_BYTES_MAX or self._state.hot_bytes >= self._shard.hot_bytes_max:
            self._shard.submit(command, waiting)
        elif not self._log.has_room:
            self._shard.submit(command, waiting)
        else:
            if command.asked_at is not None:
                self.renewals.begin(command.name, command.asked_at)
                waiting.renews = True
            self._committer.enqueue(command, waiting, _cost(command))
        return 0

    cdef int answer(self, Waiting waiting, reply) except -1:
        """Answer an append that was accepted; its response leaves when every response before it has."""
        cdef long long numbers[6]
        cdef int count = 2
        cdef double now = monotonic()
        found, connection = waiting.found, waiting.connection
        record, epoch = reply.record, reply.producer_epoch
        numbers[0], numbers[1] = reply.next_offset, reply.incarnation
        if record is not None:
            numbers[2], numbers[3] = record, reply.record_next
            count = 4
        if epoch is not None:
            numbers[count], numbers[count + 1] = epoch, reply.producer_seq
        cdef Template template = self._append_template(
            now, waiting.dialect, waiting.own_lines, record is not None, epoch is not None
        )
        response = template.fill(numbers, None, False, 0)
        self._count(found.label, 204 if epoch is None else 200, now - waiting.began_at_seconds)
        exchanges = connection.exchanges
        if len(exchanges) == 1 and exchanges[0] is waiting and _may_rest(connection):
            exchanges.popleft()
            self._send(connection, response)
        else:
            waiting.response = [response]
            connection.finished()
        return 0

    cdef Template _append_template(self, double now, dialect, bytes own_lines, bint records, bint producer):
        key = (own_lines, records, producer)
        template = self._templates_for(dialect, now).get(key)
        if template is None:
            text = self._renderer.append_template(dialect, records=records, producer=producer, own_lines=own_lines)
            template = self._keep(dialect, key, text)
        return template

    # -- Reads ----------------------------------------------------------------------------------------------------

    cdef object _page(self, found, dialect):
        """The response to a usual read, in one part or in a list of parts; None for all others."""
        cdef Scanner scanner = self._scanner
        cdef long long numbers[8]
        cdef long long offset = _offset(scanner.query), tail
        cdef Py_ssize_t body_bytes
        cdef bint is_json
        cdef double began_at = monotonic()
        account = self._account
        if offset < 0 or self._context.sending.full:
            return None
        stream = (<dict>self._state.streams).get(found.address.name)
        if stream is None or stream.deleted:
            return None
        if stream.lifetime is not _FOREVER:
            now = self._shard.now()
            if not _lasts(stream, now) or self.renewals.are_due(stream, now):
                return None
        tail = stream.tail
        payloads = self._last_few(stream, offset, tail) if self._is_alone and not stream.closed else None
        if payloads is None:
            return self._earlier_page(found, dialect, offset, began_at)
        content_type = stream.content_type
        is_json = _is_json(content_type)
        body_bytes = _size_of_page(payloads, is_json)
        if body_bytes >= _PAGE_BYTES_MAX or (account is not None and account.reads.level < body_bytes):
            return None
        numbers[0] = numbers[4] = tail
        numbers[1] = numbers[2] = stream.incarnation
        numbers[3] = offset
        if is_json:
            numbers[5], numbers[6], numbers[7] = stream.record_start, stream.record_next, body_bytes
        else:
            numbers[5] = body_bytes
        cdef Template template = self._page_template(began_at, dialect, content_type, tail > offset, is_json)
        response = template.fill(numbers, payloads, is_json, body_bytes)
        if account is not None:
            account.reads.level = account.reads.level - body_bytes
            account.requests.level = account.requests.level - 1
        self._count(found.label, 200, monotonic() - began_at)
        return response

    cdef list _earlier_page(self, found, dialect, long long offset, double began_at):
        """The response with a page that ends before the tail, as far as that is known here; None for all others.

        Nothing can change such a page, so on a shared log it needs no barrier.
        """
        context, account = self._context, self._account
        if context.long_pages.full or (self._own_lines and dialect.by_origin):
            return None
        read = _Read(found.address.name, offset)
        if self._shard.queries.reaches_tail(read):
            return None
        page = self._shard.read_hot(read)
        if type(page) is not _Page or page.up_to_date:
            return None
        cdef Py_ssize_t body_bytes = PyBytes_GET_SIZE(<bytes>page.body)
        if account is not None:
            if account.reads.level < body_bytes:
                return None
            account.reads.level = account.reads.level - body_bytes
            account.requests.level = account.requests.level - 1
        _count_page(body_bytes, context)
        response = self._renderer.page(page, dialect, close=False)
        self._count(found.label, 200, monotonic() - began_at)
        return response

    cdef list _last_few(self, stream, long long offset, long long tail):
        """The payloads from an offset to the tail, each of one message; None if the long path must look."""
        cdef Py_ssize_t index, count
        cdef long long position
        if offset == tail:
            return []
        appends = stream.hot
        if appends is None or offset > tail or tail - offset > self._page_bytes_max or offset < stream.start:
            return None
        cdef list hot = appends
        count = len(hot)
        for index in range(count - 1, max(count - 1 - APPENDS_MAX, -1), -1):
            one = hot[index]
            position = one.offset
            if position == offset:
                if count - index != stream.record_next - one.record:
                    return None
                return [one.payload for one in hot[index:]]
            if position < offset:
                return None
        return None

    cdef Template _page_template(self, double now, dialect, content_type, bint has_data, bint is_json):
        key = (self._own_lines, content_type, has_data)
        template = self._templates_for(dialect, now).get(key)
        if template is None:
            record = 0 if is_json else None
            page = _Page(0, content_type, 0, has_data, True, False, b"", record, record)
            template = self._keep(dialect, key, self._renderer.page_template(page, dialect, self._own_lines))
        return template

    # -- Both -----------------------------------------------------------------------------------------------------

    cdef dict _templates_for(self, dialect, double now):
        """The templates of a dialect whose date is right."""
        if now >= self._templates_until:
            self._templates.clear()
        elif dialect is self._last_dialect:
            return self._last_templates
        self._last_dialect, self._last_templates = dialect, self._templates.setdefault(dialect, {})
        return self._last_templates

    cdef Template _keep(self, dialect, tuple key, bytes text):
        """Keep a template until its date is out of date."""
        cdef dict templates = self._last_templates
        if self._templates_until != self._renderer.templates_until:
            # The renderer has begun anew, and so do these: all of them have one date.
            self._templates.clear()
            templates.clear()
            self._templates[dialect] = templates
            self._templates_until = self._renderer.templates_until
        if len(templates) >= TEMPLATES_MAX:
            templates.clear()
        template = templates[key] = Template(text)
        return template

    cdef int _count(self, str route, int status, double seconds) except -1:
        """As `Metrics.finished`."""
        cdef int index = 0
        metrics = self._metrics
        key = (route, status)
        requests = metrics.requests
        requests[key] = requests[key] + 1
        histogram = (<dict>metrics.request_seconds).get(route)
        if histogram is None:
            histogram = metrics.request_seconds[route] = _Histogram()
        while index < _BOUNDS_COUNT and _BOUNDS[index] < seconds:
            index += 1
        cdef list counts = histogram.counts
        counts[index] = counts[index] + 1
        histogram.sum = histogram.sum + seconds

    cdef int _send(self, connection, response) except -1:
        """Send the response to the only request of a connection, which then rests."""
        context = self._context
        # Before it is sent: a client that does not take it gets another deadline meanwhile.
        connection.deadline = <double>context.now + self._idle_seconds
        if type(response) is bytes:
            context.sent_bytes = context.sent_bytes + PyBytes_GET_SIZE(<bytes>response)
            connection.transport.write(response)
        else:
            context.sent_bytes = context.sent_bytes + sum(map(len, response))
            connection.transport.writelines(response)


cdef bint _may_rest(connection) except -1:
    """Whether nothing is left to do for a connection once its only response is sent."""
    if connection.write_paused or connection.starting or connection.inflow.paused:
        return False
    return connection.parser.stage is _IDLE


cdef bint _lasts(stream, long long now) except -1:
    """Whether a stream with a lifetime lives for another second at least."""
    lifetime = stream.lifetime
    ttl = lifetime.ttl_seconds
    cdef long long ends = lifetime.expires_at if ttl is None else stream.touched_at + ttl * _SECOND_US
    return ends - now > _SECOND_US


cdef inline Py_ssize_t _cost(command) except -1:
    """As `cost_bytes` for an append without conditions."""
    ends = command.ends
    cdef Py_ssize_t size = PyBytes_GET_SIZE(<bytes>command.payload) + len(command.content_type)
    return _COMMAND_BYTES + size + (0 if ends is None else PyBytes_GET_SIZE(<bytes>ends))


cdef long long _number(Text text):
    """A number of few digits; -1 if it is not one."""
    cdef long long number = 0
    cdef Py_ssize_t index
    if text.size == 0 or text.size > _DIGITS_MAX:
        return -1
    for index in range(text.size):
        if not c"0" <= text.at[index] <= c"9":
            return -1
        number = number * 10 + text.at[index] - c"0"
    return number


cdef long long _offset(Text query):
    """The position in a query that is only an offset as every surface accepts it; -1 for all others."""
    cdef Text digits
    if query.size < 9 or memcmp(query.at, b"offset=", 7) != 0:
        return -1
    digits.at, digits.size = query.at + 7, query.size - 7
    if digits.size == 2 and memcmp(digits.at, b"-1", 2) == 0:
        return 0
    if digits.size == 33 and memcmp(digits.at, b"0000000000000000_", 17) == 0:
        if not c"0" <= digits.at[32] <= c"9":
            return -1
        digits.at, digits.size = digits.at + 17, 15
        return _number(digits)
    if digits.size == 20 and memcmp(digits.at, b"00000", 5) == 0:
        digits.at, digits.size = digits.at + 5, 15
        return _number(digits)
    return -1
