"""The command tree."""

import click

from headwater.cli import lake_sql  # noqa: F401 - it adds itself to the lake
from headwater.cli.backup import backup
from headwater.cli.lake import lake
from headwater.cli.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headwater")
def main() -> None:
    """Durable streams over plain HTTP."""


main.add_command(serve)
main.add_command(lake)
main.add_command(backup)
