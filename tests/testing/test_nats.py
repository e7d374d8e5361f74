"""NATS servers for tests: they start, pause, die and come back with their data."""

import pytest

from headwater.testing.nats import running_nats


def test_three_servers_form_a_cluster_and_survive_a_kill_and_a_pause() -> None:
    with running_nats(3) as servers:
        first, second, _ = servers.servers
        assert first.monitor("/varz")["cluster"]["name"] == "test"
        assert servers.url.count("nats://") == 3
        first.kill()
        first.kill()
        assert not first.healthy
        second.pause()
        assert not second.healthy
        second.resume()
        servers.start()
        servers.wait_ready()
        assert all(server.healthy for server in servers.servers)
        first.restart()
        servers.wait_ready()
        assert "Server is ready" in first.output
        first.stop()
        with pytest.raises(OSError):
            first.monitor("/varz")


def test_nothing_of_a_server_is_left() -> None:
    with running_nats(1) as servers:
        (server,) = servers.servers
        folder, process = server.folder, server.process
        assert folder.exists() and process is not None
    assert not folder.exists()
    assert process.poll() is not None
