"""The map in a real browser: an image is found where it lies, by pointer and by keyboard, unless a filter hides it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, spot, text, until
from synthetic_run import Run, make_run, row_of, write

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed: pip install selenium").By
from selenium.webdriver import ActionChains, Keys  # noqa: E402  (only where selenium is there)


def loneliest(browser: Browser) -> int:
    """The image with the most room around it, so that no neighbour can be meant."""
    xy = np.array(browser.js("return [data.x, data.y]"), dtype=float).T
    far = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + np.eye(len(xy)) * 1e9
    return int(far.min(axis=1).argmax())


def path_of(browser: Browser, i: int) -> str:
    return browser.js("return data.folders[data.folder[arguments[0]]] + data.file[arguments[0]]", i)


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
    assert count() == sum(c == 4 for c, _ in rows)  # whatever the sliders had left out
    slide("at-most", 0.4)
    slide("at-least", 0.8)
    assert page.find_element(By.CSS_SELECTOR, "output[for='at-most']").text == "0.80"  # taken along, not crossed
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


WRITTEN = (
    "window.written = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
    "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {"
    "  window.written.push([text, x, y, this.measureText(text).width]); fill.call(this, text, x, y); };"
)


def test_the_zoom_buttons_cover_no_dot(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=8, k=2)  # so few lie on their principal axes
    corners = np.array([[x, y, 0.1] for x in (-1.0, 1.0) for y in (-0.9, 0.9)] * 2)
    np.save(
        run.folder / "embeddings.npy", (corners / np.linalg.norm(corners, axis=1, keepdims=True)).astype(np.float32)
    )
    page = browser.open(write(run), width=400)
    browser.js(
        "window.dots = []; const arc = CanvasRenderingContext2D.prototype.arc;"
        "CanvasRenderingContext2D.prototype.arc = function (x, y, ...rest) {"
        "  window.dots.push([x, y]); arc.call(this, x, y, ...rest); };"
    )
    page.find_element(By.ID, "zoom-reset").click()
    dots = until(lambda: browser.js("return window.dots"))
    on_top = browser.js(
        "const stage = document.getElementById('stage'); stage.scrollIntoView({block: 'center'});"
        "const { left, top } = stage.getBoundingClientRect();"
        "return arguments[0].map(([x, y]) => document.elementFromPoint(left + 1 + x, top + 1 + y)?.id)",
        dots,
    )
    assert on_top == ["canvas"] * 8


def test_names_on_the_map_stay_apart_and_inside(browser: Browser, run: Run) -> None:
    page = browser.open(run.folder / "report.html", width=400)
    browser.js(WRITTEN + "data.x.fill(5000); data.y.fill(10000)")  # every cluster at one spot at the lower edge
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))[:6]
    assert sorted(name for name, *_ in names) == [f"Cluster {c}" for c in range(6)]
    height = browser.js("return document.getElementById('stage').clientHeight")
    assert all(wide / 2 <= x <= 400 - wide / 2 and 12 < y < height for _, x, y, wide in names)
    for (_, x, y, wide), (_, other_x, other_y, other_wide) in itertools.combinations(names, 2):
        assert abs(y - other_y) >= 16 or abs(x - other_x) >= (wide + other_wide) / 2


def test_names_hide_no_dot_where_dots_are_few(page: Any, browser: Browser) -> None:
    browser.js(WRITTEN)
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))[:6]
    width, height = browser.js("const s = document.getElementById('stage'); return [s.clientWidth, s.clientHeight]")
    for i in range(180):
        x, y = spot(browser, i)
        for name, left, baseline, wide in names:
            beside = abs(x + width / 2 - left) > wide / 2
            assert beside or not baseline - 9 < y + height / 2 < baseline, (name, i)


STEEP = (
    "const ends = (v) => [Math.min(...v), Math.max(...v)], [west, east] = ends(data.x), [north, south] = ends(data.y);"
    "const rows = [...data.cluster.keys()].sort((a, b) => data.cluster[a] - data.cluster[b]), last = rows.length - 1;"
    "rows.forEach((i, place) => {"
    "  data.x[i] = place && place < last ? west + (east - west) * (0.4 + 0.2 * place / last) : place ? east : west;"
    "  data.y[i] = south + (north - south) * place / last; });"
)


def test_a_name_on_the_map_lies_nearest_to_its_own_cluster(page: Any, browser: Browser) -> None:
    browser.js(WRITTEN + STEEP)  # a cluster after the other up a steep line: above each lies the next
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))[:6]
    width, height = browser.js("const s = document.getElementById('stage'); return [s.clientWidth, s.clientHeight]")
    dots = np.array([spot(browser, i) for i in range(180)]) + np.array([width / 2, height / 2])
    cluster = browser.js("return data.cluster")
    for name, x, baseline, _ in names:
        nearest = int(np.hypot(*(dots - (x, baseline - 4)).T).argmin())
        assert f"Cluster {cluster[nearest]}" == name


def test_the_theme_is_not_asked_for_at_every_dot(page: Any, browser: Browser) -> None:
    browser.js(
        WRITTEN + "window.asked = 0; const media = matchMedia;"
        "window.matchMedia = (query) => { window.asked += 1; return media.call(window, query); }"
    )
    page.find_element(By.ID, "zoom-reset").click()
    until(lambda: browser.js("return window.written"))  # the names are the last to be painted
    assert browser.js("return window.asked") < 30  # of 180 dots


def test_of_many_clusters_the_few_that_are_shown_are_named(browser: Browser, many: Run) -> None:
    page = browser.open(many.folder / "report.html")
    browser.js("document.querySelector(`[data-show='17']`).click()")
    browser.js(WRITTEN)
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))
    assert {name for name, *_ in names} == {"Cluster 17"}


@pytest.mark.parametrize(("width", "least", "most"), [(1280, 20, 56), (400, 5, 18)])
def test_of_many_clusters_as_many_are_named_as_there_is_room_for(
    browser: Browser, many: Run, width: int, least: int, most: int
) -> None:
    page = browser.open(many.folder / "report.html", width=width)
    browser.js(WRITTEN)
    page.find_element(By.ID, "zoom-reset").click()
    names = until(lambda: browser.js("return window.written"))
    assert least <= len(names) <= most
    for (_, x, y, wide), (_, other_x, other_y, other_wide) in itertools.combinations(names, 2):
        assert abs(y - other_y) >= 16 or abs(x - other_x) >= (wide + other_wide) / 2


def test_a_picture_is_found_before_it_is_painted(page: Any, browser: Browser) -> None:
    x, y = spot(browser, loneliest(browser))
    browser.js(
        "document.querySelector('input[value=pictures]').click();"
        "const c = document.getElementById('canvas'), box = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent('pointermove', {"
        "  clientX: box.x + box.width / 2 + arguments[0], clientY: box.y + box.height / 2 + arguments[1] }))",
        x,
        y,
    )  # in one task: no frame between
    assert text(page, "hover-path")


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
