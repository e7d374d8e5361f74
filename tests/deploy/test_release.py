"""A release: what `scripts/release` refuses, changes and lists, and what calls it."""

import importlib.machinery
import importlib.util
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = '[project]\nname = "x"\nversion = "1.2.0.dev0"\n'
CHANGELOG = "# Changelog\n\n## 1.2.0 (unreleased)\n\n- New.\n\n## 1.1.0\n"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("release", str(ROOT / "scripts" / "release"))
    spec = importlib.util.spec_from_loader("release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def clone(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a version to release, whose packages are not built."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.com")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "make", lambda *_: None)
    # The default of a parameter is bound when the function is made.
    monkeypatch.setitem(release.run.__kwdefaults__, "cwd", tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def call(release: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["release", *words])
    release.main()


def test_a_release_sets_version_and_date_commits_and_tags(
    release: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(release, monkeypatch)
    assert tomllib.loads((clone / "pyproject.toml").read_text())["project"]["version"] == "1.2.0"
    assert re.search(r"^## 1\.2\.0 \(\d{4}-\d\d-\d\d\)$", (clone / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert git(clone, "tag", "--points-at", "HEAD") == "v1.2.0"
    assert git(clone, "status", "--porcelain") == ""
    assert release.version_of_tag(clone) == "1.2.0"


def test_a_dry_run_changes_nothing(release: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = git(clone, "rev-parse", "HEAD")
    call(release, monkeypatch, "--dry-run")
    assert (git(clone, "rev-parse", "HEAD"), git(clone, "status", "--porcelain"), git(clone, "tag")) == (before, "", "")


@pytest.mark.parametrize(
    "case",
    [
        ("pyproject.toml", PROJECT.replace(".dev0", ""), "not a development version"),
        (
            "CHANGELOG.md",
            CHANGELOG.replace("1.2.0", "1.3.0"),
            "must begin with the section '## 1.2.0 \\(unreleased\\)'",
        ),
        ("pyproject.toml", PROJECT + "\n", "uncommitted changes"),
    ],
)
def test_what_is_not_ready_is_not_released(
    release: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str]
) -> None:
    name, text, reason = case
    (clone / name).write_text(text)
    with pytest.raises(SystemExit, match=reason):
        call(release, monkeypatch)
    assert git(clone, "tag") == ""


def test_a_version_is_released_once(release: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(clone, "tag", "v1.2.0")
    with pytest.raises(SystemExit, match="exists already"):
        call(release, monkeypatch, "--dry-run")


def test_a_release_that_lacks_its_tools_or_a_committer_fails_at_once(
    release: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "TOOLS", clone / "none")
    with pytest.raises(SystemExit, match="run scripts/install first"):
        call(release, monkeypatch, "--dry-run")
    monkeypatch.undo()
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(clone / "none"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git(clone, "config", "user.useConfigOnly", "true")
    with pytest.raises(SystemExit, match="GIT_COMMITTER_IDENT failed"):
        release.be_prepared(clone, commits=True)
    release.be_prepared(clone, commits=False)


def test_the_bill_of_materials_lists_every_locked_package_with_its_hashes(release: ModuleType) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    bill: dict[str, Any] = release.bill_of_materials(lock, "1.2.0")
    listed = {f"{component['name']}=={component['version']}" for component in bill["components"]}
    assert listed == set(re.findall(r"^[\w.-]+==[^\s;]+", lock, re.MULTILINE))
    files = [reference for component in bill["components"] for reference in component["externalReferences"]]
    assert sum(len(file["hashes"]) for file in files) == lock.count("--hash=sha256:")
    excluded = {component["name"] for component in bill["components"] if component["scope"] == "excluded"}
    assert excluded == {"cython", "setuptools"}
    # Packages with markers such as `sys_platform != 'emscripten'` are needed on Linux.
    optional = {component["name"] for component in bill["components"] if component["scope"] == "optional"}
    assert optional == {"httpx2-jsfetch"}


def test_the_version_of_the_project_has_a_section_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"].partition(".dev")[0]
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_image_has_a_python_that_is_tested() -> None:
    image = set(re.findall(r"^FROM python:(\d+\.\d+)-", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    newest = re.findall(r"^version=(\d+\.\d+)\.\d+$", (ROOT / "scripts" / "python").read_text(), re.MULTILINE)
    assert image == set(newest)
    assert "scripts/test-newest" in (ROOT / "scripts" / "test").read_text()


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["core"]["strategy"]["matrix"]["python"] == named
    built = [word.split("-")[0] for word in project["tool"]["cibuildwheel"]["build"]]
    assert built == [f"cp{version.replace('.', '')}" for version in named]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_only_calls_what_exists(path: Path) -> None:
    steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
    commands = [shlex.split(step["run"]) for step in steps if "run" in step]
    assert commands
    for words in commands:
        program = next(word for word in words if "=" not in word)
        assert program == "python" or (program.startswith("scripts/") and (ROOT / program).exists()), words


def test_make_only_calls_scripts_that_exist_and_lists_each_command() -> None:
    text = (ROOT / "Makefile").read_text()
    assert all((ROOT / script).exists() for script in re.findall(r"^\t(scripts/\S+)", text, re.MULTILINE))
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [line.split()[1] for line in shown.splitlines()]
    assert names == re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)[0].split()


def test_a_commit_is_checked_by_the_script_that_everyone_runs() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["scripts/check"]
