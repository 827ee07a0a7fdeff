"""Cards, viewer and charts in a real browser: the pictures and numbers of the run, and controls that do what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, text, until
from synthetic_run import Run, make_run, row_of, write

from concurl.report.facts import RunFacts
from concurl.runs.clusternames import read_names

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed: pip install selenium").By
from selenium.webdriver import ActionChains, Keys  # noqa: E402  (only where selenium is there)

SHOWN = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility())"


def test_the_lens_changes_the_pictures_of_every_cluster(page: Any, browser: Browser, run: Run) -> None:
    def visible() -> list[str]:
        return [e.get_attribute("data-lens") for e in browser.js(SHOWN, ".lens")]

    assert visible() == ["typical"] * 6
    page.find_element(By.CSS_SELECTOR, "#lens-unsure + span").click()
    assert visible() == ["unsure"] * 6
    (said,) = browser.js(SHOWN + ".map((e) => e.textContent)", ".about-lens")
    assert "lowest confidence" in said
    for cluster in range(6):
        lowest = sorted(float(r["confidence"]) for r in run.rows() if r["cluster"] == str(cluster))[:12]
        seen = browser.js(SHOWN + ".map((e) => e.textContent)", f"#cluster-{cluster} .chip")
        assert seen == [f"{value:.3f}" for value in lowest]
    page.find_element(By.ID, "lens-unsure").send_keys(Keys.ARROW_RIGHT)  # a radio group, by keyboard
    assert visible() == ["random"] * 6


def test_all_images_of_a_cluster_lie_in_one_grid_the_surest_first(page: Any, browser: Browser, run: Run) -> None:
    button = page.find_element(By.CSS_SELECTOR, "[data-all='2']")
    button.click()
    assert button.get_property("textContent") == "Show fewer: Cluster 2"
    assert button.get_attribute("aria-expanded") == "true"
    mine = {row["path"]: float(row["confidence"]) for row in run.rows() if row["cluster"] == "2"}
    assert len(mine) > 12  # more than the galleries show
    thumbs = browser.js(SHOWN, "#cluster-2 .thumb")
    told = [thumb.accessible_name.rsplit(", confidence ", 1) for thumb in thumbs]
    assert sorted(path for path, _ in told) == sorted(mine)
    assert all(sure == f"{mine[path]:.3f}" for path, sure in told)
    assert [sure for _, sure in told] == sorted((sure for _, sure in told), reverse=True)
    assert browser.console() == []
    mean = (
        "const c = arguments[0].querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return [0, 1, 2].map((k) => d.filter((_, i) => i % 4 === k).reduce((a, b) => a + b, 0) * 4 / d.length)"
    )
    until(lambda: max(browser.js(mean, thumbs[-1])) > 0)
    for thumb, (path, _) in zip(thumbs, told, strict=True):
        i, _ = row_of(run, path)
        assert np.abs(run.images[i].mean(axis=(1, 2)) - browser.js(mean, thumb)).max() < 6
    assert [thumb.get_attribute("tabindex") for thumb in thumbs] == ["0"] + ["-1"] * (len(thumbs) - 1)
    thumbs[0].send_keys(Keys.ARROW_RIGHT)
    assert browser.driver.switch_to.active_element == thumbs[1]
    thumbs[1].click()
    assert text(page, "viewer-path") == told[1][0]
    assert page.find_element(By.ID, "viewer-picture").is_displayed()
    page.find_element(By.ID, "viewer-on").click()
    assert text(page, "viewer-path") == told[2][0]
    page.find_element(By.ID, "viewer-close").click()
    button.click()
    assert button.get_property("textContent") == "Show all: Cluster 2"
    assert len(browser.js(SHOWN, "#cluster-2 .thumb")) == 12


def test_a_fourth_check_takes_no_row_of_its_own(browser: Browser, tmp_path: Path) -> None:
    long = "this one is long: " + "it goes on and on, " * 20
    run = make_run(tmp_path / "r", n=120, k=3, warnings=[long, "two", "three", "four"])
    browser.open(write(run))
    first, *_, fourth = browser.js(
        "return [...document.querySelector('.checks').children].map((e) => e.getBoundingClientRect().toJSON())"
    )
    assert fourth["top"] < first["bottom"]  # or the pictures would be pushed off the first screen


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


def test_names_typed_on_the_cards_are_saved_as_the_names_json_that_report_reads(
    browser: Browser, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "r", n=120, k=3)
    names = run.folder / "names.json"
    names.write_text(json.dumps({"1": "cats", "2": 'a "quoted" </script> name'}))
    page = browser.open(write(run))
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path / "downloads")}
    )
    fields = page.find_elements(By.CSS_SELECTOR, ".own-name")
    assert [field.get_attribute("value") for field in fields] == ["", "cats", 'a "quoted" </script> name']
    assert not page.find_element(By.ID, "unsaved").is_displayed()
    fields[0].send_keys("x", Keys.BACKSPACE)
    assert not page.find_element(By.ID, "unsaved").is_displayed()  # nothing has changed
    fields[0].send_keys("  birds ")
    places = "return [...document.querySelectorAll('[data-name=\"0\"]')].map((e) => e.textContent)"
    assert set(browser.js(places)) == {"birds"}  # the card, the map's legend, the pairs that are mixed up
    heads = "return [...document.querySelectorAll('.heat th')].map((e) => e.textContent)"
    assert browser.js(heads).count("birds") == 2  # as row and as column
    assert page.find_element(By.CSS_SELECTOR, "#cluster-0 h3").text == "birds Cluster 0"  # the number that the csv has
    assert browser.js("return data.names[0]") == "birds"  # for the map
    assert browser.js("return document.querySelector('.faces a').innerText").split() == [
        "birds",
        *browser.js("return document.querySelector('.faces .n').textContent").split(),
    ]
    browser.js("document.querySelector('[data-chart=sizes] svg').dispatchEvent(new PointerEvent('pointermove'))")
    assert "birds" in text(page, "tip")
    fields[1].send_keys(Keys.CONTROL, "a", Keys.NULL, "birds")
    assert browser.js("return data.names.slice(0, 2)") == ["birds (0)", "birds (1)"]  # as report would write them
    fields[1].send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    leaving = "return !dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert browser.js(leaving)  # the browser asks before they are lost
    page.find_element(By.ID, "save-names").click()
    saved = tmp_path / "downloads" / "names.json"
    until(lambda: saved.exists() and saved.stat().st_size)
    assert read_names(saved) == {0: "birds", 2: 'a "quoted" </script> name'}
    assert "concurl report" in text(page, "names-said")
    assert not browser.js(leaving)
    names.write_bytes(saved.read_bytes())
    assert RunFacts.read(run.folder).names == ("birds", "Cluster 1", 'a "quoted" </script> name')
    assert browser.console() == []


@pytest.mark.parametrize("epochs", [40, 1000, 12_000])
def test_the_numbers_of_an_axis_stand_apart(browser: Browser, tmp_path: Path, epochs: int) -> None:
    run = make_run(tmp_path / "r", n=20, k=2, epochs=epochs)
    browser.open(write(run), width=800)
    gaps = browser.js(
        "return [...document.querySelectorAll('.chart svg')].flatMap((svg) => {"
        "  const low = svg.querySelector('.axis').getAttribute('y');"
        "  const boxes = [...svg.querySelectorAll(`text[y='${low}']`)].map((e) => e.getBoundingClientRect());"
        "  boxes.sort((a, b) => a.left - b.left);"
        "  return boxes.slice(1).map((box, i) => box.left - boxes[i].right); })"
    )
    assert min(gaps) > 10
    axis = browser.js(
        "const svg = document.querySelector('[data-chart=l1] svg'), low = svg.querySelector('.axis').getAttribute('y');"
        "return [...svg.querySelectorAll(`text[y='${low}']`)].map((e) => e.textContent)"
    )
    assert (axis[0], axis[-1]) == ("1", f"epoch {epochs:,}")
    steps = np.diff([float(text.replace(",", "")) for text in axis[1:-1]])
    assert len(set(steps)) == 1  # none is left out in the middle


def test_a_name_from_right_to_left_keeps_its_beginning_where_it_is_cut(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=40, k=2)
    (run.folder / "names.json").write_text(json.dumps({"0": "\u05e9\u05dc\u05d5\u05dd " * 12, "1": "cats " * 12}))
    browser.open(write(run))
    # the first letter lies inside what its cell shows
    inside = browser.js(
        "return [...document.querySelectorAll('.heat th bdi')].map((e) => {"
        "  const range = document.createRange(); range.setStart(e.firstChild, 0); range.setEnd(e.firstChild, 1);"
        "  const letter = range.getBoundingClientRect(), cell = e.closest('th').getBoundingClientRect();"
        "  return letter.left >= cell.left - 1 && letter.right <= cell.right + 1 &&"
        "    letter.top >= cell.top - 1 && letter.bottom <= cell.bottom + 1; })"
    )
    assert inside == [True] * 4


def test_an_empty_cluster_is_not_the_least_sure_and_thirty_columns_fit(browser: Browser, many: Run) -> None:
    from selenium.webdriver.support.select import Select

    page = browser.open(many.folder / "report.html")
    Select(page.find_element(By.ID, "order")).select_by_value("sure")
    cards = browser.js("return [...document.querySelectorAll('.card')].map((e) => [e.dataset.sure, e.dataset.cluster])")
    assert cards[-1][1] == "59"
    assert [float(sure) for sure, _ in cards[:-1]] == sorted(float(sure) for sure, _ in cards[:-1])
    assert (
        browser.js("const t = document.querySelector('.dense').parentElement; return t.scrollWidth - t.clientWidth")
        == 0
    )


def test_the_viewer_tells_the_rows_numbers_and_turns_by_keyboard(page: Any, browser: Browser, run: Run) -> None:
    thumbs = browser.js(SHOWN, "#cluster-2 .thumb")
    paths = [t.find_element(By.TAG_NAME, "img").get_attribute("alt").split(",")[0] for t in thumbs]
    thumbs[0].send_keys(Keys.ARROW_RIGHT)
    assert page.switch_to.active_element == thumbs[1]
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert text(page, "viewer-path") == paths[1]
    _, row = row_of(run, paths[1])
    facts = [dd.text for dd in page.find_elements(By.CSS_SELECTOR, "#viewer-facts dd")]
    numbers = [f"{float(row[k]):.3f}" for k in ("confidence", "margin", "agreement", "outlier")]
    i = browser.js("return Number(arguments[0].dataset.row)", thumbs[1])
    other = browser.js("return data.next[arguments[0]]", i)
    assert facts == [*numbers, row["status"], f"Cluster {other}"]
    assert other != 2
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert text(page, "viewer-path") == paths[2]
    assert page.find_element(By.ID, "viewer-path").get_attribute("aria-live") == "polite"  # or turning is silent
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.js("return document.getElementById('viewer').open")
    assert page.switch_to.active_element == thumbs[1]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_path_of_an_image_can_be_copied(page: Any, browser: Browser, allowed: bool) -> None:
    browser.js(
        "Object.defineProperty(navigator, 'clipboard', { value: {"
        "  writeText: async (text) => { if (!arguments[0]) throw new Error(); window.copied = text; } } })".replace(
            "arguments[0]", str(allowed).lower()
        )
    )
    thumb = browser.js(SHOWN, "#cluster-1 .thumb")[0]
    path = thumb.find_element(By.TAG_NAME, "img").get_attribute("alt").split(",")[0]
    thumb.click()
    page.find_element(By.ID, "copy-path").click()
    assert until(lambda: text(page, "copy-path")) == ("Copied" if allowed else "Selected")
    assert browser.js("return window.copied ?? getSelection().toString()") == path
    page.find_element(By.ID, "viewer-on").click()
    assert text(page, "copy-path") == "Copy path"  # of the next image, which is not copied yet


def test_numbers_under_the_pointer_on_a_chart(page: Any, browser: Browser, run: Run) -> None:
    chart = page.find_element(By.CSS_SELECTOR, "[data-chart=l1] svg")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", chart)
    width = chart.rect["width"]
    ActionChains(page).move_to_element_with_offset(chart, round(width * (348 / 360 - 0.5)), 0).perform()
    tip = until(lambda: text(page, "tip"))
    assert tip.split("\n")[0] == "Epoch 40"
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert float(tip.split()[-1]) == pytest.approx(last["l1"], abs=1e-4)
    browser.js("document.querySelector('[data-chart=l2] svg').dispatchEvent(new PointerEvent('pointermove'))")
    assert text(page, "tip").split()[1] == "13"  # left of its first epoch: an epoch without a value would tell nothing
