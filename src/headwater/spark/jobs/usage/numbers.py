"""Numbers as people read them, and the ticks of an axis."""

import math
from datetime import UTC, datetime


def count(value: float) -> str:
    """A count, short where it is large.

    >>> count(950), count(12_345), count(9_999), count(2_500_000), count(0.25)
    ('950', '12.3k', '9,999', '2.5M', '0.25')
    """
    if value < 10_000:
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{value / power:.3g}{letter}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes.

    >>> size(999), size(1536), size(5 * 1024**4), size(0.5)
    ('999 B', '1.5 KiB', '5 TiB', '0.5 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" and value >= 1 else f"{value:.3g} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def duration(seconds: float) -> str:
    """A span of time.

    >>> duration(0.00042), duration(0.25), duration(42), duration(9000), duration(200_000), duration(-0.25)
    ('0.42 ms', '250 ms', '42 s', '2.5 h', '2.31 d', '-250 ms')
    """
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0"
    for limit, factor, unit in ((1, 1000, "ms"), (120, 1, "s"), (7200, 1 / 60, "min"), (172_800, 1 / 3600, "h")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def ticks(high: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 up to at least the highest value.

    >>> ticks(87), ticks(0.013), ticks(0)
    ([0.0, 25.0, 50.0, 75.0, 100.0], [0.0, 0.005, 0.01, 0.015], [0.0, 1.0])
    """
    if high <= 0:
        return [0.0, 1.0]
    rough = high / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    # Sums of steps would gather the errors of each.
    return [round(index * step, 12) for index in range(math.ceil(high / step - 1e-9) + 1)]


TIME_STEPS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 28 * 86_400)


def time_ticks(first: float, last: float, wanted: int = 6) -> list[tuple[float, str]]:
    """Round times between two, with what to write there.

    >>> [text for _, text in time_ticks(1_763_290_000, 1_763_300_000)]
    ['11:00', '11:30', '12:00', '12:30', '13:00', '13:30']
    """
    span = max(last - first, 1)
    step = next(
        (step for step in TIME_STEPS if span / step <= wanted),
        TIME_STEPS[-1] * (1 + int(span / TIME_STEPS[-1] / wanted)),
    )
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b"
    begin = math.ceil(first / step) * step
    times = [begin + index * step for index in range(int((last - begin) // step) + 1)]
    return [(at, datetime.fromtimestamp(at, UTC).strftime(form)) for at in times]
