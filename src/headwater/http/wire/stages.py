"""Stages: which part of a request a parser expects next."""

from enum import Enum


class Stage(Enum):
    """Which part of a request comes next."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


# Looking up an enum's member costs a function call each time; these names cost none.
IDLE, HEAD, BODY = Stage
