"""The Iceberg REST catalog: a standard client opens the tables by the server's URL alone, and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from headwater.testing import RunningServer, running_server

from ..sockets import Wire

TEXT = {"Content-Type": "text/plain"}
TABLES = "/iceberg/v1/namespaces/headwater/tables"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(data=tmp_path_factory.mktemp("data")) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/team")
        wire.ask("PUT", "/team/notes", TEXT, b"one")
        wire.ask("PUT", "/team/gone", TEXT, b"secret")
        wire.ask("POST", "/__headwater/flush", {}, b"")
        wire.ask("DELETE", "/team/gone")
        wire.ask("POST", "/__headwater/flush?tables=all", {}, b"")
        yield server


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.url) as wire:
        yield wire


def test_pyiceberg_lists_and_reads_the_tables(server: RunningServer) -> None:
    catalog = RestCatalog("headwater", uri=f"{server.url}/iceberg")
    assert catalog.list_namespaces() == [("headwater",)]
    assert catalog.list_namespaces("headwater") == []
    tables = ("messages", "pinned", "forks", "streams")
    assert catalog.list_tables("headwater") == [("headwater", name) for name in tables]
    assert catalog.table_exists("headwater.messages")
    assert not catalog.table_exists("headwater.nothing")
    assert catalog.load_namespace_properties("headwater") == {}
    table = catalog.load_table("headwater.messages")
    rows = table.scan().to_arrow().to_pylist()
    assert [(row["bucket"], row["stream"], row["payload"]) for row in rows] == [("team", "notes", b"one")]
    assert catalog.load_table("headwater.forks").scan().to_arrow().num_rows == 0
    [stream] = catalog.load_table("headwater.streams").scan().to_arrow().to_pylist()
    assert (stream["bucket"], stream["stream"], stream["tail"], stream["records"]) == ("team", "notes", 3, 1)


def test_when_a_flush_is_answered_its_rows_are_in_the_table(server: RunningServer, wire: Wire) -> None:
    table = RestCatalog("headwater", uri=f"{server.url}/iceberg").load_table("headwater.messages")
    before = table.scan().count()
    wire.ask("POST", "/team/notes", TEXT, b"two")
    wire.ask("POST", "/__headwater/flush", {}, b"")
    assert table.refresh().scan().count() == before + 1


def test_a_flush_writes_either_the_usual_tables_or_all(wire: Wire) -> None:
    wire.ask("POST", "/team/notes", TEXT, b"three")
    assert wire.ask("POST", "/__headwater/flush?tables=all", {}, b"").status == 200
    refused = wire.ask("POST", "/__headwater/flush?tables=streams", {}, b"")
    assert refused.status == 400
    assert b"tables=all" in refused.body
    assert wire.ask("POST", "/__headwater/flush?tables=%ff", {}, b"").status == 400


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/iceberg/v1/namespaces/nothing", "NoSuchNamespaceException"),
        ("/iceberg/v1/namespaces/nothing/tables", "NoSuchNamespaceException"),
        ("/iceberg/v1/namespaces/nothing/tables/messages", "NoSuchTableException"),
        (f"{TABLES}/nothing", "NoSuchTableException"),
    ],
)
def test_what_does_not_exist_is_said_in_the_form_of_the_specification(wire: Wire, path: str, kind: str) -> None:
    response = wire.ask("GET", path)
    assert response.status == 404
    assert json.loads(response.body)["error"]["type"] == kind
    assert json.loads(response.body)["error"]["code"] == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/iceberg/v1/namespaces"),
        ("DELETE", "/iceberg/v1/namespaces/headwater"),
        ("POST", TABLES),
        ("POST", f"{TABLES}/messages"),
        ("DELETE", f"{TABLES}/messages"),
    ],
)
def test_every_change_is_refused(wire: Wire, method: str, path: str) -> None:
    response = wire.ask(method, path, {"Content-Type": "application/json"}, b"{}")
    assert response.status == 406
    assert json.loads(response.body)["error"]["type"] == "UnsupportedOperationException"
    assert wire.ask("HEAD", f"{TABLES}/messages").status == 204


def test_the_report_of_a_scan_is_taken(wire: Wire) -> None:
    report = wire.ask("POST", f"{TABLES}/messages/metrics", {"Content-Type": "application/json"}, b"{}")
    assert report.status == 204


def test_no_bucket_has_the_name_of_the_catalog(wire: Wire) -> None:
    assert wire.ask("PUT", "/iceberg").status == 400


def test_a_server_without_a_lake_has_no_tables(tmp_path: Path) -> None:
    with running_server() as memory, Wire(memory.url) as wire:
        assert wire.ask("GET", "/iceberg/v1/config").status == 200
        assert wire.ask("GET", f"{TABLES}/messages").status == 404
