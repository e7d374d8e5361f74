"""Grants with placeholders, for the rules of an issuer: `read,append users/{sub}/*`.

A placeholder is filled with a claim of the verified token. What is filled in must not widen the grant, whatever a user
may have chosen as a name:

- Only text of up to 64 letters, digits and `_.@:-` is filled in, so a claim brings neither a `/` nor a `*`.
- A path segment has at most one placeholder, and none if it has a `*`. Otherwise `{sub}*` would reach `ann-lee` for
  `ann`, and `{team}-{sub}` would be the same for the pairs `a-b`, `c` and `a`, `b-c`.
- The filled text is parsed as a grant again. A grant that is not valid then, for example because it would begin with
  `__`, is left out.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from headwater.access.grants import Grant, GrantError, parse_grant

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")
_VALUE = re.compile(r"[A-Za-z0-9_.@:-]{1,64}")


class Template(NamedTuple):
    """A grant whose pattern may have placeholders."""

    text: str

    def fill(self, claims: Mapping[str, object]) -> Grant | None:
        """Return the grant for these claims; None if a claim is missing or may not be filled in.

        >>> print(parse_template("read users/{sub}/*").fill({"sub": "user-17"}))
        read users/user-17/*
        >>> [parse_template("read users/{sub}/*").fill({"sub": sub}) for sub in ("a/b", "*", "..", 17)]
        [None, None, None, None]
        """
        filled = self.text
        for name in set(_PLACEHOLDER.findall(self.text)):
            value = claims.get(name)
            if not isinstance(value, str) or not _VALUE.fullmatch(value) or value in (".", ".."):
                return None
            filled = filled.replace(f"{{{name}}}", value)
        try:
            return parse_grant(filled)
        except GrantError:
            return None


def parse_template(text: str) -> Template:
    """Return the template that a text spells, or raise `GrantError`."""
    for segment in text.partition(" ")[2].split("/"):
        placeholders = len(_PLACEHOLDER.findall(segment))
        if placeholders > 1:
            raise GrantError(f"{text!r} has two placeholders side by side; put a / between them.")
        if placeholders and "*" in segment:
            raise GrantError(f"{text!r} would reach what belongs to others; put a / between the placeholder and the *.")
    try:
        parse_grant(_PLACEHOLDER.sub("x", text))
    except GrantError as error:
        if "{" not in text and "}" not in text:
            raise
        raise GrantError(f"{text!r} is not a grant with placeholders like {{sub}}: {_about(error)}") from None
    return Template(text)


def _about(error: GrantError) -> str:
    return f"with x in their place, {error}"
