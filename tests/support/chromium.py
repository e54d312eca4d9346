"""A headless Chromium, spoken to over two pipes (its DevTools protocol): no driver, no network."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank"),
)
# The browser reads commands on 3 and writes answers on 4, whatever numbers these pipes have here.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0


def find() -> str | None:
    """The browser, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers, self.rest = commands, answers, b""
        self.count = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers."""
        number = next(self.count)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, width: int, height: int, scheme: str = "light") -> None:
        """Shows a file; what happened before is forgotten."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        # A second look: what a page does after it was loaded counts too.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def happened(self, *methods: str) -> list[dict[str, Any]]:
        """The events of these kinds since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def picture(self, whole: bool = True) -> bytes:
        """The page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self.answers, 1 << 20) if ready else b""
            if not block:
                raise RuntimeError("Chromium does not answer")
            self.rest += block
        answer, _, self.rest = self.rest.partition(b"\0")
        return json.loads(answer)


@contextmanager
def chromium(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, until the end."""
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    launch = [sys.executable, "-S", "-c", LAUNCH, str(read_commands), str(write_answers)]
    process = subprocess.Popen(
        [*launch, program, f"--user-data-dir={profile}", *FLAGS],
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Browser(commands, answers)
    finally:
        # It leaves when nobody is left to command it.
        os.close(commands)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
