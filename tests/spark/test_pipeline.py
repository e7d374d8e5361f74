"""The pipeline that `headwater spark init` writes is complete, and runs repeatedly as its README says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.pipelines.cli import load_pipeline_spec

from headwater.cli import main
from headwater.client import Client
from headwater.spark.pipeline.project import ProjectRefused, write_project
from headwater.testing import running_server

URL = "http://127.0.0.1:4437"
PARTS = {
    "README.md",
    "spark-pipeline.yml",
    "transformations/alerts.py",
    "transformations/bronze.py",
    "transformations/gold.sql",
    "transformations/silver.sql",
}
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_SECONDS_MAX = 900
"""Each run starts Spark, which takes most of the time, especially on a busy machine."""


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_project_is_written_completely(tmp_path: Path) -> None:
    folder = tmp_path / "my orders"
    done = CliRunner().invoke(main, ["spark", "init", str(folder), "--url", "http://h:1", "--bucket", "sales"])
    assert done.exit_code == 0, done.output
    assert written(folder) == PARTS
    assert not any("{{" in path.read_text() for path in folder.rglob("*") if path.is_file())
    spec = load_pipeline_spec(folder / "spark-pipeline.yml")
    assert (spec.name, spec.storage) == ("my_orders", (folder / "storage").as_uri())
    assert spec.configuration == {
        "spark.sql.session.timeZone": "UTC",
        "spark.headwater.url": "http://h:1",
        "spark.headwater.bucket": "sales",
        "spark.headwater.results": "sales-alerts",
    }
    for path in (folder / "transformations").glob("*.py"):
        compile(path.read_text(), str(path), "exec")


def test_values_are_quoted_everywhere(tmp_path: Path) -> None:
    write_project(tmp_path / "a", 'http://h:1/"quoted"#', "orders", "results")
    spec = load_pipeline_spec(tmp_path / "a" / "spark-pipeline.yml")
    assert spec.configuration["spark.headwater.url"] == 'http://h:1/"quoted"#'


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = CliRunner().invoke(main, ["spark", "init", str(tmp_path)])
    assert done.exit_code == 1
    assert "exists and is not empty; choose a new folder." in done.output
    assert written(tmp_path) == {"mine.txt"}


@pytest.mark.parametrize(
    ("bucket", "results", "problem"),
    [
        ("UPPER", None, "is not a valid bucket name"),
        ("shop", "a/b", "is not a valid bucket name"),
        ("shop", "shop", "would read its own results"),
    ],
)
def test_invalid_buckets_are_refused(tmp_path: Path, bucket: str, results: str | None, problem: str) -> None:
    with pytest.raises(ProjectRefused, match=problem):
        write_project(tmp_path / "new", URL, bucket, results)
    assert not (tmp_path / "new").exists()


@pytest.mark.spark_slow
def test_the_project_runs_as_its_readme_says_and_resumes_where_it_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with running_server(data=tmp_path / "data") as server, Client(f"{server.url}/ds") as client:
        write_project(folder, server.url, "shop")
        run, sample, look = BLOCK.findall((folder / "README.md").read_text())
        shell(sample, folder)
        shell(run, folder)
        alerts = client.bucket("shop-alerts").stream("ada")
        assert [alert["item"] for alert in alerts.read_json()] == ["press"]
        more = [{"item": "ink", "price": 5}, {"item": "press", "price": 60, "quantity": 2}, {"no": "order"}]
        client.bucket("shop").stream("ada").append(json.dumps(more))
        shell(run, folder)
        assert [(alert["price"], alert["quantity"]) for alert in alerts.read_json()] == [(120, 1), (60, 2)]
        shown = shell(look, folder)
        # Computed again, the alerts are the first batch of a new query.
        refresh = run.replace("run ", "run --full-refresh-all ")
        assert "The producer 'project-alerts' belongs to the query " in shell(refresh, folder, fails=True)
        assert len(alerts.read_json()) == 2
        code = folder / "transformations" / "alerts.py"
        code.write_text(code.read_text().replace('"project-alerts"', '"project-alerts-2"'))
        shell(refresh, folder)
        assert [alert["price"] for alert in alerts.read_json()] == [120, 60, 120, 60]
    assert "ada\t4\t265.0" in shown
    tables = folder / "spark-warehouse"
    bronze, silver, items = (
        ds.dataset(tables / name, format="parquet", exclude_invalid_files=True).to_table()
        for name in ("bronze_messages", "silver_orders", "gold_items")
    )
    assert sorted(bronze["record"].to_pylist()) == [0, 1, 2, 3, 4]
    assert sorted(silver["record"].to_pylist()) == [0, 1, 2, 3]
    assert {row["item"]: row["sold"] for row in items.to_pylist()} == {"pen": 10, "press": 3, "ink": 1}


def shell(text: str, folder: Path, *, fails: bool = False) -> str:
    """Run a block as a person would, in the project's folder, with this environment active."""
    done = subprocess.run(
        ["bash", "-ec", text],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode != 0) is fails, f"{text}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout + (done.stderr if fails else "")
