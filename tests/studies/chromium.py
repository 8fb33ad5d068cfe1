"""A real headless Chromium, driven over the pipes of its DevTools protocol: no other package is needed.

$XDPLAB_CHROMIUM names its binary (set $LD_LIBRARY_PATH for libraries beside it); otherwise it is searched in $PATH.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEADLINE_S = 60.0


def binary() -> str | None:
    """Return the binary, or None if there is none."""
    named = os.environ.get("XDPLAB_CHROMIUM")
    return named if named else next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """An open page: its log, results of scripts in it, and its picture."""

    def __init__(self, path: str, profile: Path) -> None:
        out_read, self._out = os.pipe()
        self._in, in_write = os.pipe()
        # The protocol's pipes are the browser's descriptors 3 (commands) and 4 (answers).
        line = f'exec "$@" 3<&{out_read} 4>&{in_write}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        argv = ["bash", "-c", line, "bash", path, *flags, f"--user-data-dir={profile}", "about:blank"]
        self._browser = subprocess.Popen(
            argv, pass_fds=(out_read, in_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(out_read)
        os.close(in_write)
        self._count, self._rest, self._session = 0, b"", ""
        self.logged: list[str] = []
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.kill()
        self._browser.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the browser's answer. Raises AssertionError with the browser's message."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._event(answer)

    def _next(self) -> Any:
        until = time.monotonic() + DEADLINE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "the browser does not answer any more"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _event(self, answer: Any) -> None:
        method, told = answer.get("method"), answer.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.logged.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.logged.append(f"{told['type']}: {told['args']}")
        elif method == "Log.entryAdded":
            self.logged.append(f"{told['entry']['level']}: {told['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])

    def open(self, path: Path, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        """Load a file at a width, light or dark, and wait until it is loaded."""
        self.logged, self.asked = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + DEADLINE_S
        while self.run("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < until, "the page does not load"
            time.sleep(0.05)

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text=text if kind == "keyDown" else "")  # fmt: skip

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page as PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """Return the printed page."""
        return base64.b64decode(self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
