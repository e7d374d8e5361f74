"""Settings from a file, the environment and flags: how values are written, and what is refused."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import settings
from headwater.node.lake.parts import LAKE_LIMITS, LakeLimits
from headwater.settings import SETTINGS, Settings, SettingsError

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\bHEADWATER_[A-Z][A-Z_]*[A-Z]\b")


def load(environment: Mapping[str, str] | None = None, /, **flags: str) -> Settings:
    return settings.load(flags, None, environment or {})


def refusal(environment: Mapping[str, str] | None = None, /, **flags: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(environment, **flags)
    return str(caught.value)


def test_every_setting_describes_itself_in_a_sentence() -> None:
    assert list(SETTINGS) == list(Settings.__struct_fields__)
    for setting in SETTINGS.values():
        assert re.fullmatch(r"[A-Z].*\.", setting.help), setting
        assert setting.parse(setting.render(setting.default)) == setting.default
        assert ("bytes" in setting.name, "seconds" in setting.name) == (
            setting.unit == "bytes",
            setting.unit == "seconds",
        )


@pytest.mark.parametrize(
    ("text", "size"), [("512MiB", 512 * 2**20), ("64KB", 64_000), ("2g", 2**31), ("1.5 kib", 1536), ("7", 7)]
)
def test_sizes_take_units(text: str, size: int) -> None:
    assert load(hot_bytes_max=text).hot_bytes_max == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("500ms", 0.5), ("5min", 300), ("1.5h", 5400), ("1d", 86400)]
)
def test_durations_take_units(text: str, seconds: float) -> None:
    assert load({"HEADWATER_FLUSH_SECONDS": text}).flush_seconds == seconds


def test_a_file_takes_numbers_and_units(tmp_path: Path) -> None:
    path = tmp_path / "headwater.toml"
    path.write_text(
        'hot_bytes_max = "1GiB"\npage_bytes = 4096\nflush_seconds = "2min"\nidle_seconds = 5\nmemory = true\n'
    )
    found = settings.load({}, path, {})
    assert (found.hot_bytes_max, found.page_bytes, found.flush_seconds, found.idle_seconds) == (2**30, 4096, 120, 5)
    path.write_text("port = true")
    with pytest.raises(SettingsError, match=r"port in .*headwater\.toml is True, but it takes a whole number from 0"):
        settings.load({}, path, {})


@pytest.mark.parametrize(
    ("flag", "text", "error"),
    [
        ("retention", "foo", "--retention is 'foo', but it takes snapshot or explicit."),
        ("log_level", "loud", "--log-level is 'loud', but it takes debug, info, warning or error."),
        (
            "hot_bytes_max",
            "5Q",
            "--hot-bytes-max is '5Q', but it takes a size such as 512MiB, 64KB or 1048576, at least 1.",
        ),
        ("page_bytes", "1.0001K", "--page-bytes is '1.0001K', but it takes a size"),
        ("journal_file_bytes", "63KiB", "at least 64KiB."),
        (
            "drain_seconds",
            "0",
            "--drain-seconds is '0', but it takes a duration such as 30, 500ms, 5min or 24h, above 0.",
        ),
        ("port", "65536", "--port is '65536', but it takes a whole number from 0 to 65535."),
    ],
)
def test_a_wrong_value_is_refused_with_what_the_setting_takes(flag: str, text: str, error: str) -> None:
    assert error in refusal(None, **{flag: text})


def test_a_wrong_value_is_blamed_on_its_origin() -> None:
    assert refusal({"HEADWATER_PRIVATE": "maybe"}) == "HEADWATER_PRIVATE is 'maybe', but it takes true or false."
    assert load({"HEADWATER_PRIVATE": "true"}).private


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("HEADWATER_PROT", "the nearest one is HEADWATER_PORT"),
        ("HEADWATER_HOT_BYTES", "the nearest one is HEADWATER_HOT_BYTES_MAX"),
        ("HEADWATER_XYZZY", "`headwater serve --help` lists all"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(variable: str, nearest: str) -> None:
    assert refusal({variable: "1"}) == f"{variable} is set, but there is no such setting; {nearest}."


def test_every_variable_that_the_repository_uses_is_known() -> None:
    """Servers inherit the environment of tests and scripts, and must not refuse to start because of it."""
    known = settings.OTHER_VARIABLES | {one.variable for one in SETTINGS.values()}
    for folder in ("src", "tests", "scripts", "examples", "benchmarks", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in ("", ".py", ".sh") and "node_modules" not in path.parts:
                used = set(VARIABLE.findall(path.read_text(errors="replace")))
                assert used <= known or path == Path(__file__), (path, used - known)


def test_the_variables_of_kubernetes_are_not_settings() -> None:
    """Kubernetes sets them in every pod of a namespace with services named `headwater` and `headwater-prod`."""
    environment = {
        "HEADWATER_PORT": "tcp://10.0.0.7:4437",
        "HEADWATER_PORT_4437_TCP_ADDR": "10.0.0.7",
        "HEADWATER_SERVICE_HOST": "10.0.0.7",
        "HEADWATER_SERVICE_PORT_HTTP": "4437",
        "HEADWATER_PROD_PORT": "tcp://10.0.0.8:4437",
        "HEADWATER_PROD_PORT_4437_TCP": "tcp://10.0.0.8:4437",
        "HEADWATER_PROD_PORT_4437_TCP_PROTO": "tcp",
        "HEADWATER_PROD_SERVICE_HOST": "10.0.0.8",
        "HEADWATER_PROD_SERVICE_PORT": "4437",
    }
    assert load(environment) == Settings()
    assert refusal({"HEADWATER_PROD_PORT": "4437"}).startswith("HEADWATER_PROD_PORT is set")


def test_the_limits_of_the_lake_are_those_of_the_settings() -> None:
    assert LakeLimits.of(Settings()) == LAKE_LIMITS
    found = LakeLimits.of(load(flush_segment_bytes="1MiB", lake_history_seconds="1s", hot_bytes_max="3MiB"))
    assert (found.flush.segment_bytes, found.history_seconds, found.hot_bytes_max) == (2**20, 1.0, 3 * 2**20)


# -- TLS and operators -------------------------------------------------------------------------------------------------


def test_files_for_tls_are_given_together_and_exist(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.touch()
    together = "--tls-cert and --tls-key belong together; give both or neither."
    assert refusal(tls_cert=str(cert)) == refusal(tls_key=str(key)) == together
    assert refusal(tls_cert=str(cert), tls_key=str(key)) == (
        "--tls-key names a file that does not exist; give its path, not the key itself."
    )
    assert refusal(tls_client_ca=str(cert)) == "--tls-client-ca needs TLS; give --tls-cert and --tls-key too."
    key.touch()
    assert load(tls_cert=str(cert), tls_key=str(key)).tls_min == "1.2"
    missing = refusal(tls_cert=str(cert), tls_key=str(key), tls_client_ca="none.pem")
    assert missing == "--tls-client-ca is none.pem, but there is no such file."


@pytest.mark.parametrize("text", ["4438", ":4438", "127.0.0.1", "127.0.0.1:99999", "::1:4438", "http://h:1", "h:1/x"])
def test_the_address_for_operators_has_a_host_and_a_port(text: str) -> None:
    assert refusal(ops=text) == f"--ops is {text!r}, but it takes an address such as 127.0.0.1:4438."


def test_the_address_for_operators_is_another_one() -> None:
    assert load(ops="[::1]:4438").ops_address == ("::1", 4438)
    assert load().ops_address is None
    assert refusal(ops="127.0.0.1:4437") == "--ops is the address of the server itself; choose another port."


def test_a_node_of_a_cluster_has_servers_a_lake_and_a_name() -> None:
    found = load(cluster="nats://a:4222,tls://me:secret@b", lake="s3://bucket/prefix", node="n1", cluster_name="blue")
    assert (found.node, found.cluster_name, found.lake_url) == ("n1", "blue", "s3://bucket/prefix")
    assert found.cluster_log_bytes == 2 * 2**30


def test_a_node_says_where_operators_reach_it() -> None:
    def address(**flags: str) -> str:
        return load(cluster="nats://a", lake="l", **flags).address

    assert address(port="4438") == "http://127.0.0.1:4438"
    assert address(host="::1") == "http://[::1]:4437"
    assert address(host="0.0.0.0", auth="access.toml") == f"http://{socket.gethostname()}:4437"
    assert address(public_url="https://streams.example") == "https://streams.example"
    assert address(public_url="https://streams.example", node_url="http://10.0.0.7:4437") == "http://10.0.0.7:4437"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"cluster": "nats://a"}, "--cluster needs --lake"),
        ({"cluster": "nats://a", "memory": True}, "--cluster and --memory exclude each other"),
        ({"cluster": "http://a", "lake": "l"}, "--cluster has 'http://a', which is not a NATS server"),
        ({"cluster": "nats://a,,", "lake": "l"}, "--cluster has '', which is not a NATS server"),
        ({"cluster": "nats://me:se,cret@a", "lake": "l"}, "--cluster has a URL with credentials, which is not"),
        ({"cluster": "nats://a", "lake": "l", "node": "N1"}, "--node is 'N1', but it takes 1 to 32 characters"),
        ({"node_url": "http://a:4437"}, "--node-url is for nodes of a cluster"),
        ({"cluster": "nats://a", "lake": "l", "node_url": "a:4437"}, "--node-url is 'a:4437', but it takes an origin"),
        ({"cluster": "nats://a", "lake": "l", "node": "n" * 33}, "but it takes 1 to 32 characters"),
        ({"cluster": "nats://a", "lake": "l", "cluster_name": "a.b"}, "--cluster-name is 'a.b', but it takes"),
        ({"node": "n1"}, "--node is for nodes of a cluster; give --cluster too."),
        ({"cluster_name": "blue"}, "--cluster-name is for nodes of a cluster; give --cluster too."),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_one_sentence(flags: dict[str, str], reason: str) -> None:
    found = refusal(**flags)
    assert reason in found
    assert found.count(".") <= 1 or "a.b" in found


def test_a_password_of_a_nats_server_is_not_shown() -> None:
    assert "secret" not in refusal(cluster="nats://me:secret@a:b:c", lake="l")


@pytest.mark.parametrize("source", ["flag", "variable", "file"])
def test_the_earlier_name_of_a_setting_is_accepted(tmp_path: Path, source: str) -> None:
    config = tmp_path / "headwater.toml"
    config.write_text('segment_bytes = "1MiB"' if source == "file" else "")
    flags = {"segment_bytes": "1MiB"} if source == "flag" else {}
    environment = {"HEADWATER_SEGMENT_BYTES": "1MiB"} if source == "variable" else {}
    assert settings.load(flags, config, environment).journal_file_bytes == 2**20


@pytest.mark.parametrize("source", ["flag", "variable", "file"])
def test_a_setting_is_given_by_one_of_its_names(tmp_path: Path, source: str) -> None:
    config = tmp_path / "headwater.toml"
    both = {"segment_bytes": "1MiB", "journal_file_bytes": "2MiB"}
    config.write_text("".join(f"{name} = '{size}'\n" for name, size in both.items()) if source == "file" else "")
    environment = {f"HEADWATER_{name.upper()}": size for name, size in both.items()} if source == "variable" else {}
    with pytest.raises(SettingsError, match="is an earlier name of "):
        settings.load(both if source == "flag" else {}, config, environment)


def test_an_earlier_name_in_the_file_is_overridden_by_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "headwater.toml"
    config.write_text('segment_bytes = "1MiB"')
    assert settings.load({}, config, {"HEADWATER_JOURNAL_FILE_BYTES": "2MiB"}).journal_file_bytes == 2**21


def test_a_misspelt_earlier_name_leads_to_the_present_one() -> None:
    assert "the nearest one is HEADWATER_JOURNAL_FILE_BYTES." in refusal({"HEADWATER_SEGMENTS_BYTES": "1"})
