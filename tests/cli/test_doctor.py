"""`headwater doctor`: a line for each check, and exit code 1 if one of them is a problem."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.doctor import checks
from headwater.http.context import Context
from headwater.settings import Settings
from headwater.testing import running_server

from ..http.authorities import Authority, Pair
from .commands import Shell, sentence


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def shell(data: Path) -> Iterator[Shell]:
    with running_server(data=data) as server:
        yield Shell(server.url)


def findings(shell: Shell, *arguments: str) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in json.loads(shell("doctor", "--json", *arguments).out)}


def test_a_healthy_server_has_no_problem(shell: Shell, data: Path) -> None:
    shell.ok("create", "x", "y", "--type", "text/plain")
    shell.ok("flush")
    before = sorted(data.rglob("*"))
    found = findings(shell, "--data", str(data))
    checked = {"python", "packages", "open files", "memory", "clock", "permissions", "disk space", "disk sync", "lake"}
    assert set(found) == checked | {"port", "server", "compiled"}
    assert [one for one in found.values() if one["verdict"] == "problem"] == []
    assert "in use by process" in found["permissions"]["detail"]
    assert sorted(data.rglob("*")) == before


def test_a_person_gets_a_line_for_each_check(shell: Shell) -> None:
    lines = shell.ok("doctor").text.splitlines()
    assert all(line.split()[0] in ("ok", "warning") and line.endswith(".") for line in lines)
    assert [line for line in lines if "ready at" in line]


def test_a_directory_that_does_not_exist_is_not_created(shell: Shell, tmp_path: Path) -> None:
    found = findings(shell, "--data", str(tmp_path / "new" / "data"))
    assert found["permissions"]["verdict"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_a_file_is_a_problem(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = shell("doctor", "--data", str(tmp_path / "file"))
    assert "permissions" in sentence(done)
    assert "problem  permissions:" in done.text


def test_a_lake_is_tested_with_an_object_that_is_deleted(shell: Shell, tmp_path: Path) -> None:
    assert findings(shell, "--lake", str(tmp_path / "lake"))["lake"]["verdict"] == "ok"
    assert [one for one in (tmp_path / "lake").rglob("*") if one.is_file()] == []


@pytest.mark.parametrize("lake", ["/dev/null/lake", "ftp://host/lake", "s3://B"])
def test_a_lake_that_does_not_work_is_a_problem(shell: Shell, lake: str) -> None:
    done = shell("doctor", "--lake", lake)
    assert "lake" in sentence(done)
    assert "AWS_" in done.text


def test_no_server_is_a_problem_only_if_a_url_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "server" in sentence(Shell("http://127.0.0.1:1")("doctor"))
    assert checks.server("http://127.0.0.1:1", {}, expected=False).finding.verdict == "ok"


def test_a_port_in_use_by_another_process_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert checks.port("127.0.0.1", number, answered=False).verdict == "problem"
        assert checks.port("127.0.0.1", number, answered=True).verdict == "ok"
    assert checks.port("127.0.0.1", number, answered=False).verdict == "ok"


def test_a_clock_that_is_wrong_or_differs_from_the_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.clock(None, "Mon, 01 Jan 2035 00:00:00 GMT").verdict == "warning"
    assert checks.clock(None, None).verdict == "ok"
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert checks.clock(None, None).verdict == "problem"


def test_a_full_slow_or_volatile_disk_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def verdicts() -> dict[str, str]:
        return {one.check: one.verdict for one in checks.directory(tmp_path)}

    monkeypatch.setattr(checks, "FREE_BYTES_ENOUGH", 2**62)
    assert verdicts()["disk space"] == "warning"
    monkeypatch.setattr(checks, "FREE_BYTES_MIN", 2**62)
    assert verdicts()["disk space"] == "problem"
    monkeypatch.setattr(checks, "SYNC_MS_ENOUGH", 0.0)
    assert verdicts()["disk sync"] == "warning"
    monkeypatch.setattr(checks, "_file_system", lambda place: "tmpfs")
    assert "in memory" in list(checks.directory(tmp_path))[-1].detail


def test_a_low_limit_of_open_files_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (64, 64))
    assert checks.open_files().verdict == "warning"


def test_the_limit_of_open_files_that_doctor_asks_for_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (64, 64))
    asked = re.search(r"raise the hard limit to ([\d,]+) ", checks.open_files().fix)
    assert asked is not None
    enough = int(asked[1].replace(",", ""))
    monkeypatch.setattr("resource.getrlimit", lambda which: (enough, enough))
    assert checks.open_files().verdict == "ok"
    assert Context(Settings()).connections_max == Settings().connections_max


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def tls_findings(shell: Shell, pair: Pair) -> dict[str, dict[str, Any]]:
    return findings(shell, *pair.flags)


def test_a_certificate_is_judged_by_its_days_names_chain_and_key_file(shell: Shell, authority: Authority) -> None:
    pair = authority.issue("whole")
    pair.cert.write_bytes(pair.cert.read_bytes() + authority.ca.read_bytes())
    pair.key.chmod(0o640)
    found = tls_findings(shell, pair)
    assert [found[check]["verdict"] for check in ("certificate", "chain", "key file")] == ["ok", "ok", "ok"]
    assert found["certificate"]["detail"] == "it is valid for 29 days, for localhost, 127.0.0.1"
    assert found["chain"]["detail"].startswith("2 in the file")


def test_a_certificate_that_ends_soon_or_has_no_chain_is_a_warning(shell: Shell, authority: Authority) -> None:
    pair = authority.issue("soon", days=10)
    pair.key.chmod(0o644)
    found = tls_findings(shell, pair)
    assert [found[check]["verdict"] for check in ("certificate", "chain", "key file")] == 3 * ["warning"]
    assert "for 9 days" in found["certificate"]["detail"]


def test_an_expired_certificate_and_a_foreign_key_are_problems(shell: Shell, authority: Authority) -> None:
    expired, other = authority.issue("expired", days=-1), authority.issue("other")
    assert "expired" in tls_findings(shell, expired)["certificate"]["detail"]
    found = tls_findings(shell, Pair(expired.cert, other.key))
    assert found["certificate"]["verdict"] == "problem"
    assert "does not belong to" in found["certificate"]["detail"]


def test_certificates_in_the_wrong_order_or_that_are_strangers_are_a_problem(
    shell: Shell, authority: Authority, tmp_path: Path
) -> None:
    pair = authority.issue("confused")
    pair.cert.write_bytes(pair.cert.read_bytes() + Authority(tmp_path, "stranger").ca.read_bytes())
    assert tls_findings(shell, pair)["chain"]["verdict"] == "problem"


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (["--hosts", "streams.example,LOCALHOST,127.0.0.1"], []),
        (["--hosts", "streams.example.,*", "--public-url", "https://a.wild.example:8443"], []),
        (["--hosts", "other.example, streams.example, 127.0.0.2"], ["other.example", "127.0.0.2"]),
        (["--public-url", "https://a.b.wild.example"], ["a.b.wild.example"]),
        (["--public-url", "https://wild.example"], ["wild.example"]),
        (["--hosts", ".bad", "--public-url", "https://[::1]:4437"], [".bad", "::1"]),
    ],
    ids=" ".join,
)
def test_a_certificate_must_be_for_the_names_of_its_server(
    shell: Shell, authority: Authority, flags: list[str], missing: list[str]
) -> None:
    pair = authority.issue("named", "DNS:streams.example,DNS:localhost,IP:127.0.0.1,DNS:*.wild.example", days=-1)
    found = findings(shell, *pair.flags, *flags)["names"]
    assert found["verdict"] == ("warning" if missing else "ok")
    if missing:
        assert f"clients that call the server {' or '.join(missing)} refuse the certificate" in found["detail"]


def test_without_names_in_the_settings_or_with_plain_http_no_names_are_compared(
    shell: Shell, authority: Authority
) -> None:
    pair = authority.issue("unnamed")
    for flags in ([], ["--hosts", "*"], ["--public-url", "http://streams.example"]):
        assert "names" not in findings(shell, *pair.flags, *flags)


def test_a_certificate_without_its_key_is_refused(shell: Shell, authority: Authority) -> None:
    assert shell("doctor", "--tls-cert", str(authority.ca)).code == 2


def access_findings(shell: Shell, path: Path) -> dict[str, dict[str, Any]]:
    done = shell("doctor", "--auth", str(path), "--json")
    return {one["check"]: one for one in json.loads(done.out)}


def test_an_access_file_is_checked_like_a_server_would(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    assert shell("token", "init", str(path)).code == 0
    assert shell("token", "create", "short", "read chat/*", "--auth", str(path), "--expires", "3d").code == 0
    found = access_findings(shell, path)
    assert found["access file"]["detail"] == "2 tokens, 0 keys, 0 issuers, 0 names"
    assert (found["anonymous"]["verdict"], found["tokens"]["verdict"]) == ("ok", "warning")
    path.write_text(path.read_text() + '[anonymous]\ngrants = ["append public/*"]\n')
    assert access_findings(shell, path)["anonymous"]["detail"] == "clients may append without a credential"
    path.write_text("version = 2\n")
    broken = access_findings(shell, path)["access file"]
    assert (broken["verdict"], broken["fix"]) == ("problem", "write version = 1 as its first line")


def test_doctor_warns_when_the_workers_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "checks.max"
    monkeypatch.setattr(checks, "CGROUP", limit)
    limit.write_text(f"{2 * 1024**3}\n")
    assert checks.memory(1, None).verdict == "ok"
    found = checks.memory(4, None)
    assert found.verdict == "warning" and "2.0 GiB, of which 4 workers may take" in found.detail
    assert "fewer workers" in found.fix
    limit.write_text("max\n")
    assert checks.memory(1, None).verdict == "ok"


def test_the_newest_image_tells_how_much_memory_metadata_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, images = tmp_path / "checks.max", tmp_path / "images"
    monkeypatch.setattr(checks, "CGROUP", limit)
    limit.write_text(f"{4 * 1024**3}\n")
    images.mkdir()
    assert checks.memory(2, tmp_path).verdict == "ok"
    with (images / "00000000000000000007.image").open("wb") as image:
        image.truncate(300 * 1024**2)
    assert checks.memory(2, tmp_path).verdict == "warning"


def test_doctor_warns_of_more_workers_than_cores(shell: Shell) -> None:
    few = findings(shell, "--workers", "2")["cores"]
    many = findings(shell, "--workers", "1000")["cores"]
    assert many["verdict"] == "warning" and "workers" in few["detail"]
