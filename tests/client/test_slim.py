"""The client alone is small: without the server's packages it can be imported, installed and used."""

import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from headwater.cli.tree import COMMANDS
from headwater.compiled import MODULES, is_compiled
from headwater.testing import RunningServer

ROOT = Path(__file__).parents[2]
CLIENT = {"click", "httpx2", "msgspec"}
SERVER = {"crc32c", "cryptography", "httptools", "obstore", "pyarrow", "uvloop"}
SERVER_COMMANDS = {"serve", "doctor", "lake", "backup"}

WITHOUT_SERVER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVER | {"numpy"}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def python(source: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def headwater(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line as if the server's packages were not installed."""
    run = "sys.argv[0] = 'headwater'\nfrom headwater.cli import run\nrun()"
    return python(WITHOUT_SERVER + run, *arguments)


def test_importing_the_client_imports_nothing_of_the_server() -> None:
    source = "import sys, headwater.client; print(*{name.partition('.')[0] for name in sys.modules})"
    found = python(source)
    assert found.returncode == 0, found.stderr
    assert not set(found.stdout.split()) & (SERVER | {"click", "numpy"})
    inside = python("import sys, headwater.client; print(*(name for name in sys.modules if 'headwater.' in name))")
    assert {name.split(".")[1] for name in inside.stdout.split()} == {"client", "protocol"}


def test_the_client_works_without_the_packages_of_the_server(server: RunningServer, name: str) -> None:
    source = (
        f"{WITHOUT_SERVER}\nfrom headwater.client import Client\n"
        f"with Client('{server.url}/v1/stream') as client:\n"
        f"    stream = client.stream('{name}')\n    stream.create('text/plain')\n"
        "    with stream.producer('p') as producer:\n        producer.append('slim')\n"
        "    print(stream.read_text())"
    )
    found = python(source)
    assert (found.stdout, found.stderr) == ("slim\n", "")


def test_commands_of_the_client_work_without_the_server(server: RunningServer, name: str) -> None:
    assert headwater("create", name, "--url", server.url).returncode == 0
    shown = headwater("show", name, "--url", server.url)
    assert (shown.returncode, shown.stderr) == (0, "")
    found = headwater("--help")
    assert found.returncode == 0
    missing = set(re.findall(r"^  (\w+) +Not installed", found.stdout, re.MULTILINE))
    assert missing == SERVER_COMMANDS and missing < set(COMMANDS)


def test_tokens_and_tickets_are_made_without_the_server(tmp_path: Path) -> None:
    auth = str(tmp_path / "auth.toml")
    assert headwater("token", "init", auth).returncode == 0
    assert headwater("token", "create", "app", "read a/*", "--auth", auth).returncode == 0
    assert headwater("token", "check", "app", "read a/x", "--auth", auth).returncode == 0


@pytest.mark.parametrize(
    "arguments", [("serve",), ("serve", "--port", "0"), ("backup", "create", "x"), ("lake", "--help")]
)
def test_commands_of_the_server_say_what_to_install(arguments: tuple[str, ...]) -> None:
    found = headwater(*arguments)
    assert (found.returncode, found.stdout) == (1, "")
    assert re.fullmatch(
        rf"Error: `headwater {arguments[0]}` needs the package \w+, which is not installed; "
        r"run `pip install 'headwater\[server\]'`\.\n",
        found.stderr,
    )


def test_the_wheel_requires_little_and_offers_the_server(tmp_path: Path) -> None:
    # From a copy, since the build backend leaves its files beside the sources; and by way of a source distribution.
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-c",
        "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])",
    ]
    subprocess.run([*command, str(tmp_path)], cwd=source, check=True, capture_output=True, timeout=120)
    (archived,) = tmp_path.glob("headwater-*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*command, str(archived)], check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("headwater-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(path).decode())
    wanted: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist", []):
        extra = re.search(r"extra == ['\"](\w+)", line)
        wanted.setdefault(extra[1] if extra else "", set()).add(re.split(r"[<>=;\[ ]", line)[0])
    assert wanted[""] == CLIENT
    assert wanted["server"] == SERVER
    assert "headwater" in wanted["spark"] & wanted["tables"] & wanted["pipelines"], "each includes an extra before it"
    assert {"headwater/client/blocking/stream.py", "headwater/cli/serve.py", "headwater/py.typed"} <= set(names)
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = {name.removeprefix("src/") for name in tracked.splitlines() if not name.endswith((".pyx", ".pxd"))}
    built = {name for name in names if ".dist-info/" not in name and not name.endswith(".so")}
    assert built == files, "the wheel has every file of the package, and nothing else"
    assert sum(name.endswith(".so") for name in names) == (len(MODULES) if is_compiled() else 0)
