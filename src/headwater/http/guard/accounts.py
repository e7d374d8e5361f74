"""Accounts: what a request is charged, and how one is refused whose principal has used up a limit."""

from headwater.access.allowances import Account, Exceeded, Overdrawn
from headwater.access.grants import Action
from headwater.http.wire.requests import Request
from headwater.http.wire.uploads import Upload
from headwater.protocol.refusals import Code, RateLimit, Refusal

_SENDING = frozenset({Action.APPEND, Action.CREATE, Action.SNAPSHOT, Action.PIPELINE})
_READING = frozenset({Action.READ, Action.PIPELINE})


_READ, _APPEND = Action.READ, Action.APPEND  # Looking up an enum's member costs a function call each time.


def charge_in_credit(account: Account, request: Request, action: Action) -> bool:
    """Charge a read or an append that is in credit; returns whether it was."""
    requests = account.requests
    if requests.level < 1:
        return False
    if action is _READ:
        if account.reads.level < 0:
            return False
    elif action is _APPEND:
        appends, size = account.appends, len(request.body)
        if appends.level < size:
            return False
        appends.level -= size
    else:
        return False
    requests.level -= 1
    return True


def charge(account: Account, request: Request, action: Action) -> float | Refusal:
    """Charge a request, and return for how many seconds its connection is muted; one that is refused costs nothing."""
    return 0.0 if charge_in_credit(account, request, action) else _charge(account, request, action)


def _charge(account: Account, request: Request, action: Action) -> float | Refusal:
    """Charge a request that is of a rare kind, or not in credit."""
    taken = [(account.requests, 1)]
    if action in _SENDING:
        taken.append((account.appends, _size(request)))
    if action is Action.CREATE:
        taken.append((account.creates, 1))
    mute_seconds = 0.0
    for number, (allowance, cost) in enumerate(taken):
        outcome = allowance.take(cost)
        if isinstance(outcome, Exceeded):
            for before, paid in taken[:number]:
                before.level += paid
            return refuse(outcome)
        if isinstance(outcome, Overdrawn):
            mute_seconds = max(mute_seconds, outcome.mute_seconds)
    exceeded = account.reads.refuse() if action in _READING else None
    if exceeded is not None:
        for before, paid in taken:
            before.level += paid
        return refuse(exceeded)
    return mute_seconds


def _size(request: Request) -> int:
    # A body that is written to disk as it arrives is not in the request, and may have come without a length.
    upload = request.intake
    return upload.received_bytes if isinstance(upload, Upload) else len(request.body)


def refuse(exceeded: Exceeded) -> Refusal:
    """The refusal of a request beyond a limit."""
    seconds = exceeded.retry_after_seconds
    limit = RateLimit(exceeded.limit, exceeded.quota, exceeded.window_seconds, seconds)
    if exceeded.window_seconds is None:
        detail = f"There are {exceeded.quota} live reads already, which is the limit; end one first."
        return Refusal(Code.LIVE_READS_TOO_MANY, detail, rate_limit=limit)
    detail = f"The limit for {exceeded.limit} is used up; try again in {seconds} s."
    return Refusal(Code.RATE_LIMITED, detail, rate_limit=limit)
