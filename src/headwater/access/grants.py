"""Grants: the actions that are allowed on names. Pure functions and values.

A grant is `"ACTION[,ACTION] PATTERN"`. Its pattern matches canonical names, `bucket/stream` (`protocol.names`),
however the URL spells them. The first `/` ends the bucket; the rest is the stream and may contain more of them:

    *                 every name, and the server itself
    BUCKET/*          the bucket and every stream in it
    PREFIX*/*         every bucket with this prefix, and every stream in it
    BUCKET/PREFIX*    every stream of the bucket with this prefix
    BUCKET/STREAM     one stream

So a pattern is either a name or a prefix of names, and no grant takes anything away. These rules keep a pattern from
reaching more than it says:

- A prefix without a `/` is only written as `PREFIX*/*`. Every canonical name has a bucket (the stream at
  `/v1/stream/notes` is `_default/notes`), so a name that begins with `acme-` is in a bucket that begins so, and
  `acme-*/*` does not reach the bucket `acme`. `tenant-1*` is refused: it reads like the bucket `tenant-1` and would
  reach `tenant-10`.
- The server's own resources are judged as the name `__headwater`. Only `*` may reach a name that begins with `__`; any
  other pattern that could is refused.
- A grant for one stream never covers a listing: `BUCKET/STREAM` as a prefix would also show `BUCKET/STREAM-2`.
- A `*` is always the wildcard, so a stream with a `*` in its name can only be granted by a prefix. The same holds for
  braces, which are reserved for placeholders (`Template`).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.protocol.names import DEFAULT_BUCKET, parse_whole
from headwater.protocol.refusals import Refusal

GRANTS_MAX = 256
"""Grants of one identity; more would make the list of prefixes that every request is compared with too long."""
SERVER_NAME = "__headwater"
"""The name by which the server's own resources are judged."""
RESERVED_PREFIX = "__"
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")
_VALUE = re.compile(r"[A-Za-z0-9_.@:-]{1,64}")


class Action(IntEnum):
    """What a request does; the number is the index into `Rights`."""

    READ = 0
    APPEND = 1
    CREATE = 2
    DELETE = 3
    SNAPSHOT = 4
    PIPELINE = 5
    OBSERVE = 6
    ADMIN = 7
    NONE = 8
    """Allowed to every client, for health checks and the like; never part of a grant."""

    @property
    def word(self) -> str:
        """The action as a grant spells it."""
        return self.name.lower()


GRANTABLE = frozenset(Action) - {Action.NONE}
CHANGING = (Action.APPEND, Action.CREATE, Action.DELETE, Action.SNAPSHOT, Action.PIPELINE, Action.ADMIN)
"""Actions that may change something; few servers grant them to clients without a credential."""
_BY_WORD = {action.word: action for action in sorted(GRANTABLE)}


class GrantError(ValueError):
    """A text is not a valid grant; the message is one sentence that says what to write instead."""


class Grant(NamedTuple):
    """Actions, and the one name or the prefix of names on which they are allowed."""

    actions: frozenset[Action]
    reach: str
    is_prefix: bool

    def covers(self, action: Action, name: str) -> bool:
        """Whether this grant allows the action on a name.

        >>> parse_grant("read acme-*/*").covers(Action.READ, "acme-1/x"), parse_grant("read acme-*/*").reach
        (True, 'acme-')
        """
        return action in self.actions and (name.startswith(self.reach) if self.is_prefix else name == self.reach)

    def __str__(self) -> str:
        words = "*" if self.actions == GRANTABLE else ",".join(action.word for action in sorted(self.actions))
        if not self.is_prefix:
            return f"{words} {self.reach}"
        return f"{words} {self.reach}*{'' if '/' in self.reach or not self.reach else '/*'}"


