"""The guide to browser pages: what it shows for many streams on one connection runs, and survives a killed server."""

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

from headwater.client import Client, RetryPolicy
from headwater.testing import running_server
from headwater.testing.ports import free_port

from .node_project import GUIDES, NODE, RUN_SECONDS_MAX, wait_until

PAGE = (GUIDES / "browser.md").read_text()
[FOLLOW_MANY] = re.findall(r"^```javascript\n// follow-many\.js\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MAIN = """
import { followMany } from "./follow-many.js";
const [url, ...streams] = process.argv.slice(2);
const print = (data) => console.log(JSON.stringify(data));
await followMany(url, Object.fromEntries(streams.map((stream) => [stream, "-1"])), print, print);
"""
NAMES = [f"chat/room-{number}" for number in range(20)]
MESSAGES = 12
PATIENT = RetryPolicy(attempts_max=400, first_delay_seconds=0.01, delay_seconds_max=0.1)


def test_the_page_says_how_to_follow_many_streams_and_that_survives_a_killed_server(
    tmp_path: Path,
) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "follow-many.js").write_text(FOLLOW_MANY)
    (tmp_path / "main.js").write_text(MAIN)
    port, printed = free_port(), tmp_path / "printed.txt"
    url = f"http://127.0.0.1:{port}"
    flags = ("--port", str(port), "--sse-seconds", "2")
    with Client(url, retry=PATIENT) as client, printed.open("w") as output:

        def write(numbers: range) -> None:
            for number in numbers:
                for name in NAMES:
                    client.stream(name, content_type="application/json").append_json(f"{number}\n ü")

        with running_server(*flags, data=tmp_path / "data") as server:
            for name in NAMES:
                client.stream(name).create("application/json")
            command = [str(NODE), "main.js", url, *NAMES, "chat/missing"]
            follower = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            try:
                write(range(MESSAGES // 3))
                wait_until(lambda: '"3\\n ü"' in printed.read_text(), "messages have arrived")
                server.kill()
                with running_server(*flags, data=tmp_path / "data"):
                    write(range(MESSAGES // 3, MESSAGES))
                    for name in NAMES:
                        client.stream(name).close_stream()
                    assert follower.wait(RUN_SECONDS_MAX) == 0, printed.read_text()
            finally:
                follower.kill()
                follower.wait()
    seen: dict[str, list[str]] = defaultdict(list)
    refused = []
    for line in printed.read_text().splitlines():
        data = json.loads(line)
        if "code" in data:
            refused.append((data["stream"], data["code"]))
        else:
            seen[data["stream"]] += data["items"]
    assert refused == [("chat/missing", "stream_not_found")]
    assert seen == {name: [f"{number}\n ü" for number in range(MESSAGES)] for name in NAMES}
