"""The page's markup, read by a parser and not by a browser: complete, escaped, and true to the csv."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import Run, hostile_names, make_run, seen_as, write

from concurl.recipes import recipe
from concurl.report import page
from concurl.report.facts import RunFacts
from concurl.report.layout import lay_out
from concurl.report.matrix import matched
from concurl.runs.provenance import Provenance
from concurl.runs.spreadsheet import Table

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Page(HTMLParser):
    """Elements in order as (tag, attributes, text); svg is kept as its own tags."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[int] = []
        self.feed(html)
        assert not self.open, [self.elements[i][:2] for i in self.open]  # every tag was closed, in order

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}, []))
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}, []))

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for i in self.open:
            self.elements[i][2].append(data)

    def all(self, tag: str, **wanted: str) -> list[tuple[dict[str, str], str]]:
        keys = {key.rstrip("_").replace("_", "-"): value for key, value in wanted.items()}
        return [
            (attrs, " ".join("".join(text).split()))
            for name, attrs, text in self.elements
            if name == tag and all(attrs.get(key) == value for key, value in keys.items())
        ]

    def data(self) -> dict:
        ((_, text),) = self.all("script", id="data")
        return json.loads(text)


def parsed(run: Run) -> Page:
    return Page((run.folder / "report.html").read_text(encoding="utf-8"))


def test_every_picture_has_an_alternative_and_every_control_a_name(run: Run) -> None:
    page = parsed(run)
    pictures = page.all("img")
    assert len(pictures) > 6 * 3 * 10
    glimpse = sum(attrs["alt"] == "" for attrs, _ in pictures)
    assert (
        glimpse == 6 + 1
    )  # those of the first screen, whose links have words, and the larger view's, as yet without one
    for attrs, _ in (picture for picture in pictures if picture[0]["alt"]):
        assert attrs.get("id") == "viewer-picture" or re.fullmatch(
            r"photos/./\d{5}\.jpg, confidence 0\.\d{3}", attrs["alt"]
        )
    for attrs, text in page.all("button"):
        inside_picture = attrs.get("class") == "thumb"
        assert text or attrs.get("aria-label") or inside_picture, attrs
    for attrs, _ in page.all("svg"):
        assert attrs.get("aria-hidden") == "true" or len(attrs["aria-label"]) > 20


def test_headings_are_in_order_and_ids_unique(run: Run) -> None:
    page = parsed(run)
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in (attrs for _, attrs, _ in page.elements):
        for key in ("aria-labelledby", "aria-describedby"):
            assert attrs.get(key, ids[0]) in ids
    for tag in ("header", "nav", "main", "footer"):
        assert page.all(tag)
    sections = [attrs["id"] for attrs, _ in page.all("section")]
    assert sections == ["verdict", "clusters", "map", "training", "disagreement", "scores", "details"]


def test_the_numbers_are_the_csvs(run: Run) -> None:
    page, rows = parsed(run), run.rows()
    ((_, lead),) = page.all("p", class_="lead")
    assert page.all("h1")[0][1] == "180 images in 6 clusters"
    hits = sum(int(r["cluster"]) == label for r, label in zip(rows, run.labels, strict=True))
    assert lead.endswith(
        f"{100 * hits / 180:.0f}% of the images are in the cluster matched with their label (ACC {hits / 180:.3f})."
    )
    # once: what a sentence says of all images is no tile below it
    assert not page.all("dl", class_="tiles")
    for attrs, text in page.all("article"):
        members = [r for r in rows if r["cluster"] == attrs["data-cluster"]]
        mean = sum(float(r["agreement"]) for r in members) / len(members)
        assert f"{len(members)} images {mean:.3f} agreement" in text
        assert attrs["data-size"] == str(len(members))
    data = page.data()
    by_path = {row["path"]: row for row in rows}
    assert len(data["file"]) == len(data["x"]) == 180
    for i in range(180):
        row = by_path[data["folders"][data["folder"][i]] + data["file"][i]]
        assert data["cluster"][i] == int(row["cluster"])
        for key in ("confidence", "margin", "agreement", "outlier"):
            assert data[key][i] == float(row[key])
        assert data["unsure"][i] == (row["status"] == "unsure")


def test_the_first_screen_shows_the_clusters_and_leads_to_them(run: Run) -> None:
    page = parsed(run)
    ((_, words),) = page.all("ul", class_="faces")
    sizes = np.bincount([int(r["cluster"]) for r in run.rows()])
    assert words == " ".join(f"Cluster {c} {size} images" for c, size in enumerate(sizes))
    links = [attrs["href"] for attrs, _ in page.all("a") if attrs["href"].startswith("#cluster-")]
    assert links[:6] == [f"#cluster-{c}" for c in range(6)]


