"""`headwater serve`: run the server until a signal stops it."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import uvloop

from headwater import settings as settings_module
from headwater.cli import logs
from headwater.cli.commands import epilog, write_sections
from headwater.cli.running import FAILURES, make_audit, make_guard, reason_of, run
from headwater.cli.supervising.workers import supervise
from headwater.settings import RENAMED, SETTINGS, Setting, Settings, SettingsError

METAVARS = {"bytes": "SIZE", "seconds": "DURATION"}

log = logging.getLogger(__name__)


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one flag for each setting."""
    for setting in reversed(SETTINGS.values()):
        command = _flag(setting)(command)
    for earlier in RENAMED:
        command = click.option("--" + earlier.replace("_", "-"), earlier, default=None, hidden=True)(command)
    return command


def _flag(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    # No default and no type: `settings.load` must know which flags were given, and parses all sources alike.
    if setting.kind is bool:
        return click.option(setting.flag, setting.name, is_flag=True, default=None, help=setting.help)
    metavar = f"[{'|'.join(setting.choices)}]" if setting.choices else METAVARS.get(setting.unit)
    default = f"  [default: {setting.render(setting.default)}]" if setting.default != "" else ""
    return click.option(
        setting.flag,
        setting.name,
        default=None,
        metavar=metavar or {int: "INTEGER", str: "TEXT"}[setting.kind],
        help=setting.help + default,
        multiple=setting.repeatable,
        callback=_joined if setting.repeatable else None,
    )


def _joined(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    return ",".join(given) or None


class ServeCommand(click.Command):
    """A command that lists its options by the groups of the settings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                setting = SETTINGS.get(parameter.name or "")
                sections.setdefault(setting.group if setting else "Options", []).append(record)
        write_sections(formatter, sections)


@click.command(
    cls=ServeCommand,
    epilog=epilog(
        "headwater serve --data /var/lib/headwater --log-format json",
        "headwater serve --memory --port 0",
        "headwater serve --lake s3://history/headwater --hot-bytes-max 2GiB",
        "headwater serve --workers 4",
    ),
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    envvar="HEADWATER_CONFIG",
    show_envvar=True,
    help="TOML file with settings.",
)
@_flags
def serve(config: Path | None, **flags: Any) -> None:
    """Run a server.

    It runs until SIGTERM or Ctrl-C, and then lets running requests finish.

    Each option is also an environment variable (--port is HEADWATER_PORT) and a line of the file given by --config.
    Sizes take units (512MiB, 64KB), and so do durations (500ms, 30s, 5min).
    """
    try:
        settings = settings_module.load(flags, config)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    try:
        guard = make_guard(settings)
        logs.set_up(settings.log_format, settings.log_level)
        if settings.workers > 1:
            supervise(settings, guard)
        else:
            uvloop.run(run(settings, guard, make_audit(settings)))
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    except FAILURES as error:
        _fail(settings, reason_of(error))


def _fail(settings: Settings, reason: str) -> NoReturn:
    if settings.log_format == "json":
        log.critical(reason)
    else:
        click.echo(f"Error: {reason}", err=True)
    sys.exit(1)
