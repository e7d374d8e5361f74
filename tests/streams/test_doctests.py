"""The examples in the docstrings of `headwater.streams` are correct."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import headwater.streams

MODULES = [
    module.name
    for module in pkgutil.iter_modules(headwater.streams.__path__, "headwater.streams.")
    if "._" not in module.name  # Compiled.
]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_module_runs_and_is_true(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module) == (0, inspect.getsource(module).count(">>> "))
