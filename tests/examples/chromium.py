"""A headless Chromium, driven over a pipe by the DevTools protocol; no library is needed."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Root cannot use the sandbox.
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
WAIT_SECONDS_MAX = 60.0


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, to: IO[bytes], back: IO[bytes]) -> None:
        self._to, self._back = to, back
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and wait for its answer; events in between are ignored."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        self._to.write(json.dumps(command).encode() + b"\0")
        self._to.flush()
        while True:
            answer = json.loads(self._receive())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> bytes:
        parts = []
        while (byte := self._back.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            parts.append(byte)
        return b"".join(parts)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def reload(self) -> None:
        self.evaluate("window.isOld = true")
        self.call("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} did not become true:\n{self.dom()}"
            time.sleep(0.05)

    def dom(self) -> str:
        return str(self.evaluate("document.documentElement.outerHTML"))

    def screenshot(self, *, dark: bool = False, width: int = 900, height: int = 680) -> bytes:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600
        )
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def page(program: str, *flags: str) -> Iterator[Page]:
    """Run a browser with one tab for the duration of the block."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # It takes commands from descriptor 3 and answers on 4.
        command = ["bash", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "bash"]
        command += [program, *FLAGS, *flags, f"--user-data-dir={profile}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield Page(process.stdin, process.stdout)
            finally:
                process.terminate()
