"""`scripts/docker-steps` carries out the steps of a Dockerfile, and fails when a step fails."""

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "docker-steps"


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("docker_steps", str(SCRIPT))
    spec = importlib.util.spec_from_loader("docker_steps", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_later_stage_has_what_it_copies_and_nothing_else(steps: ModuleType, tmp_path: Path) -> None:
    text = """
        # A comment
        FROM somewhere AS build
        WORKDIR /made
        ENV GREETING=hello
        COPY LICENSE ./
        RUN echo "$GREETING" > /made/greeting \\
         && touch /left-behind
        FROM somewhere
        COPY --from=build --chown=1:1 /made /kept
        WORKDIR /kept
        CMD ["cat", "greeting"]
    """
    image = steps.build("\n".join(line.strip() for line in text.splitlines()), tmp_path / "scratch", tmp_path)
    assert sorted(path.name for path in image.root.rglob("*")) == ["LICENSE", "greeting", "kept"]
    assert (image.root / "kept" / "greeting").read_text() == "hello\n"
    assert image.folder == image.root / "kept"
    assert image.commands == {"CMD": ["cat", "greeting"]}


@pytest.mark.parametrize(
    ("step", "failure"),
    [
        ("RUN false", subprocess.CalledProcessError),
        ("RUN false ; true", subprocess.CalledProcessError),
        ("COPY no-such-file ./", FileNotFoundError),
        ("ADD LICENSE ./", SystemExit),
    ],
)
def test_a_step_that_fails_fails_the_build(
    steps: ModuleType, tmp_path: Path, step: str, failure: type[BaseException]
) -> None:
    with pytest.raises(failure):
        steps.build(f"FROM somewhere\n{step}\n", tmp_path / "scratch", tmp_path)
