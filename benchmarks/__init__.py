"""Benchmarks: this server beside others, in interleaved rounds, with verified contents and with ratios."""
