"""A browser without a window, for tests of pages: Chromium, spoken to through two pipes.

The DevTools protocol over pipes is JSON that ends with a zero byte: nothing but the standard
library is needed (https://chromedevtools.github.io/devtools-protocol/).
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
"""The program; None where there is none."""


class Tab:
    """One page, as wide as one asks, light or dark."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._number = to, back, 0
        self._pending = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def show(
        self,
        page: Path,
        width: int = 1280,
        height: int = 900,
        scheme: Literal["light", "dark"] = "light",
        script: bool = True,
    ) -> None:
        """Load a file at a width of so many CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript is; the page's policy does not bind it."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def picture(self, file: Path, whole: bool = True) -> None:
        """Write a PNG of the page, or of what is seen of it."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> Any:
        while b"\0" not in self._pending:
            more = os.read(self._back, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\0")
        return json.loads(line)


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start Chromium with its files in a folder, and end it."""
    there, to = os.pipe()
    back, here = os.pipe()
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--remote-debugging-pipe", f"--user-data-dir={folder}",
    ]  # fmt: skip

    # The browser reads from descriptor 3 and writes to 4: a shell sets them.
    script = f'exec "$@" 3<&{there} 4>&{here}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *command],
        pass_fds=(there, here),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(there)
    os.close(here)
    try:
        yield Tab(to, back)
    finally:
        process.terminate()  # it ends its own processes, and has written its files then
        process.wait()
        os.close(to)
        os.close(back)
