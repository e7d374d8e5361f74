"""Rules that change: the access file is taken as it is in the end, whatever was in the way."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headwater.access.policy import Changes, Policy, PolicyError, load
from headwater.http.guard.gates import Guard
from headwater.http.guard.rules import Rules

from ..guarded import Guarded, guarded
from ..processes import eventually

BOTH, ONE = {"root": ["* *"], "bob": ["read mine/*"]}, {"root": ["* *"]}
MANY_TOKENS = "".join(
    f'[[token]]\nid = "t{number}"\nsha256 = "{number:064x}"\ngrants = ["read a/*"]\n' for number in range(8_000)
)
"""So many that reading them takes a while."""


def is_known(guard: Guarded, name: str) -> bool:
    with guard.wire() as wire:
        return wire.ask("GET", "/__headwater/whoami", guard.bearer(name)).status == 200


def look(guard: Guarded) -> None:
    """Let the server look at its files now."""
    os.kill(guard.server.pid, signal.SIGHUP)


def test_what_changes_while_the_file_is_read_is_not_lost(tmp_path: Path) -> None:
    with guarded(tmp_path, BOTH) as guard:
        guard.write(BOTH, MANY_TOKENS)
        look(guard)
        time.sleep(0.25)
        guard.write(ONE, MANY_TOKENS)
        assert eventually(lambda: not is_known(guard, "bob"), 20)


def unreadable(guard: Guarded, key: Path) -> None:
    key.chmod(0o644)
    guard.write(ONE)


def missing(guard: Guarded, key: Path) -> None:
    key.rename(key.with_suffix(".away"))
    guard.write(ONE)


def too_long_a_number(guard: Guarded, key: Path) -> None:
    guard.write(ONE, f"[limits.user]\nlive_reads = {'9' * 5_000}\n")


def no_path(guard: Guarded, key: Path) -> None:
    guard.write(ONE, '[[key]]\nid = "other"\nfile = "a\\u0000b"\ngrants = []\n')


def make_right(guard: Guarded, key: Path) -> None:
    """What the message asks for; the access file itself is written only if it was wrong."""
    away = key.with_suffix(".away")
    if away.exists():
        away.rename(key)
    key.chmod(0o600)
    try:
        load(guard.file)
    except PolicyError:
        guard.write(ONE)


@pytest.mark.parametrize("break_rules", [unreadable, missing, too_long_a_number, no_path])
def test_rules_take_effect_once_what_was_wrong_is_right(
    tmp_path: Path, break_rules: Callable[[Guarded, Path], None]
) -> None:
    with guarded(tmp_path, BOTH) as guard:
        key = tmp_path / "app.key"
        break_rules(guard, key)
        look(guard)
        assert eventually(lambda: "the access rules stay as they were" in guard.server.output())
        assert is_known(guard, "bob")
        make_right(guard, key)
        assert eventually(lambda: not is_known(guard, "bob"), 20)
        assert guard.server.output().count("the access rules stay as they were") == 1


def written_slowly(path: Path, text: str) -> None:
    """Write a file as a slow disk would: for most of the time it is a valid file with fewer entries."""
    entries = text.split("[[token]]")
    with path.open("w") as file:
        for number, entry in enumerate(entries):
            file.write(f"[[token]]{entry}" if number else entry)
            file.flush()
            time.sleep(0.1)


def watched(policy: Policy, work: Callable[[Callable[[], object]], None], look_seconds: float) -> list[list[str]]:
    """The tokens of each set of rules that was adopted while the work was done; its argument asks for a look now."""
    guard, adopted = Guard(policy), []

    async def run() -> None:
        def note(_: Changes) -> None:
            adopted.append(sorted(token.identity.name for token in guard.policy.tokens.values()))

        rules = Rules(guard, note, look_seconds)
        watching = asyncio.ensure_future(rules.watch())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, work, partial(loop.call_soon_threadsafe, rules.ask))
        watching.cancel()

    asyncio.run(run())
    return adopted


def test_a_file_is_not_read_while_it_is_written(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    several = {name: ["read mine/*"] for name in ("ann", "bea", "cyd", "dee", "eve")}
    files.write(several)
    text = files.file.read_text()
    files.write({**several, "new": ["read mine/*"]})
    later = files.file.read_text()
    files.file.write_text(text)

    def work(_: Callable[[], object]) -> None:
        time.sleep(0.1)
        written_slowly(files.file, later)
        time.sleep(1.5)

    assert watched(load(files.file), work, 0.01) == [sorted([*several, "new"])]


def test_a_bad_file_is_looked_at_again_soon(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    files.write(BOTH)
    policy = load(files.file)

    def work(ask: Callable[[], object]) -> None:
        files.file.write_text("version = 1\n[[tok")
        ask()
        time.sleep(0.3)
        files.write(ONE)
        time.sleep(2.5)

    assert watched(policy, work, 600.0) == [["root"]]


def test_rules_that_were_read_earlier_do_not_replace_later_ones(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    files.write(BOTH)
    earlier = load(files.file)
    guard = Guard(earlier)
    first, second = guard.begin_loading(), guard.begin_loading()
    files.write(ONE)
    later = load(files.file)
    guard.adopt(later, second)
    guard.adopt(earlier, first)
    assert guard.policy is later


def test_what_changes_after_the_file_was_read_and_before_it_is_watched_is_not_lost(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    files.write(BOTH)
    policy = load(files.file)
    files.write(ONE)
    assert watched(policy, lambda _: time.sleep(1.5), 0.01) == [["root"]]


def test_rules_that_were_put_into_force_by_a_request_are_not_read_again(tmp_path: Path) -> None:
    with guarded(tmp_path, BOTH) as guard:
        guard.write(ONE)
        guard.reload()
        look_seconds = 5.0
        time.sleep(look_seconds + 1)
        assert guard.server.output().count("access rules reloaded") == 1
