"""The page in a real browser: quiet console, silent network, and every control does what it says."""

from __future__ import annotations

import http.server
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import Run, hostile_names, make_run
from test_page import expected

from concurl.report import write_report
from conftest import Browser

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed: pip install selenium").By
from selenium.webdriver import ActionChains, Keys  # noqa: E402  (only where selenium is there)

SHOWN = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility())"


@pytest.fixture
def page(browser: Browser, run: Run) -> Any:
    return browser.open(run.folder / "report.html")


def until(true: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    return found


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


def loneliest(browser: Browser) -> int:
    """The image with the most room around it, so that no neighbour can be meant."""
    xy = np.array(browser.js("return [data.x, data.y]"), dtype=float).T
    far = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + np.eye(len(xy)) * 1e9
    return int(far.min(axis=1).argmax())


def path_of(browser: Browser, i: int) -> str:
    return browser.js("return data.folders[data.folder[arguments[0]]] + data.file[arguments[0]]", i)


def row_of(run: Run, path: str) -> tuple[int, dict[str, str]]:
    return next((i, row) for i, row in enumerate(run.rows()) if row["path"] == path)


def text(page: Any, name: str) -> str:
    return page.find_element(By.ID, name).text


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
    assert {expected(name) for name in hostile_names()} == {alt.rpartition(", confidence ")[0] for alt in alts}
    for name in hostile_names():  # each one in the viewer, and in the map's card
        row = browser.js(
            "return data.file.findIndex((f, i) => data.folders[data.folder[i]] + f === arguments[0])", expected(name)
        )
        assert row >= 0
        browser.js("document.querySelector(`.thumb[data-row='${arguments[0]}']`).click()", row)
        assert browser.js("return document.querySelector('#viewer-path bdi').textContent") == expected(name)
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
    titles = [h.text for h in page.find_elements(By.CSS_SELECTOR, ".card h3")]
    assert titles[0] == "<script>window.pwned='name'</script>"
    assert browser.js("return document.querySelector('.card:nth-child(2) h3 bdi').textContent") == "\u202eedis"
    assert browser.console() == []


def test_the_lens_changes_the_pictures_of_every_cluster(page: Any, browser: Browser, run: Run) -> None:
    def visible() -> list[str]:
        return [e.get_attribute("data-lens") for e in browser.js(SHOWN, ".lens")]

    assert visible() == ["typical"] * 6
    page.find_element(By.CSS_SELECTOR, "#lens-unsure + span").click()
    assert visible() == ["unsure"] * 6
    for cluster in range(6):
        lowest = sorted(float(r["confidence"]) for r in run.rows() if r["cluster"] == str(cluster))[:12]
        seen = browser.js(SHOWN + ".map((e) => e.textContent)", f"#cluster-{cluster} .chip")
        assert seen == [f"{value:.3f}" for value in lowest]
    page.find_element(By.ID, "lens-unsure").send_keys(Keys.ARROW_RIGHT)  # a radio group, by keyboard
    assert visible() == ["random"] * 6


def test_pictures_show_the_right_image(page: Any, browser: Browser, run: Run) -> None:
    means = browser.js(
        "const ink = document.createElement('canvas').getContext('2d', {willReadFrequently: true});"
        "return [...document.querySelectorAll('[data-lens=typical] .thumb img')].slice(0, 24).map((img) => {"
        "  ink.canvas.width = ink.canvas.height = 1; ink.imageSmoothingQuality = 'high';"
        "  const s = 40; ink.canvas.width = ink.canvas.height = s; ink.drawImage(img, 0, 0, s, s);"
        "  const d = ink.getImageData(0, 0, s, s).data; let m = [0, 0, 0];"
        "  for (let i = 0; i < d.length; i += 4) for (let c = 0; c < 3; c++) m[c] += d[i + c] / (s * s);"
        "  return [img.alt.split(',')[0], m]; })"
    )
    for path, mean in means:
        i, _ = row_of(run, path)
        assert np.abs(run.images[i].mean(axis=(1, 2)) - mean).max() < 6


def test_the_order_of_the_cards(page: Any, browser: Browser, run: Run) -> None:
    from selenium.webdriver.support.select import Select

    sizes = np.bincount([int(row["cluster"]) for row in run.rows()])
    Select(page.find_element(By.ID, "order")).select_by_value("size")
    cards = browser.js("return [...document.querySelectorAll('.card')].map((e) => Number(e.dataset.cluster))")
    assert [sizes[c] for c in cards] == sorted(sizes, reverse=True)
    Select(page.find_element(By.ID, "order")).select_by_value("cluster")
    assert browser.js("return [...document.querySelectorAll('.card')].map((e) => e.dataset.cluster)") == list("012345")


def test_the_viewer_tells_the_rows_numbers_and_turns_by_keyboard(page: Any, browser: Browser, run: Run) -> None:
    thumbs = browser.js(SHOWN, "#cluster-2 .thumb")
    paths = [t.find_element(By.TAG_NAME, "img").get_attribute("alt").split(",")[0] for t in thumbs]
    thumbs[0].send_keys(Keys.ARROW_RIGHT)
    assert page.switch_to.active_element == thumbs[1]
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert text(page, "viewer-path") == paths[1]
    _, row = row_of(run, paths[1])
    facts = [dd.text for dd in page.find_elements(By.CSS_SELECTOR, "#viewer-facts dd")]
    assert facts == [f"{float(row[k]):.3f}" for k in ("confidence", "margin", "agreement", "outlier")] + [row["status"]]
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert text(page, "viewer-path") == paths[2]
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.js("return document.getElementById('viewer').open")
    assert page.switch_to.active_element == thumbs[1]


def test_hover_shows_thumbnail_path_and_confidence(page: Any, browser: Browser, run: Run) -> None:
    browser.js("document.getElementById('stage').scrollIntoView({block: 'center'})")
    i = loneliest(browser)
    x, y = spot(browser, i)
    canvas = page.find_element(By.ID, "canvas")
    assert not page.find_element(By.ID, "hovercard").is_displayed()
    ActionChains(page).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    assert until(lambda: text(page, "hover-path")) == path_of(browser, i)
    row, facts = row_of(run, path_of(browser, i))
    assert text(page, "hover-cluster") == f"Cluster {facts['cluster']}"
    assert text(page, "hover-sure") == f"confidence {float(facts['confidence']):.3f}"

    def mean() -> list[float] | None:
        pixels = browser.js(
            "const c = document.getElementById('hover-picture');"
            "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
        )
        return np.array(pixels).reshape(-1, 4)[:, :3].mean(axis=0).tolist() if any(pixels) else None

    assert np.abs(run.images[row].mean(axis=(1, 2)) - until(mean)).max() < 8
    ActionChains(page).move_to_element(page.find_element(By.ID, "map-title")).perform()
    until(lambda: not page.find_element(By.ID, "hovercard").is_displayed())


def test_the_map_by_keyboard(page: Any, browser: Browser) -> None:
    canvas = page.find_element(By.ID, "canvas")
    page.find_element(By.ID, "theme").send_keys(Keys.TAB)  # the keyboard is in use: focus is visible
    browser.js("arguments[0].focus({focusVisible: true})", canvas)
    first = until(lambda: text(page, "hover-path"))
    seen = [first]
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_LEFT):
        canvas.send_keys(key)
        seen.append(text(page, "hover-path"))
    assert len(set(seen)) >= 4
    x = browser.js(
        "return arguments[0].map((p) => data.x[data.file.findIndex((f, i) => data.folders[data.folder[i]] + f === p)])",
        seen,
    )
    assert x[0] < x[1] < x[2]
    said = browser.js("return document.getElementById('map-said').textContent")
    assert said.startswith(seen[-1]) and "confidence" in said  # noqa: PT018
    canvas.send_keys(Keys.ENTER)
    assert text(page, "viewer-path") == seen[-1]
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    canvas.send_keys(Keys.ESCAPE)
    assert not page.find_element(By.ID, "hovercard").is_displayed()


