"""The blocking client is generated from the asynchronous one."""

import importlib
import inspect
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/unasync"


@pytest.fixture(scope="module")
def unasync() -> ModuleType:
    loader = SourceFileLoader("unasync", str(SCRIPT))
    spec = spec_from_loader("unasync", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_generated_files_are_up_to_date() -> None:
    found = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_names_words_and_keywords_are_replaced(unasync: ModuleType) -> None:
    source = '''async def f(self: AsyncA) -> "AsyncB":
    """Use it as an asynchronous context manager, or `aclose` it; tasks may share it."""
    async with await x.aread() as y:
        return [z async for z in y], f"AsyncC({y})"  # an AsyncD, in an `async with` block
'''
    assert (
        unasync.blocking(source)
        == '''def f(self: A) -> "B":
    """Use it as a context manager, or `close` it; threads may share it."""
    with x.read() as y:
        return [z for z in y], f"C({y})"  # an D, in a `with` block
'''
    )


def _interface(module: ModuleType) -> dict[str, list[str]]:
    """The names of a runtime module's own classes and functions, with the parameters of each."""

    def parameters(found: Any) -> list[str]:
        return list(inspect.signature(found).parameters)

    names: dict[str, list[str]] = {}
    for name, found in vars(module).items():
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(found):
            names[name] = parameters(found)
        elif inspect.isclass(found):
            for method, function in vars(found).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    names[f"{name}.{method}"] = parameters(function)
    return names


def test_the_two_hand_written_modules_have_one_interface() -> None:
    asynchronous = _interface(importlib.import_module("headwater.client.asynchronous.runtime"))
    blocking = _interface(importlib.import_module("headwater.client.blocking.runtime"))
    plain = {name.removeprefix("Async").replace("aclose", "close"): found for name, found in asynchronous.items()}
    assert plain == blocking
    assert {"Workers.start", "Condition.wait_until", "Flow.close", "result_of"} <= set(blocking)
