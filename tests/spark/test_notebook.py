"""The example notebook runs from its first cell to its last."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.testing import running_server

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark_notebook.py"


def test_the_notebook_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_server(data=tmp_path / "data") as server:
        monkeypatch.setenv("HEADWATER_URL", server.url)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        runpy.run_path(str(NOTEBOOK), run_name="__main__")
    assert "customer-07 was copied once: 17 messages" in capsys.readouterr().out
