"""Answers for all processes of a server: what each says of itself, added up."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from headwater.access.allowances import Usage
from headwater.http.api.access import adopt_rules, client_usage
from headwater.http.api.metrics import collect
from headwater.http.api.status import describe
from headwater.http.api.usage import COPIED
from headwater.http.context import Context
from headwater.http.workers.siblings import Siblings
from headwater.prometheus import Join, Labels, Metric, Sample

FACTS, USAGE, RELOAD = b"facts", b"usage", b"reload"
"""What siblings ask each other."""
ADOPTED = b"-"
"""The answer to a reload that succeeded."""


class Facts(msgspec.Struct, frozen=True):
    """What one process says of itself."""

    name: str
    metrics: list[Metric]
    status: dict[str, Any]


_JOINS: dict[Join, Callable[[tuple[float, float]], float]] = {"sum": sum, "max": max, "min": min}
_encoder = msgspec.msgpack.Encoder()
_facts = msgspec.msgpack.Decoder(Facts)
_counted = msgspec.msgpack.Decoder(list[Metric])
_usage = msgspec.msgpack.Decoder(dict[str, Usage])


class Together:
    """A process among its siblings: answers for itself, and gathers what all say."""

    def __init__(self, context: Context, siblings: Siblings) -> None:
        self._context, self._siblings = context, siblings
        before = siblings.saved()
        self._before = [] if before is None else _counted.decode(before)
        """What processes of this name had counted before this one started."""

    async def start(self) -> None:
        answers: dict[bytes, Callable[[], Awaitable[bytes]]] = {
            FACTS: self._say_facts,
            USAGE: self._say_usage,
            RELOAD: self._reload,
        }
        await self._siblings.listen(lambda word: answers[word]())

    def stop(self) -> None:
        self._own()
        self._siblings.close()

    def _own(self) -> Facts:
        metrics = add([self._before, collect(self._context)])
        self._siblings.save(_encoder.encode([metric for metric in metrics if metric.kind != "gauge"]))
        return Facts(self._siblings.name, metrics, describe(self._context))

    async def _say_facts(self) -> bytes:
        return _encoder.encode(self._own())

    async def _say_usage(self) -> bytes:
        return _encoder.encode(dict(await client_usage(self._context)))

    async def _reload(self) -> bytes:
        return (await adopt_rules(self._context)).encode() or ADOPTED

    # -- For all --------------------------------------------------------------------------------------------------

    async def metrics(self) -> list[Metric]:
        """The metrics of all processes, as one."""
        found, counted = await self._gather()
        return add([*(one.metrics for one in found), *counted], per_process=True)

    async def status(self) -> dict[str, Any]:
        """The status of all processes, as one."""
        found, _ = await self._gather()
        return merge_status(found, self._siblings.others)

    async def _gather(self) -> tuple[list[Facts], list[list[Metric]]]:
        """What every process says, and what those that say nothing had counted."""
        found, counted = [self._own()], list[list[Metric]]()
        for name, answer in await self._siblings.ask(FACTS):
            if answer is not None:
                found.append(_facts.decode(answer))
            elif (saved := self._siblings.saved(name)) is not None:
                counted.append(_counted.decode(saved))
        return sorted(found, key=lambda one: one.name), counted

    async def usage(self) -> list[tuple[str, Usage]]:
        """What each client used, in all processes."""
        total = dict(await client_usage(self._context))
        for _, answer in await self._siblings.ask(USAGE):
            for principal, one in ({} if answer is None else _usage.decode(answer)).items():
                total[principal] = total[principal].plus(one) if principal in total else one
        return sorted(total.items())

    async def reload(self) -> list[str]:
        """Have all others read the access file; what went wrong, by process."""
        answers = await self._siblings.ask(RELOAD)
        failed = {name: b"no answer" if answer is None else answer for name, answer in answers if answer != ADOPTED}
        return [f"{name}: {reason.decode()}" for name, reason in failed.items()]


# -- Adding up ---------------------------------------------------------------------------------------------------------


def add(pages: Iterable[Iterable[Metric]], *, per_process: bool = False) -> list[Metric]:
    """Metrics of several pages as one page. Each page is that of another process, or of another life of one process.

    Processes are joined as each metric says; what the lives of one process have counted is added up.

    >>> from headwater.prometheus import counter
    >>> add([[counter("requests", "", 2)], [counter("requests", "", 3)]])[0].samples
    [Sample(suffix='', labels=(), value=5)]
    """
    kinds: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, Labels], float]] = {}
    for page in pages:
        for metric in page:
            kind = kinds.setdefault(metric.name, metric)
            total = values.setdefault(metric.name, {})
            for suffix, labels, value in metric.samples:
                key = suffix, labels
                known = total.get(key)
                if known is None:
                    total[key] = value
                else:
                    total[key] = _join(kind, labels, known, value) if per_process else known + value
    return [
        kinds[name]._replace(samples=[Sample(*key, value) for key, value in total.items()])
        for name, total in values.items()
    ]


def _join(metric: Metric, labels: Labels, one: float, other: float) -> float:
    if metric.name == "headwater_limit" and dict(labels).get("of") in COPIED:
        return max(one, other)
    return _JOINS[metric.join]((one, other))


def merge_status(found: list[Facts], others: dict[str, int]) -> dict[str, Any]:
    """One status for all processes."""
    every = [one.status for one in found]
    merged = dict(every[0])
    for name in ("connections", "live_readers", "resident_bytes"):
        merged[name] = sum(one[name] for one in every)
    for name in ("uptime_seconds", "hot_bytes", "journal_bytes"):
        merged[name] = max(one[name] for one in every)
    merged["positions"] = {shard: max(one["positions"][shard] for one in every) for shard in merged["positions"]}
    merged["pid"] = others.get("supervisor", merged["pid"])
    merged["usage"] = {
        name: {part: (max if name in COPIED else sum)(one["usage"][name][part] for one in every) for part in use}
        for name, use in merged["usage"].items()
    }
    if merged["lake"] is not None:
        for name in ("flush_failures", "read_failures"):
            merged["lake"] = merged["lake"] | {name: sum(one["lake"][name] for one in every)}
    processes = [{"name": name, "role": name, "pid": pid} for name, pid in others.items()]
    processes += [{"name": one.name, "role": "worker", "pid": one.status["pid"]} for one in found]
    merged["processes"] = processes
    return merged
