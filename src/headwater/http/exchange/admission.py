"""Admission: whose request it is, what that one may still do, and how much."""

from collections.abc import Sequence
from time import monotonic
from typing import Protocol

import msgspec

from headwater.access.allowances import Account
from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.context import Context
from headwater.http.exchange.auditing import record_denied
from headwater.http.guard.accounts import refuse
from headwater.http.guard.gates import Caller
from headwater.http.wire.requests import NOTHING, Request, cut_access_token
from headwater.http.wire.statuses import Voice
from headwater.protocol.refusals import Code, Refusal

_RULES_CHANGED = Refusal(Code.OVERLOADED, "The access rules changed while this request waited; send it again.")


class Client(Caller, Protocol):
    """The connection, as far as it matters here."""

    def mute(self, seconds: float) -> None:
        """Take nothing from the client for a while."""


class AdmittedRequest(msgspec.Struct, eq=False, kw_only=True):
    """A request that has passed the gate."""

    connection: Client
    context: Context
    request: Request
    judged: Request
    """The request as it was judged, with the credential in its URL."""
    judged_by: int
    """How often the rules had changed when it was judged."""
    identity: Identity
    """Whose request it is."""
    voice: Voice
    action: Action = Action.NONE
    judged_name: str | None = None
    """What it does, and the name by which that was judged; None if its handler judges the names."""
    account: Account | None = None
    """What its principal has left of its limits, if there may be any."""
    live_slots: int = 0
    ticket: bytes | None = None
    """The credential that was in its URL."""
    is_doubtful: bool = False
    """Whether the rules of now could not be applied, because the keys of an issuer are missing."""
    name: str = ""
    """The stream that it is about, if any."""

    def cut_ticket(self) -> None:
        """Take the credential out of the URL, so that no cache, page or redirect gets to see it."""
        query, self.ticket = cut_access_token(self.request.query)
        self.request = self.request.with_query(query)

    def charge_read(self, size: int) -> None:
        """Charge bytes that are sent to the client."""
        if self.account is not None:
            seconds = self.account.reads.spend(size)
            if seconds:
                self.connection.mute(seconds)

    def take_live_slots(self, count: int = 1) -> Refusal | None:
        """Count live reads of the client until this exchange has ended, unless it has too many."""
        exceeded = None if self.account is None else self.account.live_reads.begin(count)
        if exceeded is not None:
            return refuse(exceeded)
        self.live_slots = count
        return None

    def release_live_slots(self) -> None:
        """The live reads have ended. Idempotent."""
        if self.account is not None:
            self.account.live_reads.end(self.live_slots)
        self.live_slots = 0

    def forget_body(self) -> None:
        """Release the body of a request that is kept as long as its response lasts."""
        if self.request.intake is not None:
            self.request.intake.release()
        self.request, self.judged = self.request.with_body(b""), self.judged.with_body(b"")

    @property
    def has_stale_rights(self) -> bool:
        """Whether the rules have changed since it was judged: it gets nothing more before it is judged again."""
        return self.judged_by != self.context.gate.changes

    def forget_head(self) -> None:
        """Release the request of a response that lasts, unless rules may change by which it would be judged again."""
        if self.context.guard is None:
            self.request = self.judged = NOTHING

    def refuse_right(self, action: Action, name: str | None) -> Refusal:
        """The refusal of what the client may not do, which is recorded."""
        refusal = self.context.gate.forbid(self.request, self.identity, action, name)
        record_denied(self.context, self.request, self.connection, action, name, refusal)
        return refusal

    def refuse_by_now(self) -> Refusal | None:
        """Why a request that was admitted and had to wait is refused: its credential has ended, or the rules differ."""
        if not self.has_stale_rights and monotonic() < self.identity.expires_at:
            return None
        gate, before = self.context.gate, self.identity
        renewed = gate.admit(self.judged, self.action, self.judged_name, self.connection)
        if isinstance(renewed, Refusal):
            record_denied(self.context, self.judged, self.connection, self.action, self.judged_name, renewed)
            self.name = ""  # Not even the type of the stream may show in the answer.
            return renewed
        if (renewed.exact, renewed.prefixes) != (before.exact, before.prefixes):
            # Names in its body, its query or its headers were judged by the rights that it had.
            return _RULES_CHANGED
        self.identity, self.judged_by = renewed, gate.changes
        self.voice = self.context.renew_voice(self.voice, self.name)
        return None

    def remains_admitted(self, names: Sequence[str] = (), *, ticks: bool = False) -> bool:
        """Whether the client may still read its stream, or all of these: no credential and no right has ended.

        What is doubtful is judged again when time has passed, and not with every append, which may wake thousands.
        """
        if monotonic() >= self.identity.expires_at:
            return False
        if self.has_stale_rights or (ticks and self.is_doubtful):
            gate = self.context.gate
            renewed = gate.renew(self.judged, None if names else self.name, self.connection)
            self.is_doubtful = isinstance(renewed, Refusal) and renewed.code is Code.AUTH_UNAVAILABLE
            if isinstance(renewed, Identity):
                if not all(renewed.may(Action.READ, name) for name in names):
                    return False
                self.identity = renewed
            elif not self.is_doubtful:
                return False
            self.judged_by = gate.changes
        return True
