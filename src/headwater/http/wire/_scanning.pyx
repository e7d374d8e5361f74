# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Plain heads, compiled: accepts the same heads as `heads.PlainHeads` and finds the same parts, in one pass.

A client sends the same names in the same order with every request. An *order* knows where the important ones are, so
a head whose names have the order of the last one needs neither a dict nor a comparison for each header it might have.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from headwater.http.wire.heads import HEAD_BYTES_MAX, LINES_MAX, ORDERS_MAX, Head, key_of
from headwater.http.wire.intakes import SMALL_BODY_BYTES
from headwater.http.wire.requests import CACHED_BYTES_MAX
from headwater.protocol import headers

KEPT_NAMES_MAX = 24
KEPT_BYTES_MAX = 512
"""How many names an order may have, and of how many bytes, to be remembered: each connection keeps two."""

assert LINES_MAX <= LINES, "every line of a plain head has its place"

cdef Py_ssize_t _HEAD_BYTES_MAX = HEAD_BYTES_MAX
cdef Py_ssize_t _BODY_BYTES_MAX = SMALL_BODY_BYTES
cdef int _DIGITS_MAX = len(str(SMALL_BODY_BYTES))
cdef Py_ssize_t _HOST_BYTES_MAX = CACHED_BYTES_MAX
cdef int _LINES_MAX = LINES_MAX - 1  # Without the request line.

cdef enum:
    NAME = 1
    PATH = 2
    QUERY = 4
    VALUE = 8

cdef unsigned char _KINDS[256]


cdef void _classify_characters():
    cdef int one
    for one in range(256):
        _KINDS[one] = 0
        if 0x20 <= one <= 0x7E:
            _KINDS[one] |= VALUE
        if 0x21 <= one <= 0x7E and one != c"#":
            _KINDS[one] |= QUERY
            if one != c"?":
                _KINDS[one] |= PATH
    for one in b"!#$%&'*+.^_`|~-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        _KINDS[one] |= NAME


_classify_characters()

cdef bytes _GET = b"GET", _POST = b"POST", _PUT = b"PUT", _DELETE = b"DELETE", _HEAD = b"HEAD"

# Headers that keep a request off the short path: every request, reads, or writes.
OWN_LINES, READS, WRITES = 1, 2, 4
cdef dict _TRAITS = {
    headers.X_REQUEST_ID.key: OWN_LINES,
    headers.IF_NONE_MATCH.key: READS | WRITES,
    headers.IF_MATCH.key: WRITES,
    headers.LAST_EVENT_ID.key: READS,
    headers.STREAM_INCARNATION.key: READS | WRITES,
    headers.STREAM_CLOSED.key: WRITES,
    headers.STREAM_RECORD_MATCH.key: WRITES,
    headers.STREAM_SEQ.key: WRITES,
}


cdef class Order:
    """The names of a head in their order, and where those are that matter."""

    def __init__(self, tuple names, tuple keys):
        cdef bytes name
        self.names, self.keys = names, keys
        self.count = len(names)
        self.is_kept = self.count <= KEPT_NAMES_MAX and sum(map(len, names)) <= KEPT_BYTES_MAX
        for index, name in enumerate(names):
            self.name[index].at = PyBytes_AS_STRING(name)
            self.name[index].size = PyBytes_GET_SIZE(name)
        self.traits = 0
        for key in keys:
            self.traits |= <int>_TRAITS.get(key, 0)
        self.host = None
        self.host_at = self._place(headers.HOST)
        self.length_at = self._place(headers.CONTENT_LENGTH)
        self.connection_at = self._place(headers.CONNECTION)
        self.content_type_at = self._place(headers.CONTENT_TYPE)
        self.authorization_at = self._place(headers.AUTHORIZATION)
        self.producer_at = self._place(headers.PRODUCER_ID)
        self.epoch_at = self._place(headers.PRODUCER_EPOCH)
        self.seq_at = self._place(headers.PRODUCER_SEQ)
        self.origin_at = self._place(headers.ORIGIN)

    def _place(self, header):
        return self.keys.index(header.key) if header.key in self.keys else -1


