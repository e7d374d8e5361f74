"""The load generator of `headwater bench` and of `benchmarks/`: non-blocking sockets under epoll, in several processes.

`sources` make requests as ready bytes, `sockets` sends them and counts the answers, `readers` is the audience of a
stream over server-sent events. `records` and `events` make content that shows what was lost, doubled or changed.
"""