class Rights(NamedTuple):
    """What an identity may do, indexed by action; `NONE` is allowed to every client.

    A request is judged by `name in exact[action] or name.startswith(prefixes[action])`.
    """

    exact: tuple[frozenset[str], ...]
    prefixes: tuple[tuple[str, ...], ...]

    def allows(self, action: Action, name: str) -> bool:
        """Whether the action is allowed on this name."""
        return name in self.exact[action] or name.startswith(self.prefixes[action])

    def allows_all_below(self, action: Action, prefix: str) -> bool:
        """Whether the action is allowed on every name that begins with the prefix, as a listing needs it."""
        return prefix.startswith(self.prefixes[action])


def parse_grant(text: str) -> Grant:
    """Return the grant that a text spells, or raise `GrantError`.

    >>> [str(parse_grant(text)) for text in ("append,read chat/*", "* *", "read acme-*/*", "read chat/room-42")]
    ['read,append chat/*', '* *', 'read acme-*/*', 'read chat/room-42']
    """
    words, space, pattern = text.partition(" ")
    if not space or pattern != pattern.strip() or not pattern:
        raise GrantError(
            f"{text!r} is not a grant; write actions, one space and a pattern, as in 'read,append chat/*'."
        )
    actions = _parse_actions(text, words)
    if "{" in pattern or "}" in pattern:
        raise GrantError(f"{text!r} has a brace in its pattern; placeholders are for the rules of an issuer only.")
    reach, is_prefix = _parse_pattern(text, pattern)
    _check_reach(text, reach, is_prefix)
    return Grant(actions, reach, is_prefix)


def _parse_actions(text: str, words: str) -> frozenset[Action]:
    if words == "*":
        return GRANTABLE
    unknown = [word for word in words.split(",") if word not in _BY_WORD]
    if unknown:
        known = ", ".join(_BY_WORD)
        raise GrantError(f"{text!r} has the unknown action {unknown[0]!r}; write * or some of {known}.")
    return frozenset(_BY_WORD[word] for word in words.split(","))


def _parse_pattern(text: str, pattern: str) -> tuple[str, bool]:
    """Return the name or prefix of a pattern, and whether it is a prefix."""
    if pattern == "*":
        return "", True
    bucket, slash, stream = pattern.partition("/")
    if not slash:
        raise GrantError(f"{text!r} has no bucket; {_bucket_advice(pattern)}.")
    if "*" in bucket:
        begin = bucket.removesuffix("*")
        if stream != "*" or "*" in begin:
            raise GrantError(f"{text!r} has a * in the middle; a pattern has one at its end, or is like acme-*/*.")
        if not begin:
            raise GrantError(f"{text!r} would reach every bucket; write * for everything, the server included.")
        return begin, True
    begin = stream.removesuffix("*")
    if "*" in begin:
        raise GrantError(f"{text!r} has a * in the middle; a pattern has one at its end, or is like acme-*/*.")
    return f"{bucket}/{begin}", begin != stream


def _bucket_advice(pattern: str) -> str:
    if "*" in pattern.removesuffix("*") or not pattern.isprintable():
        return "write BUCKET/*, BUCKET/PREFIX* or BUCKET/STREAM"
    if pattern.endswith("*"):
        begin = pattern.removesuffix("*")
        return f"say {begin}/* for the bucket, or {begin}*/* for all that begin so"
    return f"say {pattern}/* for the bucket, or {DEFAULT_BUCKET}/{pattern} for the stream that was created without one"


def _check_reach(text: str, reach: str, is_prefix: bool) -> None:
    """Refuse a pattern that reaches reserved names without being `*`, and one that reaches no name at all."""
    if is_prefix and not reach:
        return
    if reach.startswith(RESERVED_PREFIX) or (is_prefix and RESERVED_PREFIX.startswith(reach)):
        raise GrantError(f"{text!r} would reach names that begin with {RESERVED_PREFIX}; only the pattern * does.")
    shortest_end = "" if not is_prefix else "x" if "/" in reach else "x/x"
    try:
        reach.encode()
    except UnicodeEncodeError:
        raise GrantError(f"{text!r} is not valid Unicode; write the name as UTF-8.") from None
    example = parse_whole(reach + shortest_end)
    if isinstance(example, Refusal):
        raise GrantError(f"{text!r} reaches no stream, since no name can be like that; check the bucket and the name.")


