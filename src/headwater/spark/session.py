"""Spark sessions with the settings that the jobs need, on this machine or on an existing cluster."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

# -- Iceberg's own runtime: where its jar is, and the configuration with which it reads the lake's tables --------------


CATALOG = "headwater"
RUNTIME = "iceberg-spark-runtime"
RUNTIME_VERSION = "1.12.0"
SPARK_VERSIONS = ("4.0", "4.1")
"""The versions of Spark 4 that have a runtime on Maven Central."""
JAR_VARIABLE = "ICEBERG_RUNTIME_JAR"
JARS, PACKAGES = "spark.jars", "spark.jars.packages"


class IcebergMissing(Exception):
    """Spark has no Iceberg runtime; the message says in one sentence how to get it."""


def iceberg_conf(server: str, conf: Mapping[str, str], *, spark_version: str = pyspark.__version__) -> dict[str, str]:
    """What a session needs so that `headwater.headwater.messages` is the lake of a server.

    The runtime is one that `conf` names, the jar in ICEBERG_RUNTIME_JAR, or one among the jars of Spark or of Ivy.
    IcebergMissing if there is none for this version of Spark.
    """
    catalog = f"spark.sql.catalog.{CATALOG}"
    found = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": f"{server.rstrip('/')}/iceberg",
    }
    if any(RUNTIME in conf.get(name, "") for name in (JARS, PACKAGES)):
        return found
    version = ".".join(spark_version.split(".")[:2])
    bundled = Path(pyspark.__file__).parent / "jars"
    if any(bundled.glob(f"{RUNTIME}-{version}_*.jar")):
        return found
    jar = os.environ.get(JAR_VARIABLE) or _newest(version, Path.home().glob(".ivy2*/jars"))
    if jar is None:
        raise IcebergMissing(_advice(version))
    return {**found, JARS: ",".join(filter(None, (conf.get(JARS), jar)))}


def _newest(version: str, folders: Iterable[Path]) -> str | None:
    jars = [str(jar) for folder in folders for jar in folder.glob(f"*{RUNTIME}-{version}_*.jar")]
    return max(jars, default=None)


def _advice(version: str) -> str:
    if version not in SPARK_VERSIONS:
        newest = SPARK_VERSIONS[-1]
        return (
            f"There is no Iceberg runtime for Spark {version} that this version knows of: install PySpark {newest}, or "
            f"name a jar for Spark {version} in {JAR_VARIABLE}."
        )
    package = f"org.apache.iceberg:{RUNTIME}-{version}_2.13:{RUNTIME_VERSION}"
    return (
        f"Spark has no Iceberg runtime: pass conf={{'{PACKAGES}': '{package}'}}, which downloads it, or name a "
        f"downloaded jar in {JAR_VARIABLE}."
    )


# -- Sessions ----------------------------------------------------------------------------------------------------------


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
