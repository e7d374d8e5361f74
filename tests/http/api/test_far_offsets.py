"""Offsets with more digits than the log can store are judged like all others beyond the tail."""

from pathlib import Path

import pytest

from headwater.testing import running_server

from ..sockets import Wire, refused

FAR = ["9" * 20, "18446744073709551616", f"{'9' * 16}_{'9' * 16}"]


@pytest.mark.parametrize("resource", ["snapshot", "retention"])
def test_an_offset_beyond_64_bits_is_a_conflict_and_the_server_lives_on(tmp_path: Path, resource: str) -> None:
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/team").status == 201
        assert wire.ask("PUT", "/team/notes", {"Content-Type": "text/plain"}, b"first").status == 201
        for offset in FAR:
            refused(wire.ask("PUT", f"/team/notes/{resource}/{offset}", body=b""), 409, "snapshot_conflict")
        assert wire.ask("GET", "/team/notes").body == b"first"
