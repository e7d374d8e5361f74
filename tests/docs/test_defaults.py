"""A page that states a setting's default names the setting, in one form, and the default is the one in `Settings`.

The form is `--flag` (default 64 MiB), or `--flag value` (the default) for a word.
"""

import re
from pathlib import Path

import pytest

from headwater.settings import SETTINGS, Setting

from .pages import PAGES, name_of

BY_FLAG = {setting.flag: setting for setting in SETTINGS.values()}
AMOUNT = r"(?:\d+|an?) ?(?:[KMG]i?B|ms|s|min|h|d|seconds?|minutes?|hours?|days?)"
STATED = re.compile(r"`(--[a-z-]+)` \(default ([^)]+)\)")
WORD = re.compile(r"`(--[a-z-]+) ([^`\s]+)`(?: \(| \| )the default\b")
OTHERWISE = re.compile(
    rf"{AMOUNT}(?: of each)? \((?:`--[a-z-]+`(?:, )?)+\)"
    rf"|`--[a-z-]+` \({AMOUNT}\)|\(`--[a-z-]+`, {AMOUNT}\)"
)
UNITS = {"second": "s", "minute": "min", "hour": "h", "day": "d"}


def parse(setting: Setting, text: str) -> object:
    """The value that a sentence states: `1 minute` is what `1min` is as a flag."""
    for word, unit in UNITS.items():
        text = re.sub(rf" {word}s?$", unit, text)
    return setting.parse(text.strip("`").replace(" ", "").replace(",", ""))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_default_that_a_page_states_is_that_of_the_setting(page: Path) -> None:
    text = page.read_text()
    for flag, stated in STATED.findall(text):
        setting = BY_FLAG[flag]
        assert parse(setting, stated) == setting.default, f"{flag}: {stated}, not {setting.render(setting.default)}"
    for flag, stated in WORD.findall(text):
        if (named := BY_FLAG.get(flag)) is not None:
            assert parse(named, stated) == named.default, f"{flag}: {stated}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_states_defaults_in_no_other_form(page: Path) -> None:
    for found in OTHERWISE.finditer(page.read_text()):
        flags = re.findall(r"--[a-z-]+", found[0])
        assert not set(flags) & set(BY_FLAG), f"write `{flags[0]}` (default ...) instead of: {found[0]}"


def test_defaults_are_stated_somewhere() -> None:
    assert sum(len(STATED.findall(page.read_text())) for page in PAGES) >= 10
