"""Iceberg's own runtime in Spark: where its jar is, and the configuration with which it reads the lake's tables."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyspark

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
