"""Which URL a request is sent to, and which lists of URLs are accepted."""

import re
from typing import Any

import pytest

from headwater.client import Admin, AsyncAdmin, AsyncClient, Client
from headwater.client.nodes import AVOID_SECONDS_FIRST, AVOID_SECONDS_MAX, Aim, Nodes
from headwater.client.settings import ClientSettings
from headwater.client.urls import URLS_MAX, join_urls, split_urls

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def nodes() -> Nodes:
    return Nodes((A, B, C))


def next_url(found: Nodes, now: float) -> str:
    return found.aim(f"{A}/x", now).url.removesuffix("/x")


def fail(found: Nodes, now: float) -> Aim:
    aim = found.aim(f"{A}/x", now)
    found.failed(aim, now)
    return aim


def test_requests_stay_at_a_url_that_answers() -> None:
    found = nodes()
    for now in range(5):
        aim = found.aim(f"{A}/x", float(now))
        assert aim.url == f"{A}/x"
        assert found.answered(aim, 404, float(now)).others == 0


def test_after_a_failure_requests_go_to_the_next_url_and_stay_there() -> None:
    found = nodes()
    fail(found, 0.0)
    assert next_url(found, 0.0) == B
    assert next_url(found, AVOID_SECONDS_MAX * 2) == B
    fail(found, 100.0)
    fail(found, 100.0)
    # The first one has been left alone for long enough.
    assert next_url(found, 100.0) == A


@pytest.mark.parametrize("status", [502, 503, 504])
def test_an_answer_that_another_node_may_not_give_is_a_failure(status: int) -> None:
    found = nodes()
    assert found.answered(found.aim(f"{A}/x", 0.0), status, 0.0).others == 2
    assert next_url(found, 0.0) == B


@pytest.mark.parametrize("status", [200, 204, 304, 400, 404, 409, 429, 500, 507])
def test_any_other_answer_is_that_of_the_cluster(status: int) -> None:
    found = nodes()
    route = found.answered(found.aim(f"{A}/x", 0.0), status, 0.0)
    assert (route.others, route.failed) == (0, 0)
    assert next_url(found, 0.0) == A


def test_a_url_is_avoided_for_longer_each_time_up_to_a_limit() -> None:
    found, lengths = Nodes((A, B)), []
    for now in range(0, 900, 100):
        found.failed(Aim(A, float(now), 0), float(now))
        lengths.append(next(half / 2 for half in range(1, 100) if _is_usable(found, 0, now + half / 2)))
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    assert (lengths[0], lengths[-1]) == (AVOID_SECONDS_FIRST, AVOID_SECONDS_MAX)


def _is_usable(found: Nodes, node: int, now: float) -> bool:
    return found._nodes[node].avoided_until <= now


def test_an_answer_ends_the_avoidance_and_its_growth() -> None:
    found = Nodes((A, B))
    for now in (0.0, 10.0, 20.0):
        found.failed(Aim(A, now, 0), now)
    found.answered(Aim(A, 21.0, 0), 200, 21.0)
    assert _is_usable(found, 0, 21.0)
    found.failed(Aim(A, 22.0, 0), 22.0)
    assert _is_usable(found, 0, 22.0 + AVOID_SECONDS_FIRST)


def test_requests_that_fail_together_count_once() -> None:
    found = Nodes((A, B))
    together = [found.aim(f"{A}/x", 0.0) for _ in range(10)]
    for at, aim in enumerate(together):
        found.failed(aim, 1.0 + at / 100)
    assert _is_usable(found, 0, 1.0 + AVOID_SECONDS_FIRST)


def test_an_answer_to_an_older_request_does_not_end_the_avoidance() -> None:
    found = Nodes((A, B))
    old = found.aim(f"{A}/x", 0.0)
    fail(found, 1.0)
    found.answered(old, 200, 1.1)
    assert next_url(found, 1.2) == B


def test_if_all_urls_are_avoided_each_is_tried_in_turn() -> None:
    found = nodes()
    assert [fail(found, 0.001 * step).url[7] for step in range(9)] == list("abcabcabc")


def test_a_route_says_when_all_urls_have_failed() -> None:
    found = nodes()
    routes = [found.failed(found.aim(f"{A}/x", 0.0), 0.0) for _ in range(3)]
    assert [(route.url, route.others, route.failed) for route in routes] == [
        (f"{A}/x", 2, 0),
        (f"{B}/x", 2, 0),
        (f"{C}/x", 2, 3),
    ]


