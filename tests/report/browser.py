"""Chromium as the tests use it: what it shows, says and asks for, and where an image lies on the map."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Browser:
    """Chromium with its console and its network watched."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(
        self,
        page: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        keep: bool = False,
        media: str = "",
        forced: bool = False,
    ) -> Any:
        if not keep and self.driver.current_url.startswith("file:"):
            self.js("localStorage.clear()")  # pages from disk share it
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "forced-colors", "value": "active" if forced else "none"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.console(), self.requests()  # what was there before is not this page's
        self.driver.get(page.as_uri())
        self.js("document.documentElement.style.scrollBehavior = 'auto'")
        return self.driver

    def js(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def until(true: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    return found


def text(page: Any, name: str) -> str:
    return page.find_element("id", name).text  # By.ID: this file loads without selenium


def spot(browser: Browser, i: int) -> tuple[float, float]:
    """Where image i of the data lies, from the middle of the map, at the first zoom."""
    x, y, width, height = browser.js(
        "const s = document.getElementById('stage');"
        "return [data.x[arguments[0]], data.y[arguments[0]], s.clientWidth, s.clientHeight]",
        i,
    )
    across, along = browser.js(
        "return [data.x, data.y].map((v) => Math.max(500, Math.max(...v) - Math.min(...v)) / 10000)"
    )
    side = min((width - 56) / across, (height - 56) / along)
    return (x / 10000 - 0.5) * side, (y / 10000 - 0.5) * side
