"""Handlers: the function that applies a command to the state, by the command's type."""

from collections.abc import Callable
from typing import Any, TypeVar

from headwater.streams.commands.command import Command
from headwater.streams.replies import Reply
from headwater.streams.state import State

_Kind = TypeVar("_Kind", bound=Command)

HANDLERS: dict[type, Callable[[State, Any], Reply]] = {}
"""Complete once `apply` is imported, since that imports every module that has handlers."""


def handles(kind: type[_Kind]) -> Callable[[Callable[[State, _Kind], Reply]], Callable[[State, _Kind], Reply]]:
    """Have the function below apply this kind of command."""

    def enter(handler: Callable[[State, _Kind], Reply]) -> Callable[[State, _Kind], Reply]:
        HANDLERS[kind] = handler
        return handler

    return enter
