"""The clocks of the system, for compiled modules."""

from libc.time cimport time_t

cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(clockid_t, timespec*)
    enum:
        CLOCK_MONOTONIC


cdef inline double monotonic() noexcept:
    """As `time.monotonic`."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef inline long long elapsed_us(clockid_t clock) noexcept:
    """What a clock shows, in whole microseconds."""
    cdef timespec now
    clock_gettime(clock, &now)
    return now.tv_sec * 1000000LL + now.tv_nsec // 1000
