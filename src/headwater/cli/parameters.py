"""Options whose values have units or a grammar; each function is the `callback` of an option."""

from collections.abc import Callable

import click

from headwater.protocol import content_types
from headwater.units import parse_duration, parse_size

Callback = Callable[[click.Context, click.Parameter, str | None], object]


def duration(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Return seconds."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def whole_duration(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return seconds without a fraction."""
    seconds = duration(context, parameter, text)
    if seconds is None or seconds == int(seconds):
        return None if seconds is None else int(seconds)
    raise click.BadParameter(f"{text!r} is not a whole number of seconds.")


def size(least: int, most: int) -> Callback:
    """Return a callback for a number of bytes within bounds."""

    def parse(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        try:
            found = None if text is None else parse_size(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if found is not None and not least <= found <= most:
            raise click.BadParameter(f"{text} is not between {least:,} and {most:,} bytes.")
        return found

    return parse


def content_type(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Return a content type that the server accepts; it silently replaces any other with its default."""
    if text is not None and not content_types.is_valid(text):
        raise click.BadParameter(f"{text!r} is not a content type; write it like text/plain or application/json.")
    return text
