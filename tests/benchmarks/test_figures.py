"""Figures: what is drawn are the recorded numbers, and a run's folder is enough for its map."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ablations import plan
from concurl.config import Config
from concurl.data.sources import open_source
from figures import acc_minutes, clock, diversity, rows_of, sweep, tsne
from plot import GAP, Plot
from record import keep
from results import beside, four_losses
from sample import Sample

SVG = "{http://www.w3.org/2000/svg}"


def put(results: Path, table: str, name: str, rows: list[dict[str, Any]], **scores: Any) -> None:
    row = {"name": name, "minutes": 5.0, "hardware": "a card, bfloat16", **scores}
    keep(results, table, row, "".join(json.dumps(line) + "\n" for line in rows).encode())


def drawn(svg: str, tag: str, kind: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(svg).iter(SVG + tag)
    return [element for element in found if kind in element.attrib.get("class", "").split()]


def places(element: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split(",") for point in element.attrib["points"].split())]


def test_a_clock_that_began_anew_goes_on() -> None:
    assert clock([{"minutes": minutes} for minutes in (1.0, 4.0, 0.5, 1.5)]) == [1.0, 4.0, 4.5, 5.5]


def test_the_sweep_is_found_under_the_names_that_ablations_gives() -> None:
    names = [f"stl10-{kind}" for kind, _ in plan()]
    found = sweep([{"name": name} for name in reversed(names)])
    assert list(found.values()) == [f"projection_dim {dim}" for dim in (32, 64, 128, 256)]
    changes = {f"stl10-{kind}": changed for kind, changed in plan()}
    for name, title in found.items():
        run = Config().replace(**changes[name])
        assert title == f"projection_dim {run.projection_dim}"
        assert (run.n_transforms, run.alpha, run.beta, run.gamma, run.seed) == (100, 1, 1, 1, 0)
    assert not sweep([{"name": "digits-concurl-seed0"}])


def test_one_line_with_a_band_for_each_dimension(tmp_path: Path) -> None:
    for dim, start in ((32, 0.3), (256, 0.6)):
        looks = [{"diversity_mean": start + 0.1 * i, "diversity_std": 0.05} for i in range(4)]
        rows = [{"epoch": i, "minutes": i, "l2": 1.0} | (looks[i // 10] if i % 10 == 9 else {}) for i in range(40)]
        put(tmp_path, "stl10", f"stl10-projection-M100-dim{dim}", rows)
    svg = diversity(sweep(rows_of("stl10", tmp_path)), tmp_path)
    first, second = map(places, (line for line in drawn(svg, "polyline", "line")))
    assert len(first) == len(second) == 4
    assert all(low[1] > high[1] for low, high in zip(first, second, strict=True))  # y grows downwards
    for line, band in zip((first, second), map(places, drawn(svg, "polygon", "band")), strict=True):
        np.testing.assert_allclose(np.mean([band[:4], band[:3:-1]], axis=0), line, atol=0.11)
    assert "epochs" in svg
    assert "epochs since clustering began" not in svg  # it was there from the first


def test_acc_is_a_line_where_a_judge_looked_and_always_a_last_mark(tmp_path: Path) -> None:
    put(tmp_path, "t", "byol", [{"epoch": i, "minutes": i} for i in range(4)], kmeans_v_xi_acc=0.7)
    rows = [{"epoch": i, "minutes": i, "acc": 0.5 + 0.1 * i if i > 1 else None} for i in range(4)]
    put(tmp_path, "t", "whole", rows, codes_acc=0.8)
    svg = acc_minutes(rows_of("t", tmp_path), {"known": 0.75}, "known", tmp_path)
    (line,) = drawn(svg, "polyline", "c1")
    assert len(places(line)) == 2
    (ring,), (dot,) = drawn(svg, "circle", "ring"), drawn(svg, "circle", "dot")
    (level,) = drawn(svg, "path", "strong")
    heights = [float(dot.attrib["cy"]), float(level.attrib["d"].split()[1].split("H")[0]), float(ring.attrib["cy"])]
    np.testing.assert_allclose(np.diff(heights), [heights[1] - heights[0]] * 2, atol=0.11)  # 0.80, 0.75, 0.70
    assert heights[0] < heights[1]


def test_the_seeds_of_a_run_share_a_colour_and_a_line_of_the_legend(tmp_path: Path) -> None:
    for name, acc in (("long-seed0", 0.8), ("short", 0.5), ("long-seed1", 0.9)):
        put(tmp_path, "t", name, [{"epoch": 0, "minutes": 1, "acc": acc}], codes_acc=acc)
    svg = acc_minutes(rows_of("t", tmp_path), {"known": 0.75}, "", tmp_path)
    colours = [dot.attrib["class"].split()[1] for dot in drawn(svg, "circle", "dot")]
    assert sorted(colours) == ["c0", "c0", "c1"]
    assert [key for key in re.findall(r">([^<]*)</text>", svg) if key.startswith(("long", "short"))] == [
        "long: 0.850, mean of 2 seeds",
        "short: 0.500",
    ]


def test_names_of_close_levels_do_not_lie_on_each_other() -> None:
    text = str(Plot((0, 1), (0, 1), ("", "")).levels({"a": 0.5, "b": 0.5, "c": 0.49}))
    heights = [float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)"', text)]
    assert min(np.diff(heights)) >= GAP - 0.1


def test_ours_stand_among_the_others_by_their_scores() -> None:
    ours = {"name": "mine", "minutes": "12", "hardware": "card", "codes_acc": "0.9"}
    ours |= {"codes_nmi": "0.7", "codes_ari": "0.6"}
    lines = beside("cifar10", [ours, ours | {"name": "mine-seed1", "codes_acc": "0.7", "minutes": "13"}])[2:]
    assert "| **ours: mine** (mean of 2 seeds) | **0.800** | **0.700** | **0.600** | 12.5 on one card |" in lines
    scores = [float(re.findall(r"\d\.\d{3}", line)[0]) for line in lines]
    assert scores == sorted(scores, reverse=True)


def test_the_four_losses_are_those_of_the_table() -> None:
    """byol-soft-300 is not taken for soft-300, and BYOL alone has no codes."""
    found = {"byol-soft-300-seed0": "0.81", "soft-300-seed0": "0.5", "byol-300-seed0": ""}
    found |= {"concurl-300-seed0": "0.7", "concurl-300-seed1": "0.9", "concurl-1000": "0.99"}
    scores = {"kmeans_v_xi_acc": "0.6", "balanced_v_xi_acc": "0.65"}  # the second told only where there are no codes
    rows = [{"name": name, "codes_acc": acc, "minutes": "7", **scores} for name, acc in found.items()]
    rows[-2]["minutes"] = "9"
    assert [line.split(" | ")[1:] for line in four_losses("cifar10", rows)[2:]] == [
        ["0.500", "7.0 |"],
        ["0.600", "7.0 |"],
        ["0.650", "|"],
        ["0.810", "7.0 |"],
        ["0.700, 0.900 (mean 0.800, deviation 0.141)", "8.0 |"],
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """100 digits, clustered without a fault under numbers that are not the classes'."""
    n = 100
    label = open_source("digits", limit=n).labels
    assert label is not None
    rng = np.random.default_rng(0)
    np.save(tmp_path / "embeddings.npy", (np.eye(10)[label] + 0.1 * rng.normal(size=(n, 10))).astype(np.float32))
    rows = [f"digits/all/{i:05},{(3 * c + 1) % 10},ok" for i, c in enumerate(label)]
    (tmp_path / "assignments.csv").write_text("path,cluster,status\n" + "\n".join(rows))
    (tmp_path / "run.json").write_text('{"source": "digits", "data_dir": null, "limit": 100}')
    (tmp_path / "config.json").write_text(Config(n_clusters=10).to_json())
    return tmp_path


def test_a_sample_travels_and_is_drawn_as_the_run_itself(run: Path, tmp_path: Path) -> None:
    sample = Sample.of(run, "some")
    assert sorted(sample.label) == sorted(open_source("digits", limit=100).labels)  # type: ignore[arg-type]
    assert ((3 * sample.label + 1) % 10 == sample.cluster).all()
    sample.save(tmp_path / "sample.npz")
    svg = tsne(Sample.read(tmp_path / "sample.npz"))
    assert svg == tsne(sample)
    assert "some: all 100 images" in svg


def test_a_cluster_has_the_colour_of_its_class(run: Path) -> None:
    svg = tsne(Sample.of(run))
    middle = ElementTree.fromstring(svg).attrib["viewBox"].split()[2]
    halves: list[Counter[tuple[str, str]]] = [Counter(), Counter()]
    for path in drawn(svg, "path", "points"):
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", path.attrib["d"]):
            halves[float(x) > float(middle) / 2][path.attrib["class"], y] += 1
    assert halves[0].total() == 100
    assert halves[0] == halves[1]  # nothing was clustered wrongly, so both halves are the same picture