def test_filters_by_cluster_and_confidence(page: Any, browser: Browser, run: Run) -> None:
    def count() -> int:
        return int(text(page, "map-count").split()[0])

    def slide(name: str, value: float) -> None:
        browser.js(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))",
            name,
            value,
        )

    rows = [(int(r["cluster"]), float(r["confidence"])) for r in run.rows()]
    assert count() == 180
    slide("at-least", 0.7)
    assert count() == sum(sure >= 0.7 for _, sure in rows)
    slide("at-most", 0.9)
    assert count() == sum(0.7 <= sure <= 0.9 for _, sure in rows)
    page.find_element(By.CSS_SELECTOR, ".chips input[value='3']").click()
    assert count() == sum(0.7 <= sure <= 0.9 and c != 3 for c, sure in rows)
    page.find_element(By.ID, "no-clusters").click()
    assert count() == 0
    page.find_element(By.CSS_SELECTOR, "[data-show='4']").click()
    slide("at-least", 0)
    slide("at-most", 1)
    assert count() == sum(c == 4 for c, _ in rows)
    page.find_element(By.ID, "at-least").send_keys(Keys.END)
    assert page.find_element(By.CSS_SELECTOR, "output[for='at-least']").text == "1.00"
    page.find_element(By.ID, "all-clusters").click()
    page.find_element(By.ID, "at-least").send_keys(Keys.HOME)
    assert count() == 180