def test_what_is_wrong_comes_first_and_what_passed_comes_last(tmp_path: Path, page_of: Callable[..., str]) -> None:
    run = make_run(tmp_path / "r", n=60, k=4, warnings=["the views differ little"])
    page = Page(page_of(run))
    order = [attrs.get("class") for tag, attrs, _ in page.elements if tag in ("ul", "dl") and attrs.get("class")]
    assert order[:3] == ["checks", "faces", "checks"]
    flagged, passed = (text for _, text in page.all("ul", class_="checks"))
    assert "The views differ little" in flagged
    assert "Good:" not in flagged
    assert "Look at this:" not in passed
    assert "Something to look at" in [text for _, text in page.all("h2")]
    assert next(text for _, text in page.all("summary")) == f"{passed.count('Good:')} other checks passed"


@pytest.mark.parametrize(("given", "told"), [(100, "is 100 variants of"), (1, "is a set of variants of")])
def test_the_ensemble_is_explained_where_it_is_first_spoken_of(
    tmp_path: Path, page_of: Callable[..., str], given: int, told: str
) -> None:
    run = make_run(tmp_path / "r", n=20, k=2)
    (run.folder / "config.json").write_text(json.dumps({"n_transforms": given}))
    ((_, figure),) = Page(page_of(run)).all("figure", class_="panel")
    assert f"The ensemble {told} this clustering." in figure


def test_scores_and_the_matched_matrix_are_there(run: Run) -> None:
    page = parsed(run)
    ((_, table),) = page.all("table", class_="scores")
    assert "These clusters (codes)0.9120.8460.779" in table
    assert "k-means on the target's projections0.7100.620\u2013" in table
    cells = [text for attrs, text in page.all("td") if "--v" in attrs.get("style", "")]
    hits = sum(int(r["cluster"]) == label for r, label in zip(run.rows(), run.labels, strict=True))
    matrix = np.array(cells[-36:], dtype=int).reshape(6, 6)
    assert (np.trace(matrix), matrix.sum()) == (hits, 180)
    pairs = [text for _, text in page.all("ol", class_="pairs")]
    assert pairs[0].startswith(
        "Cluster 0 with Cluster 1 Of the votes on Cluster 0, 25% are for Cluster 1. The other way round: 10%."
    )
    links = [attrs["href"] for attrs, _ in page.all("a", class_="name")]
    cards = {"#" + attrs["id"] for attrs, _ in page.all("article")}
    assert links
    assert set(links) - {"#scores"} <= cards
    mixed = [text for _, text in page.all("p", class_="mixed")]
    assert mixed == ["Mixed up with Cluster 1 (25% of the votes)", "Mixed up with Cluster 0 (10% of the votes)"]


def test_one_image_and_one_cluster_are_not_many(tmp_path: Path, page_of: Callable[..., str]) -> None:
    run = make_run(tmp_path / "r", n=40, k=4)
    labels = np.where(np.arange(40) == 0, -1, run.labels % 3)
    text = " ".join(page_of(run, labels=labels).split())
    assert "1 image has no label and is left out." in text
    assert "of the labelled images are in the cluster matched with their label" in text
    assert "No class is left for 1 cluster: ACC counts its images as wrong." in text


def test_of_forty_classes_the_page_says_which_it_shows(tmp_path: Path, page_of: Callable[..., str]) -> None:
    run = make_run(tmp_path / "r", n=400, k=4)
    text = " ".join(page_of(run, labels=np.arange(400) % 40).split())
    assert "No cluster is left for 36 classes: ACC counts their images as wrong." in text
    assert "Clusters (rows) and classes (columns, the first 30 of 40) are matched" in text


def test_scores_against_other_labels_are_not_beside_those_that_were_given(
    tmp_path: Path, page_of: Callable[..., str]
) -> None:
    run = make_run(tmp_path / "r")
    log = run.folder / "metrics.jsonl"
    log.write_text(log.read_text().replace('"l1"', '"acc": 0.9, "l1"'))
    before = page_of(run, labels=run.labels % 2)
    page = page_of(run, labels=run.labels % 2, other_labels=True)
    for word in ("These clusters (codes)", "Scores over training"):  # the run's own, against labels of its own
        assert word in before
        assert word not in page
    scores = matched(RunFacts.read(run.folder), run.labels % 2, None).scores
    tiles = Page(page).all("dl", class_="tiles")[-1][1]
    assert tiles == f"ACC{scores['acc']:.3f} NMI{scores['nmi']:.3f} ARI{scores['ari']:.3f}"
    assert "ACC is the share of images" in page


def test_without_labels_there_is_no_word_of_scores(tmp_path: Path, page_of: Callable[..., str]) -> None:
    run = make_run(tmp_path / "r", n=30, k=3, scores=None)
    page = Page(page_of(run))
    assert "scores" not in [attrs["id"] for attrs, _ in page.all("section")]
    assert "#scores" not in [attrs["href"] for attrs, _ in page.all("a")]


