"""The browser, started once, and pages that several tests look at."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from synthetic_run import Run, hostile_names, make_run, write

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900"
)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """180 shapes in 6 clusters with a written page."""
    made = make_run(tmp_path_factory.mktemp("run") / "shapes")
    write(made, made.labels, [f"kind {c}" for c in range(6)])
    return made


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """60 hostile names in 6 clusters, few enough for the galleries to show every one."""
    made = make_run(tmp_path_factory.mktemp("hostile") / "<b>run", n=60, names=hostile_names())
    names = {
        "0": "<script>window.pwned='name'</script>",
        "1": "\u202eedis",
        "2": '"quoted"',
        "3": "\ud800lone",
        "4": "x" * 200,
        "5": "long " * 40,
    }
    (made.folder / "names.json").write_text(json.dumps(names))
    (made.folder / "skipped.csv").write_text(f"path,status,reason\n{'y' * 240},duplicate,the same as {'x' * 240}\n")
    write(made, made.labels, ["</td><script>window.pwned='class'</script>"])
    return made


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """60 clusters, the last of them empty."""
    made = make_run(tmp_path_factory.mktemp("many") / "many", n=600, k=60)
    table = made.folder / "assignments.csv"
    table.write_text(table.read_text().replace(",59,", ",0,"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "openTSNE", None)  # its map takes seconds
        write(made)
    return made


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    selenium = pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not chromium or not driver:
        absent = pytest.fail if "CONCURL_REQUIRE_BROWSER" in os.environ else pytest.skip
        absent("chromium and chromedriver are not installed: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    assert selenium
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield Browser(chrome)
    chrome.quit()


@pytest.fixture
def page(browser: Browser, run: Run) -> Any:
    return browser.open(run.folder / "report.html")


@pytest.fixture
def without_tsne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)


@pytest.fixture
def page_of(without_tsne: None, tmp_path: Path) -> Callable[..., str]:
    """page_of(run, **arguments): the page's text, with the quick map."""

    def make(run: Run, **named: Any) -> str:
        return write(run, output=tmp_path / "page.html", **named).read_text(encoding="utf-8")

    return make
