"""What several processes say of themselves, as one answer."""

from headwater.http.workers.together import Facts, add, merge_status
from headwater.node.metrics import Histogram, histogram
from headwater.prometheus import Metric, Sample, counter, gauge


def value(page: list[Metric], name: str) -> float:
    [metric] = [metric for metric in page if metric.name == name]
    [sample] = metric.samples
    return sample.value


def test_counters_and_amounts_of_processes_are_added_up() -> None:
    pages = [
        [counter("headwater_sent_bytes_total", "", at), gauge("headwater_connections", "", at)] for at in (1, 2, 4)
    ]
    merged = add(pages, per_process=True)
    assert (value(merged, "headwater_sent_bytes_total"), value(merged, "headwater_connections")) == (7, 7)


def test_what_every_process_has_a_copy_of_counts_once() -> None:
    pages = [
        [gauge("headwater_streams", "", 5, join="max"), counter("headwater_journal_bytes_total", "", at, join="max")]
        for at in (10, 30)
    ]
    merged = add(pages, per_process=True)
    assert (value(merged, "headwater_streams"), value(merged, "headwater_journal_bytes_total")) == (5, 30)


def test_what_one_process_and_its_predecessor_counted_is_added_up_even_if_others_have_copies() -> None:
    pages = [[counter("headwater_journal_bytes_total", "", at, join="max")] for at in (10, 30)]
    assert value(add(pages), "headwater_journal_bytes_total") == 40


def test_there_is_room_only_if_every_process_has_some() -> None:
    pages = [[gauge("headwater_log_has_room", "", at, join="min")] for at in (1, 0, 1)]
    assert value(add(pages, per_process=True), "headwater_log_has_room") == 0


def test_histograms_are_added_up_bucket_by_bucket() -> None:
    ours, theirs = Histogram((1.0, 2.0)), Histogram((1.0, 2.0))
    ours.observe(0.5)
    theirs.observe(1.5)
    theirs.observe(9)
    [merged] = add([[histogram("seconds", "", [((), one)])] for one in (ours, theirs)], per_process=True)
    assert [sample.value for sample in merged.samples] == [1, 2, 3, 11.0, 3]


def test_limits_are_added_up_except_those_of_copies() -> None:
    samples = [Sample("", (("of", name),), 100) for name in ("connections", "hot_bytes")]
    [merged] = add([[Metric("headwater_limit", "gauge", "", samples)]] * 3, per_process=True)
    assert [sample.value for sample in merged.samples] == [300, 100]


def status(pid: int, connections: int, position: int) -> dict[str, object]:
    return {
        "pid": pid,
        "uptime_seconds": float(pid),
        "positions": {"0": position},
        "hot_bytes": 10,
        "journal_bytes": position,
        "connections": connections,
        "live_readers": 1,
        "resident_bytes": 1000,
        "usage": {
            "connections": {"used": connections, "limit": 50},
            "hot_bytes": {"used": 10, "limit": 99},
        },
        "lake": {"flush_failures": 1, "read_failures": 2, "segments": 7},
    }


def test_one_status_is_that_of_all_processes() -> None:
    found = [Facts("w0", [], status(11, 3, 70)), Facts("w1", [], status(12, 4, 69))]
    merged = merge_status(found, {"supervisor": 9, "sequencer": 10})
    assert merged["pid"] == 9
    assert (merged["connections"], merged["live_readers"], merged["resident_bytes"]) == (7, 2, 2000)
    assert merged["positions"] == {"0": 70}
    assert merged["usage"] == {"connections": {"used": 7, "limit": 100}, "hot_bytes": {"used": 10, "limit": 99}}
    assert merged["lake"] == {"flush_failures": 2, "read_failures": 4, "segments": 7}
    assert [(one["name"], one["role"], one["pid"]) for one in merged["processes"]] == [
        ("supervisor", "supervisor", 9),
        ("sequencer", "sequencer", 10),
        ("w0", "worker", 11),
        ("w1", "worker", 12),
    ]
