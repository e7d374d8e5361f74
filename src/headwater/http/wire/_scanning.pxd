from cpython.bytes cimport PyBytes_FromStringAndSize

cdef enum:
    LINES = 64

cdef struct Text:
    const char* at
    Py_ssize_t size


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(text.at, text.size)


cdef class Order:
    cdef tuple names
    cdef tuple keys
    cdef int traits
    cdef bint is_kept
    cdef int count
    cdef Text name[LINES]
    cdef int host_at
    cdef int length_at
    cdef int connection_at
    cdef int content_type_at
    cdef int authorization_at
    cdef int producer_at
    cdef int epoch_at
    cdef int seq_at
    cdef int origin_at
    cdef bytes host


cdef class Scanner:
    cdef object _heads
    cdef dict _orders
    cdef bytes method
    cdef Text path
    cdef Text query
    cdef Text value[LINES]
    cdef Order order
    cdef Py_ssize_t body_at
    cdef Py_ssize_t body_bytes

    cdef bint scan(self, bytes data, Py_ssize_t at, Order expected) except -1
    cdef const char* _request_line(self, const char* p, const char* end)
    cdef Order _order_of(self, Text* found, int count)
    cdef bint _frame(self)
    cdef bint _admits(self) except -1