def test_a_filtered_image_is_neither_drawn_in_colour_nor_found(page: Any, browser: Browser) -> None:
    browser.js("document.getElementById('stage').scrollIntoView({block: 'center'})")
    i = loneliest(browser)
    x, y = spot(browser, i)
    canvas = page.find_element(By.ID, "canvas")
    colourful = (
        "const c = document.getElementById('canvas'), r = c.width / c.clientWidth;"
        "const x = Math.round(c.width / 2 + arguments[0] * r), y = Math.round(c.height / 2 + arguments[1] * r);"
        "return c.getContext('2d').getImageData(x, y, 1, 1).data[3] > 128"
    )
    assert until(lambda: browser.js(colourful, x, y))
    cluster = browser.js("return data.cluster[arguments[0]]", i)
    page.find_element(By.CSS_SELECTOR, f".chips input[value='{cluster}']").click()
    until(lambda: not browser.js(colourful, x, y))
    browser.js("document.getElementById('stage').scrollIntoView({block: 'center'})")
    ActionChains(page).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    assert text(page, "hover-path") != path_of(browser, i)


def test_names_on_the_map_stay_apart_and_inside(browser: Browser, run: Run) -> None:
    page = browser.open(run.folder / "report.html", width=400)
    browser.js(
        "window.written = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {"
        "  window.written.push([text, x, y, this.measureText(text).width]); fill.call(this, text, x, y); };"
        "data.x.fill(5000); data.y.fill(10000)"  # every cluster at one spot at the lower edge
    )
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))[:6]
    assert sorted(name for name, *_ in names) == [f"Cluster {c}" for c in range(6)]
    height = browser.js("return document.getElementById('stage').clientHeight")
    lines = sorted(y for _, _, y, _ in names)
    assert all(12 < y < height for y in lines)
    assert all(after - before >= 16 for before, after in itertools.pairwise(lines))


def test_pictures_on_the_map_and_zoom(page: Any, browser: Browser, run: Run) -> None:
    browser.js("document.getElementById('stage').scrollIntoView({block: 'center'})")
    i = loneliest(browser)
    x, y = spot(browser, i)
    page.find_element(By.CSS_SELECTOR, "input[value=pictures] + span").click()
    canvas = page.find_element(By.ID, "canvas")
    ActionChains(page).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    assert until(lambda: text(page, "hover-path"))
    page.find_element(By.CSS_SELECTOR, "input[value=dots] + span").click()
    page.find_element(By.ID, "zoom-in").click()
    browser.js("document.getElementById('canvas').dispatchEvent(new PointerEvent('pointerleave'))")
    if max(abs(x), abs(y)) * 1.6 < 280:  # still on the stage: there, and only there, it is found
        ActionChains(page).move_to_element_with_offset(canvas, round(1.6 * x), round(1.6 * y)).perform()
        assert until(lambda: text(page, "hover-path")) == path_of(browser, i)
    page.find_element(By.ID, "zoom-reset").click()
    ActionChains(page).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    assert until(lambda: text(page, "hover-path")) == path_of(browser, i)
    assert browser.console() == []


def test_numbers_under_the_pointer_on_a_chart(page: Any, browser: Browser, run: Run) -> None:
    chart = page.find_element(By.CSS_SELECTOR, "[data-chart=l1] svg")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", chart)
    width = chart.rect["width"]
    ActionChains(page).move_to_element_with_offset(chart, round(width * (348 / 360 - 0.5)), 0).perform()
    tip = until(lambda: text(page, "tip"))
    assert tip.split("\n")[0] == "Epoch 40"
    import json

    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert float(tip.split()[-1]) == pytest.approx(last["l1"], abs=1e-4)


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
    browser.open(file, dark=True, keep=True)
    assert browser.js(ground) == light  # the choice outlives the page
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
    images = run.images
    if kind == "noise":  # nothing compresses worse
        images = np.random.default_rng(0).integers(0, 256, size=images.shape, dtype=np.uint8)
    written = write_report(run.folder, images, labels=run.labels)
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