cdef class Scanner:
    """Parses plain heads; takes the place of `PlainHeads`, which knows the hosts that are admitted."""

    def __init__(self, heads):
        self._heads = heads
        self._orders = {}

    @property
    def orders(self):
        """How many orders of names are known."""
        return len(self._orders)

    def parse(self, bytes data, Py_ssize_t at, Order form):
        """The head that begins at a position of the input; None if it is not whole, or not plain."""
        cdef int index
        if not self.scan(data, at, form):
            return None
        cdef dict found = {}
        for index in range(self.order.count):
            found[self.order.keys[index]] = bytes_of(self.value[index])
        path, query = bytes_of(self.path), bytes_of(self.query)
        form = self.order if self.order.is_kept else None
        return Head(self.method, path, query, found, self.body_at, self.body_bytes, form)

    cdef bint scan(self, bytes data, Py_ssize_t at, Order expected) except -1:
        """Find the parts of a plain head, which stay valid as long as the input; False if there is none."""
        cdef const char* start = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data) - at
        cdef const char* p = start + at
        cdef const char* end = p + (size if size < _HEAD_BYTES_MAX else _HEAD_BYTES_MAX)
        cdef Text names[LINES]
        cdef Order order
        cdef int count = 0
        cdef bint is_expected = expected is not None
        p = self._request_line(p, end)
        if p == NULL:
            return False
        while True:
            if end - p < 2:
                return False
            if p[0] == c"\r":
                if p[1] != c"\n":
                    return False
                break
            if count == _LINES_MAX:
                return False
            # A name, a colon and a blank.
            names[count].at = p
            if is_expected:
                is_expected = count < expected.count and _begins_with(p, end, &expected.name[count])
            if is_expected:
                p += expected.name[count].size
            else:
                while p < end and _KINDS[<unsigned char>p[0]] & NAME:
                    p += 1
            names[count].size = p - names[count].at
            if end - p < 3 or p[0] != c":" or p[1] != c" " or names[count].size == 0:
                return False
            # A value that neither begins nor ends with a blank.
            p += 2
            self.value[count].at = p
            while p < end and _KINDS[<unsigned char>p[0]] & VALUE:
                p += 1
            self.value[count].size = p - self.value[count].at
            if end - p < 2 or p[0] != c"\r" or p[1] != c"\n":
                return False
            if self.value[count].size == 0 or self.value[count].at[0] == c" " or (p - 1)[0] == c" ":
                return False
            p += 2
            count += 1
        order = expected if is_expected and count == expected.count else self._order_of(names, count)
        if order is None:
            return False
        self.order = order
        self.body_at = p + 2 - start
        return self._frame() and self._admits()

    cdef const char* _request_line(self, const char* p, const char* end):
        """Find the method, the path and the query; returns where the next line begins, or NULL."""
        cdef const char* path
        if end - p < 18:
            return NULL
        if memcmp(p, b"GET ", 4) == 0:
            self.method = _GET
        elif memcmp(p, b"POST ", 5) == 0:
            self.method = _POST
        elif memcmp(p, b"PUT ", 4) == 0:
            self.method = _PUT
        elif memcmp(p, b"HEAD ", 5) == 0:
            self.method = _HEAD
        elif memcmp(p, b"DELETE ", 7) == 0:
            self.method = _DELETE
        else:
            return NULL
        p += PyBytes_GET_SIZE(self.method) + 1
        if p[0] != c"/":
            return NULL
        path = p
        while p < end and _KINDS[<unsigned char>p[0]] & PATH:
            p += 1
        self.path.at, self.path.size = path, p - path
        self.query.at, self.query.size = p, 0
        if p < end and p[0] == c"?":
            p += 1
            self.query.at = p
            while p < end and _KINDS[<unsigned char>p[0]] & QUERY:
                p += 1
            self.query.size = p - self.query.at
        if end - p < 11 or memcmp(p, b" HTTP/1.1\r\n", 11) != 0:
            return NULL
        return p + 11

    cdef Order _order_of(self, Text* found, int count):
        """The order of these names; None if one of them makes the head not plain."""
        cdef int index
        cdef Order order
        names = tuple([bytes_of(found[index]) for index in range(count)])
        order = self._orders.get(names)
        if order is not None:
            return order
        keys = tuple([key_of(name) for name in names])
        if None in keys or len(set(keys)) < count:
            return None
        order = Order(names, keys)
        if order.is_kept:
            if len(self._orders) >= ORDERS_MAX:
                self._orders.clear()
            self._orders[names] = order
        return order

    cdef bint _frame(self):
        """Whether the head says plainly that the connection lasts, and how long a small body is."""
        cdef Order order = self.order
        cdef Text text
        cdef Py_ssize_t size = 0
        cdef int index
        if order.connection_at >= 0:
            text = self.value[order.connection_at]
            if text.size != 10 or memcmp(text.at, b"keep-alive", 10) != 0:
                return False
        if order.length_at >= 0:
            text = self.value[order.length_at]
            if text.size > _DIGITS_MAX:
                return False
            for index in range(text.size):
                if not c"0" <= text.at[index] <= c"9":
                    return False
                size = size * 10 + text.at[index] - c"0"
        self.body_bytes = size
        return size <= _BODY_BYTES_MAX

    cdef bint _admits(self) except -1:
        """Whether clients may call this server by the host's name."""
        cdef Order order = self.order
        cdef Text text
        if order.host_at < 0:
            return False
        text = self.value[order.host_at]
        if order.host is not None and PyBytes_GET_SIZE(order.host) == text.size:
            if memcmp(PyBytes_AS_STRING(order.host), text.at, text.size) == 0:
                return True
        host = bytes_of(text)
        if not self._heads.admits_host(host):
            return False
        if text.size <= _HOST_BYTES_MAX:
            order.host = host
        return True


cdef inline bint _begins_with(const char* p, const char* end, Text* name):
    return end - p > name.size and p[name.size] == c":" and memcmp(p, name.at, name.size) == 0