def test_hostile_names_are_shown_and_change_nothing(hostile: Run) -> None:
    page = parsed(hostile)
    alts = [attrs["alt"].rpartition(", confidence ")[0] for attrs, _ in page.all("img")]
    names = {seen_as(name) for name in hostile_names()}
    assert names <= set(alts)
    data = page.data()
    assert {data["folders"][f] + name for f, name in zip(data["folder"], data["file"], strict=True)} == names
    assert data["names"][0] == "<script>window.pwned='name'</script>"
    assert data["names"][3] == "\ufffdlone"
    scripts = [attrs for attrs, _ in page.all("script")]
    assert [attrs.get("type") for attrs in scripts] == [None, "application/json", "text/plain", None]
    assert page.all("title")[0][1] == "<b>run: 60 images in 6 clusters"


def test_nothing_inside_the_data_can_end_it(hostile: Run) -> None:
    html = (hostile.folder / "report.html").read_text(encoding="utf-8")
    body = html.partition('id="data">')[2].partition("</script>")[0]
    assert not set(body) & set("<>&\u2028\u2029")
    assert json.loads(body) == Page(html).data()


def test_the_policy_allows_these_scripts_only_and_no_network(run: Run) -> None:
    html = (run.folder / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    ((policy, _),) = page.all("meta", http_equiv="Content-Security-Policy")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy["content"].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")
    for source in rules["script-src"].split():
        assert source.startswith("'sha256-")
    run_scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digests = ["'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in run_scripts]
    assert rules["script-src"].split() == digests
    for attrs in (attrs for _, attrs, _ in page.elements):
        assert not [key for key in attrs if key.startswith("on")]
        for key in ("src", "href"):
            assert attrs.get(key, "#").startswith(("#", "data:"))
    assert not re.search(r"url\(|@import|https?://", re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)[0])


def test_assignments_make_a_page_that_says_what_is_missing(tmp_path: Path, page_of: Callable[..., str]) -> None:
    run = make_run(tmp_path / "r", n=7, k=3)
    for file in run.folder.iterdir():
        if file.name not in ("config.json", "run.json", "assignments.csv"):
            file.unlink()
    (run.folder / "assignments.csv").write_text("path,cluster,status\nonly.jpg,0,ok\n")
    run = replace(run, images=run.images[:1])
    text = page_of(run)
    Page(text)
    for sentence in (
        "1 image in 1 cluster",
        "no embeddings.npy",
        "no metrics.jsonl",
        "Nothing in the folder says how sure",
    ):
        assert sentence in text
    assert 'alt="only.jpg, confidence \u2013"' in text  # and no nan
    (run.folder / "assignments.csv").write_text("path,cluster,confidence,status\nonly.jpg,0,0.5,ok\n")
    assert "images by confidence" in page_of(run)


@pytest.mark.parametrize(
    ("minutes", "told"), [(0.5, "30 seconds"), (1, "1 minute"), (89, "89 minutes"), (90, "1.5 hours")]
)
def test_the_time_is_told_in_a_unit_that_fits(
    tmp_path: Path, page_of: Callable[..., str], minutes: float, told: str
) -> None:
    run = make_run(tmp_path / "r", n=7, k=3, minutes=minutes)
    assert f"The run took {told}." in page_of(run)


@pytest.mark.parametrize(("side", "coarse"), [(63, True), (64, False)])
def test_small_pictures_are_enlarged_with_sharp_edges(
    tmp_path: Path, page_of: Callable[..., str], side: int, coarse: bool
) -> None:
    run = make_run(tmp_path / "r", n=7, k=3, side=side)
    assert ('class="lens thumbs coarse"' in page_of(run)) is coarse


def test_of_many_skipped_files_all_are_counted_and_the_first_are_listed(
    tmp_path: Path, page_of: Callable[..., str]
) -> None:
    run = make_run(tmp_path / "r", n=7, k=3)
    rows = "".join(f"{i}.png,{'truncated' if i else 'empty'},why\n" for i in range(502))
    (run.folder / "skipped.csv").write_text("path,status,reason\n" + rows)
    text = page_of(run)
    assert "501 truncated, 1 empty. The first 500 are listed; skipped.csv has all." in text
    assert "499.png" in text
    assert "500.png" not in text


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({}, "/data/photos. Skipped files 0 None: every file was used."),
        ({"limit": 13, "train_images": 12}, "/data/photos. Skipped files 0 None: every file was used."),
        (
            {"limit": 12, "train_images": 5},
            "/data/photos: a sample of 12, the others were not looked at (--limit). Training saw 5 of them "
            "(--train-images). Skipped files 0 None: every file of the sample was used.",
        ),
    ],
)
def test_a_page_about_a_sample_says_so(
    tmp_path: Path, page_of: Callable[..., str], about: dict[str, int], told: str
) -> None:
    run = make_run(tmp_path, n=12, k=2)
    (run.folder / "skipped.csv").unlink()
    (run.folder / "run.json").write_text(json.dumps({"source": "/data/photos"} | about))
    ((_, details),) = Page(page_of(run)).all("section", id="details")
    assert f"Images from {told}" in details


