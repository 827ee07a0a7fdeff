"""Charts: what is drawn are the numbers, gaps are gaps, and the same is said in words."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic_run import make_run

from concurl.report.chart import Chart, Line, line_chart, share_chart
from concurl.report.curves import curves, numbers
from concurl.report.facts import RunFacts
from concurl.report.histogram import histogram

X = np.arange(1.0, 11.0)


def points(element: ElementTree.Element) -> np.ndarray:
    return np.array([[float(v) for v in point.split(",")] for point in element.attrib["points"].split()])


def drawn(chart: Chart | None, tag: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(str(chart.svg)).findall(tag)


def test_the_curve_goes_through_the_numbers() -> None:
    y = np.array([3.0, 2, 2.5, 1, 0.5, 0.4, 0.3, 0.2, 0.1, 0])
    (line,) = drawn(line_chart("k", "t", "n", X, [Line("a", y)]), "polyline")
    xy = points(line)
    # pixels are an affine image of the numbers: rightwards with x, upwards with y
    assert np.polyfit(X, xy[:, 0], 1)[0] > 0
    assert np.polyfit(y, xy[:, 1], 1)[0] < 0
    np.testing.assert_allclose(xy[:, 0], np.polyval(np.polyfit(X, xy[:, 0], 1), X), atol=0.1)
    np.testing.assert_allclose(xy[:, 1], np.polyval(np.polyfit(y, xy[:, 1], 1), y), atol=0.1)


def test_a_gap_in_the_log_is_a_gap_in_the_curve() -> None:
    y = np.array([math.nan, math.nan, 1, 2, math.nan, 3, math.nan, 4, 5, 6])
    lines = drawn(line_chart("k", "t", "n", X, [Line("a", y)]), "polyline")
    assert [len(points(line)) for line in lines] == [2, 2, 3]  # a lone point is drawn twice, as a dot
    assert line_chart("k", "t", "n", X, [Line("a", np.full(10, math.nan))]) is None


def test_a_lone_epoch_stands_over_its_number() -> None:
    chart = line_chart("k", "t", "n", X, [Line("a", np.array([math.nan] * 9 + [0.4]))])
    (dot,), number = drawn(chart, "polyline"), drawn(chart, "text")[-1]
    assert number.text == "epoch 10"
    assert points(dot)[0, 0] == float(number.attrib["x"])


def test_shares_are_stacked_to_the_top() -> None:
    shares = np.tile([0.2, 0.3, 0.5], (10, 1))
    polygons = drawn(share_chart("k", "t", "n", X, shares, "abc", ["red"] * 3), "polygon")
    heights = [np.ptp(points(polygon)[:, 1]) for polygon in polygons]
    np.testing.assert_allclose(np.array(heights) / sum(heights), [0.2, 0.3, 0.5], atol=0.01)
    assert points(polygons[0])[0, 1] == pytest.approx(points(polygons[1])[-1, 1])


def test_a_long_log_is_thinned_but_keeps_its_ends() -> None:
    x = np.arange(1.0, 5001.0)
    chart = line_chart("k", "t", "n", x, [Line("a", np.sqrt(x))])
    assert len(chart.data["x"]) <= 240
    assert chart.data["x"][0] == 1
    assert chart.data["x"][-1] == 5000


def test_words_for_those_who_do_not_see_it() -> None:
    chart = line_chart("k", "Loss", "n", X, [Line("a <b>", X / 10)], level=("ln 10", 0.7))
    label = ElementTree.fromstring(str(chart.svg)).attrib["aria-label"]
    assert label == "Loss. a <b>: from 0.1 at epoch 1 to 1 at epoch 10. Dashed level: ln 10."


def test_one_epoch_or_equal_values_draw_without_dividing_by_zero() -> None:
    chart = line_chart("k", "t", "n", np.array([3.0, 3.0]), [Line("a", np.zeros(2))])
    assert "nan" not in str(chart.svg)


def test_the_histogram_counts_every_value() -> None:
    values = np.array([0.0, 0.01, 0.5, 0.99, 1.0, math.nan])
    counts = [int(n) for n in re.findall(r"<title>(\d+) images?\b", str(histogram(values, "agreement")))]
    assert (len(counts), sum(counts), counts[0], counts[10], counts[19]) == (20, 5, 2, 1, 2)
    assert str(histogram(values, "agreement", low=0.5)).count('class="low"') == 10
    assert "<title>1 image from 0.50" in str(histogram(values, "agreement"))
    assert ">2 images</text>" in str(histogram(values, "agreement"))  # what the tallest bar stands for


def test_a_curve_that_begins_late_has_the_whole_chart() -> None:
    late = np.where(X > 7, X, math.nan)
    chart = line_chart("k", "t", "n", X, [Line("a", late, spread=np.ones(len(X)))], level=("ln 10", 2.0))
    assert chart.data["x"] == [8, 9, 10]
    (curve,) = drawn(chart, "polyline")
    assert (points(curve)[0, 0], points(curve)[-1, 0]) == (44, 348)


def test_one_look_alone_is_a_dot_that_can_be_seen() -> None:
    chart = line_chart("k", "t", "n", X, [Line("a", np.where(X == 10, X, math.nan)), Line("b", X)])
    assert re.findall(r'<polyline( class="alone")?', str(chart.svg)) == [' class="alone"', ""]


def test_looks_every_few_epochs_make_one_line(tmp_path: Path) -> None:
    facts = RunFacts.read(make_run(tmp_path / "r").folder)
    rare = tuple({k: v for k, v in e.items() if k != "feature_dimensions" or e["epoch"] % 5 == 0} for e in facts.epochs)
    charts = {chart.key: chart for chart in curves(replace(facts, epochs=rare), ["red"] * 6)}
    assert str(charts["feature_dimensions"].svg).count("<polyline") == 1


def test_a_run_draws_its_curves_with_ln_k_as_the_level(tmp_path: Path) -> None:
    facts = RunFacts.read(make_run(tmp_path / "r").folder)
    charts = {chart.key: chart for chart in curves(facts, ["red"] * 6)}
    assert list(charts) == ["l1", "l2", "l3", "diversity", "sizes", "feature_dimensions"]
    assert f"ln 6 = {math.log(6):.2f}" in str(charts["l2"].svg)
    for key in ("l2", "l3", "feature_dimensions"):  # how far from guessing, or from collapse: both are read from 0 on
        assert ">0</text>" in str(charts[key].svg)
    assert ">epoch 40</text>" in str(charts["l1"].svg)  # the last of 40 epochs, though the log counts from 0
    json.dumps({key: chart.data for key, chart in charts.items()}, allow_nan=False)
    first = charts["sizes"].data["lines"][0]["y"][0]
    assert first == pytest.approx(facts.epochs[0]["cluster_sizes"][0] / sum(facts.epochs[0]["cluster_sizes"]), abs=1e-5)
    titles, rows = numbers(facts)
    assert titles[:3] == ["Epoch", "L1, BYOL", "L2, clustering"]
    assert rows[0][2] == "\u2013"
    assert rows[-1][:2] == ["40", f"{facts.epochs[-1]['l1']:.4g}"]
