"""DuckDB's Iceberg extension and what it needs, from packages instead of DuckDB's own servers."""

from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

EXTENSIONS = ("httpfs", "avro", "iceberg")


def install_extensions(home: Path) -> None:
    """Install the extensions as `INSTALL` would for a user with this home directory."""
    with duckdb.connect(config={"extension_directory": str(home / ".duckdb" / "extensions")}) as connection:
        for name in EXTENSIONS:
            import_extension(name, con=connection)


def connect(home: Path) -> duckdb.DuckDBPyConnection:
    """A connection that has the extensions."""
    install_extensions(home)
    connection = duckdb.connect(config={"extension_directory": str(home / ".duckdb" / "extensions")})
    for name in EXTENSIONS:
        connection.load_extension(name)
    return connection
