"""Runs the official client suite against the adapter, from a checkout of the protocol's repository.

The packages that it needs are copied to a scratch folder, where they are run from their sources. See
`scripts/client-conformance`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from headwater.testing import running_server

# This file runs as a program, so modules are searched in its folder only.
sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.client.injecting import Injector

CHECKOUT = "DURABLE_STREAMS_CHECKOUT"
PACKAGES = ("client", "server", "state", "client-conformance-tests")
RUNNER = Path("packages/client-conformance-tests/src/runner.ts")
CASES = Path("packages/client-conformance-tests/test-cases")
OWN_SERVER = "const serverUrl = server.url\n"
OTHER_SERVER = "const serverUrl = process.env.OTHER_SERVER_URL ?? server.url\n"
RUN_TIMEOUT_SECONDS = 900
PREFIX = "/v1/stream"
LONG_POLL_SECONDS = "0.5"
"""The setting of the suite's own server."""


def prepare(checkout: Path, scratch: Path) -> None:
    """Copy the packages and let them find each other without their own package manager and without a build."""
    for name in PACKAGES:
        place = scratch / "packages" / name
        ignored = shutil.ignore_patterns("node_modules", "dist")
        shutil.copytree(checkout / "packages" / name, place, dirs_exist_ok=True, ignore=ignored)
        manifest = place / "package.json"
        manifest.write_text(json.dumps(run_from_sources(json.loads(manifest.read_text()))))
    (scratch / "package.json").write_text(json.dumps({"private": True, "workspaces": ["packages/*"]}))
    runner = (scratch / RUNNER).read_text()
    assert OWN_SERVER in runner, "the runner of the suite has changed; see where it learns its server's URL"
    (scratch / RUNNER).write_text(runner.replace(OWN_SERVER, OTHER_SERVER))
    subprocess.run(["npm", "install", "--omit=dev", "--no-audit", "--no-fund", "--silent"], cwd=scratch, check=True)


def run_from_sources(manifest: dict[str, object]) -> dict[str, object]:
    exports = manifest.get("exports")
    assert isinstance(exports, dict)
    sources = {name: "./src/index.ts" if name == "." else f"./src/{name[2:]}.ts" for name in exports}
    dependencies = manifest.get("dependencies")
    assert isinstance(dependencies, dict)
    return {
        "name": manifest["name"],
        "version": manifest["version"],
        "type": "module",
        "exports": {**sources, "./package.json": "./package.json"},
        "dependencies": {name: "*" if "workspace:" in version else version for name, version in dependencies.items()},
    }


def include_skipped(scratch: Path) -> None:
    """Also run what the suite skips because of other clients."""
    for case in (scratch / CASES).rglob("*.yaml"):
        lines = case.read_text().splitlines(keepends=True)
        case.write_text("".join(line for line in lines if not line.lstrip().startswith("skip:")))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the official client suite against headwater.client.")
    parser.add_argument("--async", dest="asynchronous", action="store_true", help="the asynchronous client")
    parser.add_argument("--headwater", action="store_true", help="against this server instead of the suite's own")
    parser.add_argument("--all", action="store_true", help="also the cases that the suite itself skips")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/headwater-client-conformance"))
    options, rest = parser.parse_known_args()
    if CHECKOUT not in os.environ:
        sys.exit(f"Set {CHECKOUT} to a checkout of the repository durable-streams/durable-streams.")
    prepare(Path(os.environ[CHECKOUT]), options.scratch)
    if options.all:
        include_skipped(options.scratch)
    adapter = options.scratch / "adapter"
    flag = " --async" if options.asynchronous else ""
    adapter.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name('adapter.py')}{flag}\n")
    adapter.chmod(0o755)
    with ExitStack() as stack:
        environment = dict(os.environ)
        if options.headwater:
            server = stack.enter_context(running_server("--long-poll-seconds", LONG_POLL_SECONDS))
            injector = stack.enter_context(Injector(server.url, PREFIX).running())
            environment["OTHER_SERVER_URL"] = f"{injector.url}{PREFIX}"
        command = [options.scratch / "node_modules/.bin/tsx", "packages/client-conformance-tests/src/cli.ts"]
        command += ["--run", str(adapter), *rest]
        done = subprocess.run(command, cwd=options.scratch, env=environment, check=False, timeout=RUN_TIMEOUT_SECONDS)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
