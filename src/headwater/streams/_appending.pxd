cpdef object apply(state, command)
