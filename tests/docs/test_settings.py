"""The page of settings has a row for each setting, with the description at its field."""

import re

from headwater.settings import SETTINGS, Setting

from .pages import DOCS

PAGE = DOCS / "reference" / "settings.md"


def row(setting: Setting) -> str:
    """The row that the page must have for a setting."""
    return f"| `{setting.flag}` | `{setting.variable}` | {default(setting)} | {setting.meaning} |"


def default(setting: Setting) -> str:
    if setting.kind is bool:
        return "on" if setting.default else "off"
    return f"`{setting.render(setting.default)}`" if setting.default != "" else "empty"


def test_every_setting_has_a_row_and_every_row_a_setting() -> None:
    rows = re.findall(r"^\| `--.*\|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(row(setting) for setting in SETTINGS.values())
