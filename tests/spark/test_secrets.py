"""No token gets into what Spark keeps or prints: plans, errors, event logs and the list of processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.testing import RunningServer, running_server

from ..client.guarding import FORBIDDEN, Guard
from .processes import family

TOKEN, KEY = "hw_marker_of-the-token", "marker-of-the-key"
JOB_SECONDS_MAX = 240

JOB = """
import json, sys
from pyspark.sql import functions as F
from headwater.spark.session import session

url, folder, token, key = json.load(sys.stdin)
conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file:{folder}"}
spark = session("secrets", master="local[1]", conf=conf)
spark.sparkContext.setLogLevel("INFO")
given = {"url": url, "token": token, "header.x-key": key, "header.authorization": key}

rows = spark.read.format("headwater").options(**given, bucket="shop", via="live").load().where("record >= 0")
rows.explain(True)
print(rows._jdf.queryExecution().toString())
assert rows.count() == 3

copied = rows.select(F.lit("shop/copy").alias("stream"), F.col("payload").alias("value"))
copied.write.format("headwater").options(**given).mode("append").save()

stream = spark.readStream.format("headwater").options(**given, bucket="shop", via="live").load()
query = (
    stream.select(F.lit("shop/again").alias("stream"), F.col("payload").alias("value")).writeStream.format("headwater")
    .options(**given, producerId="again", checkpointLocation=folder + "-checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
query.explain(True)
print(query.lastProgress, query.status)

try:
    wrong = {**given, "token": token + "-wrong"}
    spark.read.format("headwater").options(**wrong, bucket="shop", via="live").load().count()
except Exception as error:
    print("refused:", error)
spark.stop()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        with Client(server.url) as client:
            stream = client.stream("shop/orders")
            stream.create("application/json")
            stream.append_json(1, 2, 3)
        yield server


@pytest.fixture
def guard(server: RunningServer) -> Iterator[Guard]:
    with Guard(server.url, TOKEN).running() as guard:
        guard.has_whoami = False  # The server's own names its log.
        yield guard


def test_plans_errors_and_event_logs_contain_no_token(guard: Guard, tmp_path: Path) -> None:
    events, script = tmp_path / "events", tmp_path / "job.py"
    events.mkdir()
    script.write_text(JOB)
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps([guard.url, str(events), TOKEN, KEY]),
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS_MAX,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-3000:]
    assert "refused:" in printed and "give the option tokenFile" in printed
    files = [path for path in events.rglob("*") if path.is_file()]
    logged = b"".join(path.read_bytes() for path in files).decode()
    assert "SparkListenerSQLExecutionStart" in logged
    for marker in (TOKEN, KEY):
        assert [line for line in (printed + logged).splitlines() if marker in line] == []


def test_a_job_of_the_command_line_takes_the_token_from_its_environment(guard: Guard, tmp_path: Path) -> None:
    """While it runs, no process shows the token in its arguments."""
    command = [
        sys.executable,
        "-m",
        "headwater",
        "spark",
        "report",
        "--bucket",
        "shop",
        "--to",
        str(tmp_path / "usage"),
    ]
    env = {**os.environ, "HEADWATER_TOKEN": TOKEN, "HEADWATER_URL": guard.url}
    shown = ""
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + JOB_SECONDS_MAX
            while process.poll() is None and time.monotonic() < until:
                shown += "".join(one.command for one in family(process.pid))
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)
        output.seek(0)
        printed = output.read()
    assert process.returncode == 0, printed
    assert {seen.authorization for seen in guard.seen} == {f"Bearer {TOKEN}"}
    assert "java" in shown and TOKEN not in shown + printed


def test_a_job_that_is_refused_says_which_option_to_give(guard: Guard, tmp_path: Path) -> None:
    guard.planned = [FORBIDDEN] * 10
    file = tmp_path / "token"
    file.write_text(TOKEN)
    command = [
        sys.executable,
        "-m",
        "headwater",
        "spark",
        "report",
        "--bucket",
        "shop",
        "--to",
        str(tmp_path / "usage"),
    ]
    done = subprocess.run(
        [*command, "--url", guard.url, "--token-file", str(file)],
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 1
    assert "give the option tokenFile" in done.stderr and TOKEN not in done.stderr
