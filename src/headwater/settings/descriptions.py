"""Descriptions of the settings, derived from their fields, for flags, errors and the reference page."""

from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from headwater.settings.fields import Settings
from headwater.units import (
    DURATION_EXAMPLES,
    SIZE_EXAMPLES,
    parse_duration,
    parse_size,
    render_duration,
    render_size,
)

ENVIRONMENT_PREFIX = "HEADWATER_"


class Setting(NamedTuple):
    """One field of `Settings`."""

    name: str
    group: str
    """The heading under which help and reference list it."""
    help: str
    kind: type
    """`str`, `int`, `float` or `bool`."""
    unit: str
    """`bytes`, `seconds` or empty."""
    choices: tuple[str, ...]
    limits: dict[str, float]
    default: Any
    annotation: Any
    repeatable: bool = False
    """Whether its flag may be repeated; the values are joined by commas, as the other sources write them."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def meaning(self) -> str:
        """The help, with the choices if there are any."""
        return f"{self.help} Choices: {', '.join(self.choices)}." if self.choices else self.help

    def render(self, value: Any) -> str:
        """Write a value the way a person would."""
        if self.unit == "bytes":
            return render_size(value)
        return render_duration(value) if self.unit == "seconds" else str(value)

    @property
    def expects(self) -> str:
        """The values that the setting accepts, as the end of a sentence.

        >>> SETTINGS["port"].expects, SETTINGS["retention"].expects
        ('a whole number from 0 to 65535', 'snapshot or explicit')
        >>> SETTINGS["journal_file_bytes"].expects
        'a size such as 512MiB, 64KB or 1048576, at least 64KiB'
        """
        if self.choices:
            return " or ".join([", ".join(self.choices[:-1]), self.choices[-1]])
        if self.kind is bool:
            return "true or false"
        if self.unit == "bytes":
            return f"a size such as {SIZE_EXAMPLES}, at least {render_size(int(self.limits['ge']))}"
        if self.unit == "seconds":
            return f"a duration such as {DURATION_EXAMPLES}, above 0"
        if self.kind is int:
            least, most = self.limits["ge"], self.limits.get("le")
            return f"a whole number, at least {least}" if most is None else f"a whole number from {least} to {most}"
        return "text"

    def parse(self, value: Any) -> Any:
        """Return the value in its own type; `ValueError` if it is not one that the setting takes."""
        if isinstance(value, str):
            if self.unit == "bytes":
                value = parse_size(value)
            elif self.unit == "seconds":
                value = parse_duration(value)
            elif self.kind is not str:
                return msgspec.convert(value, self.annotation, strict=False)
        return msgspec.convert(value, self.annotation)


def _describe(name: str, annotation: Any, default: Any) -> Setting:
    kind, *metas = get_args(annotation)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    limits: dict[str, float] = {}
    help, extra = "", dict[str, Any]()
    for meta in metas:
        limits |= {bound: found for bound in ("ge", "gt", "le") if (found := getattr(meta, bound)) is not None}
        help = meta.description or help
        extra |= meta.extra or {}
    return Setting(
        name,
        extra["group"],
        help,
        str if choices else kind,
        extra.get("unit", ""),
        choices,
        limits,
        default,
        annotation,
        extra.get("repeatable", False),
    )


SETTINGS: dict[str, Setting] = {
    name: _describe(name, annotation, getattr(Settings(), name))
    for name, annotation in get_type_hints(Settings, include_extras=True).items()
    if name in Settings.__struct_fields__
}
"""Every setting by its name, in the order of the fields."""
RENAMED = {"segment_bytes": "journal_file_bytes"}
"""Earlier names of settings, still accepted as flags, as variables and in files."""
