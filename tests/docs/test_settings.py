"""The page of settings lists every setting in its group, with the description at its field."""

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


def test_the_page_has_a_table_for_each_group_with_a_row_for_each_setting() -> None:
    groups: dict[str, list[str]] = {}
    for setting in SETTINGS.values():
        groups.setdefault(setting.group, []).append(row(setting))
    sections = re.findall(r"^## (\w+)$\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = {heading: re.findall(r"^\| `--.*\|$", text, re.MULTILINE) for heading, text in sections}
    assert list({heading: found for heading, found in rows.items() if found}.items()) == list(groups.items())
