"""Check what a credential, or a token named by its id, may do, and say why."""

import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from headwater.access import tokens
from headwater.access.document import Document, PolicyError
from headwater.access.grants import Action, Grant, covering, parse_grant
from headwater.access.identities import Denied, Moment
from headwater.access.jwks import FETCH_SECONDS_MAX, FetchedKeys
from headwater.access.policy import Policy, load
from headwater.protocol.names import parse_whole
from headwater.protocol.refusals import Refusal


class Question(NamedTuple):
    """Whether an action is allowed on a name, or on every name with a prefix."""

    action: Action
    name: str
    is_prefix: bool


class Verdict(NamedTuple):
    """The answer to a question, for an identity, with the reason."""

    who: str
    is_allowed: bool
    why: str


def parse_question(text: str) -> Question:
    """Return the question that a text such as `append chat/x` or `read chat/*` asks; `ValueError` if it is none.

    >>> parse_question("append chat/x")
    Question(action=<Action.APPEND: 1>, name='chat/x', is_prefix=False)
    """
    if text.endswith("*"):
        asked = parse_grant(text)
        name, is_prefix = asked.reach, True
    else:
        word, _, name = text.partition(" ")
        asked, is_prefix = parse_grant(f"{word} *"), False
        if isinstance(parse_whole(name), Refusal):
            raise ValueError(f"{text!r} is not a question; write an action and a name, as in 'append chat/room-42'.")
    if len(asked.actions) != 1:
        raise ValueError(f"{text!r} asks about several actions; ask about one, as in 'append chat/room-42'.")
    return Question(next(iter(asked.actions)), name, is_prefix)


def check_id(document: Document, token_id: str, question: Question) -> Verdict | None:
    """Judge a token of the file by its id; None if there is no such token."""
    for token in document.token:
        if token.id == token_id:
            grants = [*token.grants, *document.anonymous.grants]
            return _judge(token_id, list(map(parse_grant, grants)), question)
    return None


def check_credential(path: Path, credential: bytes, question: Question) -> Verdict | Denied:
    """Judge a token, a ticket or a provider's token as the server would."""
    policy = load(path)
    now = Moment(time.time(), time.monotonic())
    if not credential.startswith(tokens.PREFIX):
        _fetch_keys(policy, now)
    found = policy.identify_bearer(credential, now)
    if isinstance(found, Denied):
        return found
    begins = found.prefixes[question.action]
    grants = [Grant(frozenset({question.action}), begin, is_prefix=True) for begin in begins]
    grants += [
        Grant(frozenset({question.action}), name, is_prefix=False) for name in sorted(found.exact[question.action])
    ]
    return _judge(found.name, grants, question)


def _fetch_keys(policy: Policy, now: Moment) -> None:
    policy.refresh(now)
    for issuer in policy.issuers.values():
        if isinstance(issuer.keys, FetchedKeys):
            issuer.keys.wait(2 * FETCH_SECONDS_MAX)
            if issuer.keys.problem is not None:
                raise PolicyError(f"The keys of issuer {issuer.url} could not be fetched: {issuer.keys.problem}.")


def _judge(who: str, grants: Sequence[Grant], question: Question) -> Verdict:
    usable = [grant for grant in grants if grant.is_prefix] if question.is_prefix else grants
    covers = covering(usable, question.action, question.name)
    if covers is not None:
        return Verdict(who, True, f"'{covers}' covers it")
    if not grants:
        return Verdict(who, False, f"no grant includes {question.action.word}")
    return Verdict(who, False, f"the nearest grant is '{_nearest(grants, question)}'")


def _nearest(grants: Sequence[Grant], question: Question) -> Grant:
    """Return the grant that has the action if any has, and the most of the name in common."""

    def closeness(grant: Grant) -> tuple[bool, int]:
        pairs = zip(grant.reach, question.name, strict=False)
        return question.action in grant.actions, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return max(grants, key=closeness)
