"""Contexts: the servers that a person has logged in to."""