def test_an_empty_cluster_and_150_clusters_have_their_place(tmp_path: Path, page_of: Callable[..., str]) -> None:
    few = make_run(tmp_path / "few", n=12, k=3, ensemble_confusion=None)
    (few.folder / "config.json").write_text(recipe("modern").replace(n_clusters=4).to_json())
    assert "No image fell into this cluster." in page_of(few)
    many = make_run(tmp_path / "many", n=600, k=150)
    page = Page(page_of(many))
    assert len(page.all("article")) == 100
    assert "50 further clusters, in numbers" in [text for _, text in page.all("summary")]


def test_the_changed_options_stand_out(run: Run) -> None:
    page = parsed(run)
    changed = [text for attrs, text in page.all("div") if attrs.get("class") == "changed"]
    assert changed == ["n_clusters6 (not the default)", "epochs40 (not the default)"]
    assert "depthnone" in [text for _, text in page.all("div")]  # as the command line takes it


def test_choices_and_the_recipe_are_told(tmp_path: Path, page_of: Callable[..., str]) -> None:
    made = make_run(tmp_path / "r", n=30, k=3)
    config = recipe("modern").replace(n_clusters=3, epochs=40)
    (made.folder / "config.json").write_text(config.to_json())
    about = Provenance("photos", recipe="modern", chosen=["epochs = 40: <b>30 images</b> on a CPU"])
    (made.folder / "run.json").write_text(about.to_json())
    page = Page(page_of(made))
    changed = [text for attrs, text in page.all("div") if attrs.get("class") == "changed"]
    assert changed == ["n_clusters3 (not the recipe's)", "epochs40 (not the recipe's)"]
    assert "epochs = 40<b>30 images</b> on a CPU" in [text for _, text in page.all("div")]
    assert "Configuration recipe modern, with 2 exceptions" in [text for _, text in page.all("summary")]
    (made.folder / "config.json").write_text(recipe("modern").to_json())
    page = Page(page_of(made))
    assert "Configuration recipe modern" in [text for _, text in page.all("summary")]
    assert "Bold:" not in page.all("section", id="details")[0][1]


def test_options_in_advice_stay_in_one_piece_and_nothing_else_is_markup(
    tmp_path: Path, page_of: Callable[..., str]
) -> None:
    made = make_run(tmp_path / "r", n=30, k=3)
    summary = json.loads((made.folder / "summary.json").read_text())
    summary["warnings"] = ["it is odd: <i>try</i> -k, --cluster-start, or --balance 0.7; well-known, re-k, 3 - k"]
    (made.folder / "summary.json").write_text(json.dumps(summary))
    text = page_of(made)
    k, start, balance = (
        f'<span class="option">{option}</span>' for option in ("-k", "--cluster-start", "--balance 0.7")
    )
    assert f"&lt;i&gt;try&lt;/i&gt; {k}, {start}, or {balance}; well-known, re-k, 3 - k." in text
    assert "<i>try" not in text


def test_output_progress_and_the_old_page(tmp_path: Path, without_tsne: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "r", n=30, k=3)
    told = lambda z, progress: progress("map", 750, 750) or lay_out(z)  # noqa: E731 (the quick map tells nothing)
    monkeypatch.setattr(page, "lay_out", told)
    said: list[tuple[str, int, int]] = []
    target = tmp_path / "new" / "other.html"
    target.parent.mkdir()
    monkeypatch.setattr(page, "stages", lambda: lambda *what: said.append(what))
    written = write(run, output=target)
    assert written == target
    assert not (run.folder / "report.html").exists()
    assert said == [("map", 750, 750), ("page", 30, 30)]
    assert [file.name for file in target.parent.iterdir()] == ["other.html"]
    first = target.read_bytes()
    assert write(run, output=target).read_bytes() == first  # the same run, the same page


@pytest.mark.parametrize(
    "forged",
    [
        [],
        {"names": 5},
        {"names": {"0": []}},
        {"scores": 3},
        {"scores": {"codes": 1}},
        {"scores": {"codes": {"acc": "x"}}},
    ],
)
def test_a_summary_of_another_form_costs_no_page(tmp_path: Path, without_tsne: None, forged: object) -> None:
    run = make_run(tmp_path / "r", n=12, k=3)
    (run.folder / "summary.json").write_text(json.dumps(forged))
    write(run)
    assert "trouble" in json.loads((run.folder / "summary.json").read_text())
    Table(run.folder / "assignments.csv").typed()
