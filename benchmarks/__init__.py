"""Measures this server beside others: interleaved rounds, verified contents, ratios instead of absolute figures."""
