"""A browser to test with: Debian's chromium behind chromedriver, spoken to in plain HTTP and JSON.

Only what these tests need of the WebDriver protocol. A missing tool is a failure that names it.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Tab": "\ue004", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011", "End": "\ue010"}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def tool(name: str) -> str:
    path = shutil.which(name)
    assert path, f"{name} is not installed: the browser tests need it (Debian: apt-get install {name})"
    return path


class Browser:
    """One headless window; a context manager."""

    def __init__(self, profile: Path) -> None:
        driver = tool("chromedriver") if shutil.which("chromedriver") else tool("chromium-driver")
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        self.address = f"http://127.0.0.1:{self._port()}"
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": tool("chromium"), "args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address += f"/session/{answer['sessionId']}"

    def _port(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found[1])
        raise AssertionError("chromedriver ended without a port")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, data, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(timeout=20)

    def open(self, path: Path) -> None:
        self._send("POST", "/url", {"url": path.absolute().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript and give back what it returns."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        """Press keys in the focused element, as a person would."""
        strokes = [{"type": kind, "value": KEYS[key]} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Drag the mouse between two points of the window."""
        (x0, y0), (x1, y1) = start, end
        steps = [
            {"type": "pointerMove", "x": x0, "y": y0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "x": x1, "y": y1, "duration": 50},
            {"type": "pointerUp", "button": 0},
        ]
        self._send("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": steps}]})

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the page, as on a phone or a desk, and the preferred colors."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [feature]})
        time.sleep(0.2)

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path) -> None:
        """The whole page, also below the fold."""
        shot = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
        path.write_bytes(base64.b64decode(shot["data"]))

    def console(self) -> list[str]:
        """What the page complained of since the last call."""
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that pages asked for since the last call; the browser's own start page aside."""
        entries = self._send("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in asked if not each["documentURL"].startswith("chrome:")]
