"""Spark sessions with the settings that the jobs need, on this machine or on an existing cluster."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.spark.iceberg import iceberg_conf

JAVA_VERSION_MIN = 17
JAVA_SECONDS_MAX = 60
"""How long `java -version` may take on a busy machine."""
SERVER = "http://localhost:4437"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows from Python workers cost the JVM a quarter less than through TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark asks a query without new rows a hundred times a second by default, which takes a tenth of a core.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}",
}
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
"""On one machine no other host needs to reach the driver, and more partitions than this only add overhead."""


class JavaMissing(Exception):
    """Spark finds no Java that it can run on; the message says what to do."""


def session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    iceberg: bool = False,
    server: str = SERVER,
) -> SparkSession:
    """A session on `master`, by default on all cores of this machine; an existing session is reused.

    With `iceberg`, the tables of a server's lake are `headwater.headwater.messages` and so on, read by Iceberg's own
    runtime; IcebergMissing if Spark has none.
    """
    where = master or "local[*]"
    local = where.startswith("local")
    given = dict(conf or {})
    if iceberg:
        given |= iceberg_conf(server, given)
    check_java()
    builder = SparkSession.Builder().appName(app_name).master(where)
    for name, value in {**DEFAULTS, **(LOCAL_DEFAULTS if local else {}), **given}.items():
        builder = builder.config(name, value)
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.getOrCreate()


def check_java() -> None:
    """Raise JavaMissing unless Spark will find a Java that it can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    needed = f"Spark needs Java {JAVA_VERSION_MIN} or later"
    remedy = "install it (on Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        raise JavaMissing(f"{needed}, but no java is on the PATH: {remedy}.")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{needed}, but {java} does not run ({error}): {remedy}.") from error
    version = java_version(done.stderr)
    if version is None or version < JAVA_VERSION_MIN:
        raise JavaMissing(f"{needed}, but {java} is version {version or 'unknown'}: {remedy}.")


def java_version(output: str) -> int | None:
    """The major version in the output of `java -version`.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None
