"""Bytes in, bytes out: parsing requests and rendering responses."""
