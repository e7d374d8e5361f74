"""The command tree."""

import click

from headwater.cli.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headwater")
def main() -> None:
    """Durable streams over plain HTTP."""


main.add_command(serve)
