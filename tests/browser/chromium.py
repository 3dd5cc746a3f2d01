"""A headless chromium, driven by Selenium through the machine's chromedriver."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def tool(name: str) -> str:
    """The path of a program; a missing one is a failure that names it."""
    path = shutil.which(name)
    assert path, f"{name} is not installed: the browser tests need it (Debian: chromium, chromium-driver)"
    return path


class Browser(webdriver.Chrome):
    """One window; what Selenium has no single call for is here."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = tool("chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        super().__init__(options=options, service=Service(tool("chromedriver")))
        self.get("about:blank")  # leaves the start page, which has requests of its own

    def run(self, script: str, *arguments: object) -> Any:
        """Run JavaScript and give back what it returns, promises awaited."""
        return self.execute_script(script, *arguments)

    def open(self, path: Path) -> None:
        """Show a file as a user opens it."""
        self.get(path.absolute().as_uri())

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the page, as on a phone or a desk, and the preferred colors."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def complaints(self) -> list[str]:
        """What pages wrote to the console since the last call."""
        return [entry["message"] for entry in self.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that pages asked for since the last call; the browser's own pages aside."""
        events = [json.loads(entry["message"])["message"] for entry in self.get_log("performance")]
        asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [
            each["request"]["url"]
            for each in asked
            if not each["documentURL"].startswith(("chrome", "about:"))
        ]