def test_a_single_url_and_those_of_other_servers_are_used_as_they_are() -> None:
    alone = Nodes((A,))
    for url in (f"{A}/x", f"{B}/x"):
        aim = alone.aim(url, 0.0)
        assert aim == Aim(url, 0.0)
        assert alone.failed(aim, 0.0).others == 0 and alone.answered(aim, 503, 0.0).others == 0
    several = Nodes((f"{A}/ds", f"{B}/ds"))
    fail_over = several.aim(f"{A}/ds/x", 0.0)
    several.failed(fail_over, 0.0)
    for url in ("http://other:1/ds/x", "http://a:12/ds/x", f"{A}/dsx", f"{A}/other"):
        assert several.aim(url, 0.0).url == url
    assert several.aim(f"{A}/ds?a=1", 0.0).url == f"{B}/ds?a=1"


# -- Lists of URLs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [[A, B], (A, B), f"{A},{B}", f"{A} , {B}", [f"{A}/", f"{B}/v1/stream/"], [A, f"{B}/v1/stream"]]
)
def test_several_urls_are_given_as_a_list_or_with_commas(given: Any) -> None:
    settings = ClientSettings(given)
    assert settings.root_urls == (A, B)
    assert settings.stream_url("s") == f"{A}/v1/stream/s"
    assert split_urls(join_urls(settings.root_urls)) == [A, B]


def test_a_url_that_a_node_gives_is_used_on_all_nodes() -> None:
    settings = ClientSettings([A, B])
    assert settings.stream_url("http://B:1/v1/stream/s") == f"{A}/v1/stream/s"
    assert settings.stream_url("http://b:2/v1/stream/s") == "http://b:2/v1/stream/s"
    assert ClientSettings([f"{A}/ds", f"{B}/ds"]).stream_url(f"{B}/other/s") == f"{B}/other/s"
    assert ClientSettings(A).stream_url("http://A:1/s") == "http://A:1/s"


def test_a_token_is_for_all_urls() -> None:
    settings = ClientSettings([A, B], token="t")
    assert [settings.is_ours(url) for url in (f"{A}/x", f"{B}/x", f"{C}/x")] == [True, True, False]


def test_a_password_in_one_url_is_for_all_of_them() -> None:
    settings = ClientSettings(["http://ada:secret@a:1", "http://b:1", "http://ada:secret@c:1"])
    assert settings.base_urls == (A, B, C)
    assert settings.headers == {"Authorization": "Basic YWRhOnNlY3JldA=="}
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("urls", "sentence"),
    [
        ([], f"A client takes from 1 to {URLS_MAX} URLs, not 0."),
        ([f"http://h:{port}" for port in range(1, URLS_MAX + 2)], f"from 1 to {URLS_MAX} URLs, not {URLS_MAX + 1}."),
        ([A, ""], "'' is not the URL of a server; write it like http://host:4437."),
        (f"{A},", "'http://a:1,' is not the URL of a server"),
        (f"{A},b:1", "'http://a:1,b:1' is not the URL of a server"),
        ("http://a,b", "'http://a,b' is not the URL of a server"),
        ([f"{A},{B}"], "is not the URL of a server"),
        ([A, f"{B}?x"], "has a query or a fragment"),
        ([A, B, "http://A:1/"], "http://A:1/ is given twice; name each node once."),
        (["http://a", "http://a:80"], "http://a:80 is given twice"),
        ([A, "https://b:1"], f"{A} and https://b:1 have different schemes; use https for all nodes, or http."),
        ([A, f"{B}/ds"], f"{A} and {B}/ds have different paths; the nodes of one cluster have the same."),
        (
            ["http://ada:secret@a:1", "http://ada:secret2@b:1"],
            "The URLs contain different passwords; the nodes of one cluster have the same.",
        ),
    ],
)
@pytest.mark.parametrize("kind", [Client, Admin, AsyncClient, AsyncAdmin])
def test_urls_that_cannot_be_those_of_one_cluster_are_refused(kind: Any, urls: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        kind(urls)
    assert "secret" not in str(caught.value)
    assert str(caught.value).count(". ") == 0 and str(caught.value).endswith(".")
