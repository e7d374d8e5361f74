"""`headwater doctor`: find problems with this machine or a server, and say how to fix them."""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import destined
from headwater.cli.contexts.choosing import Destination
from headwater.cli.doctor import checks, security
from headwater.cli.doctor.checks import Finding
from headwater.cli.failures import fail
from headwater.cli.printing import coloured, counted, json_list
from headwater.client.urls import origin, site, split_urls
from headwater.settings import SETTINGS

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@verb("headwater doctor --data /var/lib/headwater", "headwater doctor --lake s3://history/headwater --json")
@click.option("--data", type=click.Path(path_type=Path), help="Data directory of a server; it need not exist yet.")
@click.option("--lake", help="Where history is stored: a folder or s3://bucket/prefix.")
@click.option("--workers", type=click.IntRange(1), default=1, help="Number of worker processes to plan for.")
@click.option("--tls-cert", envvar=SETTINGS["tls_cert"].variable, help="Certificate chain of a server.")
@click.option("--tls-key", envvar=SETTINGS["tls_key"].variable, help="Private key of the certificate.")
@click.option("--hosts", envvar=SETTINGS["hosts"].variable, default="", help="Names under which clients call a server.")
@click.option("--public-url", envvar=SETTINGS["public_url"].variable, default="", help="Origin of a server.")
@click.option("--auth", envvar=SETTINGS["auth"].variable, help="Access file of a server.")
@click.option("--cluster", "nats", envvar=SETTINGS["cluster"].variable, help="NATS servers of a cluster.")
@click.option("--cluster-monitor", "monitors", help="URLs of their monitoring ports, if not port 8222 of each.")
@destined
@JSON
def doctor(
    *,
    data: Path | None,
    lake: str | None,
    workers: int,
    tls_cert: str | None,
    tls_key: str | None,
    hosts: str,
    public_url: str,
    auth: str | None,
    nats: str | None,
    monitors: str | None,
    destination: Destination,
    as_json: bool,
) -> None:
    """Check whether a server runs well here.

    Each line is a check; a warning or a problem says how to fix it.
    """
    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key belong together; give both or neither.")
    problems = []

    def found() -> Iterator[Finding]:
        for finding in chain(
            _findings(data, lake, workers, destination),
            security.certificate(tls_cert, tls_key, hosts, public_url) if tls_cert and tls_key else (),
            security.access_file(Path(auth)) if auth else (),
            checks.nats_servers(nats, monitors) if nats else (),
        ):
            if finding.verdict == "problem":
                problems.append(finding.check)
            yield finding

    if as_json:
        json_list(finding._asdict() for finding in found())
    else:
        for finding in found():
            _print(finding)
    if problems:
        found_in = f"{counted(len(problems), 'problem')} ({', '.join(problems)})"
        fail(f"Found {found_in}; follow the advice above, and run this again.")


def _findings(data: Path | None, lake: str | None, workers: int, destination: Destination) -> Iterator[Finding]:
    yield checks.python()
    yield checks.packages()
    yield checks.compiled_modules()
    yield checks.open_files()
    yield checks.memory(workers, data)
    if workers > 1:
        yield checks.cores(workers)
    contacts = {
        url: checks.server(site(url), destination.request_headers(), destination.named, verify=destination.verification)
        for url in split_urls(destination.url)
    }
    yield checks.clock(data, next((contact.date for contact in contacts.values() if contact.date), None))
    if data is not None:
        yield from checks.directory(data)
        if lake is None and (data / "lake").is_dir():
            lake = str(data / "lake")
    if lake is not None:
        yield checks.lake(lake)
    for url, contact in contacts.items():
        _, host, port = origin(url)
        if host in LOOPBACK and port is not None:
            yield checks.port(host, port, contact.answered)
        yield contact.finding


def _print(finding: Finding) -> None:
    verdict = coloured(f"{finding.verdict:<8}", COLOURS[finding.verdict])
    fix = f"; {finding.fix}" if finding.fix else ""
    click.echo(f"{verdict} {finding.check + ':':<12} {finding.detail}{fix}.")
    sys.stdout.flush()