def covering(grants: Iterable[Grant], action: Action, name: str) -> Grant | None:
    """Return the first grant that allows the action on the name."""
    return next((grant for grant in grants if grant.covers(action, name)), None)


def narrow(some: Sequence[Grant], others: Sequence[Grant]) -> list[Grant]:
    """Return grants that allow exactly what both lists allow.

    Two patterns that have a name in common are nested, so what they share is the narrower one.

    >>> [str(grant) for grant in narrow([parse_grant("read,append chat/*")], [parse_grant("* chat/room-*")])]
    ['read,append chat/room-*']
    """
    found: dict[tuple[str, bool], set[Action]] = {}
    for action in _actions_of(some) & _actions_of(others):
        one, other = _Reach.of(some, action), _Reach.of(others, action)
        for reach in dict.fromkeys([*one.within(other), *other.within(one)]):
            found.setdefault(reach, set()).add(action)
    return [Grant(frozenset(actions), reach, is_prefix) for (reach, is_prefix), actions in found.items()]


def _actions_of(grants: Sequence[Grant]) -> frozenset[Action]:
    return frozenset().union(*(grant.actions for grant in grants))


class _Reach(NamedTuple):
    """The names that grants allow for one action."""

    exact: frozenset[str]
    prefixes: tuple[str, ...]
    """Sorted, and none begins with another."""

    @classmethod
    def of(cls, grants: Sequence[Grant], action: Action) -> "_Reach":
        granted = [grant for grant in grants if action in grant.actions]
        prefixes = _without_covered(grant.reach for grant in granted if grant.is_prefix)
        return cls(frozenset(grant.reach for grant in granted if not grant.is_prefix), prefixes)

    def within(self, other: "_Reach") -> list[tuple[str, bool]]:
        """What of this the other covers, each with whether it is a prefix."""
        names = [(name, False) for name in self.exact if name in other.exact or other._has_prefix_of(name)]
        return names + [(prefix, True) for prefix in self.prefixes if other._has_prefix_of(prefix)]

    def _has_prefix_of(self, text: str) -> bool:
        # Whatever sorts between a prefix of the text and the text begins with that prefix, too.
        at = bisect_right(self.prefixes, text)
        return at > 0 and text.startswith(self.prefixes[at - 1])


def compile_rights(grants: Iterable[Grant]) -> Rights:
    """Return grants in the form in which requests are judged, without what a shorter prefix covers anyway."""
    exact: list[set[str]] = [set() for _ in Action]
    prefixes: list[set[str]] = [set() for _ in Action]
    prefixes[Action.NONE].add("")
    for grant in grants:
        for action in grant.actions:
            (prefixes if grant.is_prefix else exact)[action].add(grant.reach)
    shortest = [_without_covered(found) for found in prefixes]
    names = zip(exact, shortest, strict=True)
    return Rights(
        tuple(frozenset(name for name in found if not name.startswith(begins)) for found, begins in names),
        tuple(shortest),
    )


def _without_covered(prefixes: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for prefix in sorted(prefixes):  # A prefix sorts before everything that begins with it.
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


NO_RIGHTS = compile_rights([])
"""Only what every client may do."""


class Template(NamedTuple):
    """A grant whose pattern may have placeholders, for the rules of an issuer: `read,append users/{sub}/*`.

    A placeholder is filled with a claim of the verified token. What is filled in must not widen the grant, whatever a
    user may have chosen as a name:

    - Only text of up to 64 letters, digits and `_.@:-` is filled in, so a claim brings neither a `/` nor a `*`.
    - A path segment has at most one placeholder, and none if it has a `*`. Otherwise `{sub}*` would reach `ann-lee` for
      `ann`, and `{team}-{sub}` would be the same for the pairs `a-b`, `c` and `a`, `b-c`.
    - The filled text is parsed as a grant again. A grant that is not valid then, for example because it would begin
      with `__`, is left out.
    """

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
