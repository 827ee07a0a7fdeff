"""The page in a real browser: quiet console, silent network, and names that run nothing."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, spot, text, until
from synthetic_run import Run, hostile_names, seen_as

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed: pip install selenium").By
from selenium.webdriver import ActionChains  # noqa: E402  (only where selenium is there)


def test_quiet_console_and_no_request(browser: Browser, run: Run) -> None:
    page = browser.open(run.folder / "report.html")
    for name in ("training", "map", "clusters", "details"):
        browser.js("document.getElementById(arguments[0]).scrollIntoView()", name)
    ActionChains(page).move_to_element(page.find_element(By.ID, "theme")).click().perform()
    assert browser.console() == []
    asked = browser.requests()
    own = (run.folder / "report.html").as_uri()
    assert own in asked  # the watch works
    assert [url for url in asked if not url.startswith("data:") and url != own] == []


@pytest.fixture
def server() -> Iterator[Any]:
    """A server on this machine that counts who comes."""
    hits: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *what: Any) -> None:
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield served.server_port, hits
    served.shutdown()


def test_the_policy_holds_even_against_injected_markup(browser: Browser, run: Run, server: Any, tmp_path: Path) -> None:
    port, hits = server
    attack = (
        f"const at = 'http://127.0.0.1:{port}/';"
        "document.body.insertAdjacentHTML('beforeend', `<img src='${at}img' onerror='window.pwned = 1'>"
        "<iframe src='${at}frame'></iframe><link rel=stylesheet href='${at}css'>`);"
        "const script = document.createElement('script');"
        "script.textContent = 'window.pwned = 2';"
        "document.body.append(script);"
        "fetch(at + 'fetch').catch(() => {});"
    )
    bare = tmp_path / "bare.html"
    bare.write_text("<!doctype html><body>")
    browser.open(bare)
    browser.js(attack)
    until(lambda: {"/img", "/frame", "/css", "/fetch"} <= set(hits))  # without the policy it all goes through
    assert browser.js("return window.pwned")
    hits.clear()
    browser.open(run.folder / "report.html")
    browser.js(attack)
    time.sleep(0.5)
    assert hits == []
    assert browser.js("return window.pwned ?? null") is None
    browser.console()


def test_hostile_names_run_nothing_and_appear_as_they_are(browser: Browser, hostile: Run) -> None:
    page = browser.open(hostile.folder / "report.html")
    assert browser.console() == []
    alts = browser.js("return [...document.querySelectorAll('.thumb img')].map((e) => e.alt)")
    assert {seen_as(name) for name in hostile_names()} == {alt.rpartition(", confidence ")[0] for alt in alts}
    for name in hostile_names():  # each one in the viewer, and in the map's card
        row = browser.js(
            "return data.file.findIndex((f, i) => data.folders[data.folder[i]] + f === arguments[0])", seen_as(name)
        )
        assert row >= 0
        browser.js("document.querySelector(`.thumb[data-row='${arguments[0]}']`).click()", row)
        assert browser.js("return document.querySelector('#viewer-path bdi').textContent") == seen_as(name)
        browser.js("document.getElementById('viewer').close()")
    browser.js("document.getElementById('stage').scrollIntoView({block: 'center'})")
    for i in range(60):
        x, y = spot(browser, i)
        browser.js(
            "const c = document.getElementById('canvas'), b = c.getBoundingClientRect();"
            "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.x + b.width / 2 + arguments[0],"
            " clientY: b.y + b.height / 2 + arguments[1]}))",
            x,
            y,
        )
    assert text(page, "hover-path")
    assert browser.js("return window.pwned ?? null") is None
    assert browser.js("return getComputedStyle(document.body).display") == "block"
    titles = [h.text for h in page.find_elements(By.CSS_SELECTOR, ".card h3 bdi")]
    assert titles[0] == "<script>window.pwned='name'</script>"
    assert browser.js("return document.querySelector('.card:nth-child(2) h3 bdi').textContent") == "\u202eedis"
    assert browser.console() == []
