"""The files of `deploy/`, the Dockerfile and compose.yaml agree with the server, each other and their tools."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from headwater.protocol.limits import SNAPSHOT_BYTES_MAX
from headwater.settings import Settings
from headwater.testing import running_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "headwater.json"
RULES = DEPLOY / "prometheus" / "alerts.yml"
PAGES = sorted([*DEPLOY.rglob("*.yml"), ROOT / "compose.yaml"])
METRIC = re.compile(r"\b(?:headwater|process)_[a-z_]+\b")
PORT = Settings().port


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def instructions(keyword: str) -> list[str]:
    """The arguments of every instruction of this kind in the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{keyword} +(.+)$", text, re.MULTILINE)


def queries() -> dict[str, str]:
    """Every query of the dashboard and of the rules, by panel or alert."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = {
        f"{panel['title']}, {target['legendFormat']}": target["expr"]
        for panel in panels
        for target in panel.get("targets", [])
    }
    rules = [rule for group in loaded(RULES)["groups"] for rule in group["rules"]]
    return found | {rule["alert"]: rule["expr"] for rule in rules}


# -- Metrics ---------------------------------------------------------------------------------------------------------


def test_every_metric_of_dashboard_and_rules_is_exported_by_a_server(tmp_path: Path) -> None:
    with running_server(data=tmp_path) as server:
        create = urllib.request.Request(
            f"{server.url}/v1/stream/s", method="PUT", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(create).close()
        with urllib.request.urlopen(f"{server.url}/metrics") as response:
            exported = {re.split(r"[ {]", line)[0] for line in response.read().decode().splitlines()}
    used = {name: query for query in queries().values() for name in METRIC.findall(query)}
    assert len(used) > 20
    assert {name: query for name, query in used.items() if name not in exported} == {}


def test_every_limit_that_a_rule_compares_with_is_exported() -> None:
    used = set(re.findall(r"headwater_limit\{[^}]*\}", " ".join(queries().values())))
    assert used >= {'headwater_limit{of="hot_bytes"}', 'headwater_limit{of="connections"}'}
    with running_server() as server, urllib.request.urlopen(f"{server.url}/metrics") as response:
        exported = {line.rpartition(" ")[0] for line in response.read().decode().splitlines()}
    assert used <= exported


def test_every_panel_has_an_id_and_a_place_of_its_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_threshold_of_the_dashboard_is_the_default_setting() -> None:
    assert f'"value": {Settings().hot_bytes_max}' in DASHBOARD.read_text()


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    for rule in loaded(RULES)["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
            assert text.endswith("."), rule


def test_prometheus_accepts_the_configuration() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    command = [program, "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# -- Containers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_yaml_file_holds_a_mapping(path: Path) -> None:
    assert isinstance(loaded(path), dict)


def test_the_dockerfile_copies_only_what_exists_and_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for words in map(shlex.split, instructions("COPY")):
        if not words[0].startswith("--from="):
            copied |= set(words[:-1])
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_has_all_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = {*project["license-files"], *([project["readme"]] if isinstance(project.get("readme"), str) else [])}
    assert files <= {word for words in instructions("COPY") for word in words.split()}


def test_the_image_keeps_nothing_of_the_build_backend() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^(\S+)==.*\n(?:    --hash.*\n)*((?:    #.*\n)+)", lock, re.MULTILINE)
    building = {name for name, why in packages if re.fullmatch(r"    # via headwater .*:build.*\n", why)}
    assert building
    removed = re.findall(r"uninstall --yes ([a-z -]+[a-z])", "\n".join(instructions("RUN")))[0].split()
    assert set(removed) == building


def test_image_and_compose_use_the_default_port_and_the_volume() -> None:
    compose = loaded(ROOT / "compose.yaml")["services"]["headwater"]
    assert instructions("EXPOSE") == [str(PORT)]
    assert f"HEADWATER_PORT={PORT}" in instructions("ENV")[-1].split()
    assert "HEADWATER_HOST=0.0.0.0" in instructions("ENV")[-1].split()
    assert compose["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert instructions("VOLUME") == ["/data"]
    # The default directory, from the working directory of the image.
    assert (instructions("WORKDIR")[-1], Settings().data) == ("/", "data")
    assert [volume.partition(":")[2] for volume in compose["volumes"]] == ["/data"]
    [job] = loaded(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"headwater:{PORT}"]}]


def test_the_image_does_not_run_as_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions("USER")[-1])


def test_compose_publishes_on_loopback_and_mounts_only_what_exists() -> None:
    compose = loaded(ROOT / "compose.yaml")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"].partition(".dev")[0]
    assert compose["services"]["headwater"]["image"] == f"headwater:{version}"
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for source in (volume.split(":")[0] for volume in service["volumes"]):
            assert (ROOT / source).exists() if source.startswith(".") else source in compose["volumes"]


def test_grafana_finds_its_dashboards_where_compose_mounts_them() -> None:
    grafana = loaded(ROOT / "compose.yaml")["services"]["grafana"]
    mounted = {volume.split(":")[0]: volume.split(":")[1] for volume in grafana["volumes"]}
    [provider] = loaded(DEPLOY / "grafana" / "provisioning" / "dashboards" / "headwater.yml")["providers"]
    assert mounted["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/{DASHBOARD.name}"


# -- Services and proxies ----------------------------------------------------------------------------------------------


def test_the_unit_is_hardened() -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = DEPLOY / "systemd" / "headwater.service"
    command = [program, "security", "--offline=true", "--threshold=30", "--no-pager", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"headwater\.service:\d+", done.stderr), done.stderr


def test_the_unit_gives_the_server_time_to_drain_and_files_for_its_connections() -> None:
    unit = dict(re.findall(r"^(\w+)=(\d+)$", (DEPLOY / "systemd" / "headwater.service").read_text(), re.MULTILINE))
    assert int(unit["TimeoutStopSec"]) > 2 * Settings().drain_seconds
    assert int(unit["LimitNOFILE"]) > 2 * Settings().connections_max


def test_the_proxies_speak_of_the_defaults_of_the_server() -> None:
    nginx = (DEPLOY / "nginx" / "headwater.conf").read_text()
    caddy = (DEPLOY / "caddy" / "Caddyfile").read_text()
    for text in (nginx, caddy):
        assert f"127.0.0.1:{PORT}" in text
        assert f"(--idle-seconds, {Settings().idle_seconds:g} by default)" in text
    assert f"(a snapshot may have {SNAPSHOT_BYTES_MAX >> 20} MiB)" in nginx
    assert f"--heartbeat-seconds ({Settings().heartbeat_seconds:g})" in nginx
    for kept in re.findall(r"keepalive(?:_timeout)? (\d+)s", nginx + caddy):
        assert int(kept) < Settings().idle_seconds
