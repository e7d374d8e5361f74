"""`headwater lake catalog`: what other engines need to open the lake's tables, to copy."""

import json
from pathlib import Path

import click

from headwater.cli.commands import JSON
from headwater.cli.connecting import check_url
from headwater.cli.lake.command import DATA, find_store, lake
from headwater.lake.iceberg.tables import NAMESPACE, table_url
from headwater.storage.s3 import iceberg_options

ENGINES = ("pyiceberg", "polars", "duckdb", "spark", "trino")
ICEBERG_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


@lake.verb(
    "headwater lake catalog --data data",
    "headwater lake catalog s3://history/headwater --server http://localhost:4437",
)
@click.argument("url", required=False)
@DATA
@click.option(
    "--server", metavar="URL", callback=check_url, help="URL of the lake's server, which is then the catalog."
)
@click.option("--engine", type=click.Choice(ENGINES), help="Print the configuration of one engine only.")
@JSON
def catalog(url: str | None, data: Path | None, server: str | None, engine: str | None, as_json: bool) -> None:
    """Print the configuration that other engines need."""
    place = table_url(find_store(url, data).url)
    uri = None if server is None else f"{server.rstrip('/')}/iceberg"
    found = {name: _CONFIGURATIONS[name](place, uri) for name in (ENGINES if engine is None else (engine,))}
    if as_json:
        click.echo(json.dumps(found))
    elif engine is not None:
        click.echo(found[engine])
    else:
        for name, text in found.items():
            click.echo(f"# {name}\n{text}\n")


def _pyiceberg(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            "from pyiceberg.table import StaticTable\n"
            f'messages = StaticTable.from_metadata("{place}/messages"{_options(place)})'
        )
    return (
        "from pyiceberg.catalog import load_catalog\n"
        f'catalog = load_catalog("{NAMESPACE}", uri="{uri}"{_options(place, ", **")})\n'
        f'messages = catalog.load_table("{NAMESPACE}.messages")'
    )


def _options(place: str, before: str = ", ") -> str:
    """The endpoint and the region of S3, if the environment names them."""
    if not place.startswith("s3:"):
        return ""
    return f"{before}{iceberg_options()!r}"


def _polars(place: str, uri: str | None) -> str:
    return f"{_pyiceberg(place, uri)}\nimport polars\nframe = polars.scan_iceberg(messages)"


def _duckdb(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            "install iceberg; load iceberg;\n"
            f"from iceberg_scan('{place}/messages', version_name_format => '%s%s.metadata.json');"
        )
    attach = f"attach '' as {NAMESPACE} (type iceberg, endpoint '{uri}', authorization_type 'none')"
    return f"install iceberg; load iceberg;\n{attach};\nfrom {NAMESPACE}.{NAMESPACE}.messages;"


def _spark(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            f"spark.jars.packages {ICEBERG_RUNTIME}\n"
            f"# then, with the newest file of {place}/messages/metadata:\n"
            f'# spark.read.format("iceberg").load("{place}/messages/metadata/VERSION.metadata.json")'
        )
    lines = [
        f"spark.jars.packages {ICEBERG_RUNTIME}",
        f"spark.sql.catalog.{NAMESPACE} org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{NAMESPACE}.type rest",
        f"spark.sql.catalog.{NAMESPACE}.uri {uri}",
    ]
    if place.startswith("s3:"):
        lines.append(f"spark.sql.catalog.{NAMESPACE}.io-impl org.apache.iceberg.aws.s3.S3FileIO")
    return "\n".join(lines)


def _trino(place: str, uri: str | None) -> str:
    files = "fs.native-s3.enabled=true" if place.startswith("s3:") else "fs.hadoop.enabled=true"
    catalog = f"iceberg.rest-catalog.uri={uri or 'http://SERVER/iceberg'}"
    return "\n".join(("connector.name=iceberg", "iceberg.catalog.type=rest", catalog, files))


_CONFIGURATIONS = {"pyiceberg": _pyiceberg, "polars": _polars, "duckdb": _duckdb, "spark": _spark, "trino": _trino}
