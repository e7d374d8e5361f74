"""The page of settings has each of them, as it is: flag, environment variable, default, meaning."""

import re

from headwater.settings import ENVIRONMENT_PREFIX, HELP, Settings

from .pages import DOCS

PAGE = DOCS / "reference" / "settings.md"
UNITS = ((1024 * 1024, "MiB"), (1024, "KiB"))


def row(name: str) -> str:
    """What the page must say of a setting."""
    return f"| `--{name.replace('_', '-')}` | `{ENVIRONMENT_PREFIX}{name.upper()}` | {default(name)} | {HELP[name]} |"


def default(name: str) -> str:
    value = getattr(Settings(), name)
    if isinstance(value, bool):
        return "on" if value else "off"
    if value == "":
        return "empty"
    if "bytes" in name:
        size, unit = next(found for found in UNITS if value % found[0] == 0)
        return f"`{value}` ({value // size} {unit})"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_every_setting_has_a_row_and_every_row_a_setting() -> None:
    rows = re.findall(r"^\| `--.*\|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(row(name) for name in Settings.__struct_fields__)
