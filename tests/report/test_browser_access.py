"""The page for every reader: in both themes, on any width, by keyboard alone, and quickly with ten thousand images."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, until
from synthetic_run import Run, make_run, write

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed: pip install selenium").By
from selenium.webdriver import ActionChains, Keys  # noqa: E402  (only where selenium is there)


def test_the_theme_follows_the_system_and_the_button_and_lasts(browser: Browser, run: Run) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    file = run.folder / "report.html"
    page = browser.open(file)
    light = browser.js(ground)
    browser.open(file, dark=True)
    dark = browser.js(ground)
    assert light != dark
    button = page.find_element(By.ID, "theme")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert browser.js(ground) == light
    assert button.get_attribute("aria-pressed") == "false"
    # The choice outlives the page. The browser hands its storage from one process to the next in its own time.
    until(lambda: browser.open(file, dark=True, keep=True) and browser.js(ground) == light)
    page.find_element(By.ID, "theme").click()
    assert browser.js(ground) == dark


CONTRAST = """
const ink = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (css) => {
  ink.clearRect(0, 0, 1, 1);
  ink.fillStyle = css;
  ink.fillRect(0, 0, 1, 1);
  return [...ink.getImageData(0, 0, 1, 1).data];
};
const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const weak = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement;
  const words = walker.currentNode.data.trim();
  if (!words || !e.checkVisibility({opacityProperty: true})) continue;
  if (e.closest('script, style, .hidden, .skip, svg title')) continue;
  const style = getComputedStyle(e);
  const front = rgba(e.closest('svg') ? style.fill : style.color);
  let at = e, back = [255, 255, 255, 0];
  for (; at; at = at.parentElement) { back = rgba(getComputedStyle(at).backgroundColor); if (back[3] > 180) break; }
  const [a, b] = [light(front), light(back)].sort((p, q) => q - p), ratio = (a + 0.05) / (b + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 600);
  if (ratio < (large ? 3 : 4.5)) weak.push([e.tagName, `${e.className}`, words.slice(0, 30), ratio.toFixed(2)]);
}
return weak;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_has_contrast(browser: Browser, run: Run, dark: bool) -> None:
    browser.open(run.folder / "report.html", dark=dark)
    browser.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert browser.js(CONTRAST) == []
    browser.js(
        "document.documentElement.style.setProperty('--soft', light ? '#bbb' : '#444')".replace(
            "light", str(int(not dark))
        )
    )
    assert len(browser.js(CONTRAST)) > 20  # the measure sees a weak colour


@pytest.mark.parametrize("width", [400, 700, 1280])
def test_nothing_sticks_out(browser: Browser, hostile: Run, width: int) -> None:
    browser.open(hostile.folder / "report.html", width=width)
    browser.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    wide, content, room = browser.js(
        "const e = document.documentElement; return [innerWidth, e.scrollWidth, e.clientWidth]"
    )
    assert wide == width  # on a phone, content that sticks out makes the window wider
    assert content == room
    assert (
        browser.js("const t = document.querySelector('.skipped').parentElement; return t.scrollWidth - t.clientWidth")
        == 0
    )


@pytest.mark.parametrize("width", [400, 720, 764, 900])
def test_every_section_is_in_the_bar_or_the_bar_shows_that_there_are_more(
    browser: Browser, run: Run, width: int
) -> None:
    browser.open(run.folder / "report.html", width=width)
    hidden, fades, left = browser.js(
        "const nav = document.querySelector('.top nav');"
        "return [nav.scrollWidth - nav.clientWidth, getComputedStyle(nav).maskImage !== 'none',"
        " nav.querySelector('a').getBoundingClientRect().left - nav.getBoundingClientRect().left]"
    )
    assert fades or hidden <= 0
    assert left >= 0  # the first is whole


def test_the_maps_help_is_for_the_hand_at_work(browser: Browser, run: Run) -> None:
    words = "return document.getElementById('map-help').innerText"
    browser.open(run.folder / "report.html")
    assert "arrow keys" in browser.js(words)
    browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    browser.open(run.folder / "report.html", width=400)
    told = browser.js(words)
    browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert told.startswith("Tap an image")
    assert "keyboard" not in told


def test_short_titles_stand_above_their_columns(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=60, k=3)
    browser.open(write(run, run.labels, ["0", "1", "22"]))
    middles = browser.js(
        "const middle = (e) => { const r = document.createRange(); r.selectNodeContents(e);"
        "  const box = r.getBoundingClientRect(); return (box.left + box.right) / 2; };"
        "const table = [...document.querySelectorAll('.heat')].at(-1);"
        "const cells = [...table.querySelector('tbody tr').querySelectorAll('td')];"
        "return [...table.querySelectorAll('thead bdi')].map((e, i) => middle(e) - middle(cells[i]))"
    )
    assert max(map(abs, middles)) < 2


def test_a_cluster_that_is_mostly_unsure_stands_out(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=60, k=3)
    table = run.folder / "assignments.csv"
    table.write_text(
        "\n".join(line.replace(",ok", ",unsure") if ",1,," in line else line for line in table.read_text().splitlines())
    )
    browser.open(write(run))
    colours = browser.js(
        "return [0, 1].map((c) => getComputedStyle([...document.querySelectorAll(`#cluster-${c} .facts > span`)].at(-1)).color)"
    )
    assert colours[0] != colours[1]
    assert browser.js(CONTRAST) == []


