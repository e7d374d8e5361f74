"""The configuration of Iceberg's runtime: found where its jar is, explained where it is not."""

from pathlib import Path

import pytest

from headwater.spark.session import JAR_VARIABLE, IcebergMissing, iceberg_conf, session

SERVER = "http://127.0.0.1:4437/"
CATALOG = {
    "spark.sql.catalog.headwater": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.headwater.type": "rest",
    "spark.sql.catalog.headwater.uri": "http://127.0.0.1:4437/iceberg",
}


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(JAR_VARIABLE, raising=False)


def test_a_runtime_that_the_configuration_names_is_used() -> None:
    for conf in (
        {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
        {"spark.jars": "/opt/iceberg-spark-runtime-4.1_2.13-1.12.0.jar"},
    ):
        assert iceberg_conf(SERVER, conf, spark_version="4.1.0") == CATALOG


def test_a_jar_is_found_by_its_variable_or_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / ".ivy2.5.2/jars"
    jars.mkdir(parents=True)
    for version in ("4.0_2.13-1.11.0", "4.1_2.13-1.11.0", "4.1_2.13-1.12.0"):
        (jars / f"org.apache.iceberg_iceberg-spark-runtime-{version}.jar").touch()
    found = str(jars / "org.apache.iceberg_iceberg-spark-runtime-4.1_2.13-1.12.0.jar")
    assert iceberg_conf(SERVER, {}, spark_version="4.1.4") == {**CATALOG, "spark.jars": found}
    assert (
        iceberg_conf(SERVER, {"spark.jars": "other.jar"}, spark_version="4.1.4")["spark.jars"] == f"other.jar,{found}"
    )
    monkeypatch.setenv(JAR_VARIABLE, "/opt/runtime.jar")
    assert iceberg_conf(SERVER, {}, spark_version="4.3.0") == {**CATALOG, "spark.jars": "/opt/runtime.jar"}


def test_where_there_is_no_runtime_one_sentence_says_how_to_get_it() -> None:
    package = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    with pytest.raises(IcebergMissing, match=rf"pass conf={{'spark.jars.packages': '{package}'}}, which downloads it"):
        iceberg_conf(SERVER, {}, spark_version="4.1.0")
    with pytest.raises(
        IcebergMissing, match=r"no Iceberg runtime for Spark 4\.3 .* install PySpark 4.1, or name a jar"
    ):
        iceberg_conf(SERVER, {}, spark_version="4.3.0")


def test_a_session_says_so_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.session.check_java", lambda: pytest.fail("Spark would have started"))
    monkeypatch.setattr(
        "headwater.spark.session.iceberg_conf", lambda *given: iceberg_conf(*given, spark_version="4.1.0")
    )
    with pytest.raises(IcebergMissing, match="Spark has no Iceberg runtime"):
        session("tables", iceberg=True)