@pytest.mark.parametrize("width", [400, 900, 1120, 1280])
def test_twelve_clusters_at_a_glance_keep_their_names(browser: Browser, many: Run, width: int) -> None:
    browser.open(many.folder / "report.html", width=width)
    names = "return [...document.querySelectorAll('.faces bdi')].map((e) => e.scrollWidth - e.clientWidth)"
    assert browser.js(names) == [0] * 12
    strip = "return [...document.querySelectorAll('.strip, .strip span')].map((e) => e.getBoundingClientRect().width)"
    whole, *parts = browser.js(strip)
    assert sum(parts) == pytest.approx(whole, abs=1)  # all of it shows sizes


def test_paper_is_white_whatever_the_screen_is_and_keeps_the_colours_that_tell_something(
    browser: Browser, run: Run
) -> None:
    browser.open(run.folder / "report.html", width=800, media="print")
    browser.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    look = (
        "return [getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.swatch')).printColorAdjust,"
        "[...document.querySelectorAll('button:not(.thumb), #map-help')].filter((e) => e.checkVisibility()).length,"
        "[...document.querySelectorAll('.scroll, pre')].filter((e) => getComputedStyle(e).overflowX !== 'visible' &&"
        " e.scrollWidth > e.clientWidth).length]"
    )
    words = browser.js(look)
    assert words[1:] == ["exact", 0, 0]  # no control that paper cannot press, nothing cut off
    lenses = "return [...document.querySelectorAll('.segments label')].filter((e) => e.checkVisibility()).map((e) => e.innerText)"
    assert browser.js(lenses) == ["Most typical"]  # or nobody could say which pictures these are
    assert "type yours" not in browser.js("return document.getElementById('clusters').innerText")  # not on paper
    canvas = "return document.getElementById('canvas').toDataURL()"
    light = browser.js(canvas)
    browser.js("document.documentElement.dataset.theme = 'dark'; document.dispatchEvent(new Event('themechange'))")
    assert browser.js(look) == words
    until(lambda: browser.js(canvas) != light)
    browser.js("dispatchEvent(new Event('beforeprint'))")
    assert browser.js(canvas) == light
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js(canvas) != light


def test_headings_and_what_they_introduce_share_few_sheets_of_paper(browser: Browser, run: Run) -> None:
    browser.open(run.folder / "report.html")
    pdf = base64.b64decode(
        browser.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    )
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 4 < sheets < 9  # 9 where tables left the page of their heading, and each card had the whole width


def test_forced_colours_show_what_is_chosen(browser: Browser, run: Run) -> None:
    browser.open(run.folder / "report.html", forced=True)
    chosen, ground = browser.js(
        "return ['#lens-typical + span', 'body'].map((e) => getComputedStyle(document.querySelector(e)).backgroundColor)"
    )
    assert chosen != ground
    edges = "return [...document.querySelectorAll('.faces img')].map((e) => getComputedStyle(e).borderBottomColor)"
    assert len(set(browser.js(edges))) == 6  # colours that tell clusters apart stay


@pytest.mark.parametrize("section", ["clusters", "map", "training", "disagreement", "scores", "details"])
def test_a_link_leads_to_its_heading_and_is_marked(browser: Browser, many: Run, section: str) -> None:
    link = browser.open(many.folder / "report.html", height=1000).find_element(By.CSS_SELECTOR, f"a[href='#{section}']")
    link.click()
    until(lambda: link.get_attribute("aria-current") == "true")
    browser.driver.execute_async_script(
        "setTimeout(arguments[0], 300)"
    )  # what comes into sight may still grow or shrink
    top = browser.js("return document.getElementById(arguments[0]).getBoundingClientRect().top", f"{section}-title")
    assert 57 <= top < 1000  # under the bar that stays, and in sight


def test_tab_reaches_every_control_once(page: Any, browser: Browser) -> None:
    seen = []
    browser.js("document.activeElement.blur()")
    for _ in range(200):
        ActionChains(page).send_keys(Keys.TAB).perform()
        tag = browser.js(
            "const e = document.activeElement; return e === document.body ? null : e.id || e.className || e.tagName"
        )
        if tag is None:
            break
        seen.append(tag)
    for wanted in ("skip", "theme", "order", "canvas", "zoom-in", "at-least", "at-most", "all-clusters"):
        assert seen.count(wanted) == 1, wanted
    assert seen.count("thumb") == 6  # one stop per gallery, arrows inside
    assert seen.index("theme") < seen.index("order") < seen.index("canvas") < seen.index("at-least")


@pytest.mark.parametrize("kind", [pytest.param("shapes", marks=pytest.mark.slow), "noise"])
def test_ten_thousand_images_fit_and_open_quickly(
    browser: Browser, tmp_path: Path, kind: str, without_tsne: None
) -> None:
    run = make_run(tmp_path / "big", n=10_000, k=10, side=64)
    if kind == "noise":  # nothing compresses worse
        run.images[:] = np.random.default_rng(0).integers(0, 256, size=run.images.shape, dtype=np.uint8)
    written = write(run, run.labels)
    size = written.stat().st_size / 1e6
    page = browser.driver
    page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.open(written)
    loaded = browser.js("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    metrics = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    work = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    page.execute_cdp_cmd("Performance.disable", {})
    print(f"{kind}: {size:.1f} MB, {work:.2f} s of work, loaded in {loaded:.2f} s")
    assert size < 15
    assert work < 1  # seconds of processor time, whatever else this machine is doing
    assert loaded < 2 or os.getloadavg()[0] > (os.cpu_count() or 1)
    assert browser.console() == []
