"""The page itself: facts, pictures and template, put together into one file."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import logging
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from numpy.typing import NDArray

from concurl import __version__
from concurl.amounts import counted, duration
from concurl.atomic import write_whole
from concurl.clustering.assign import UNSURE
from concurl.clustering.evaluate import TITLES
from concurl.config import Config
from concurl.data.imageset import ImageSet, Opened
from concurl.data.originals import read_originals
from concurl.data.pictures.reading import Reading
from concurl.progress import stages
from concurl.recipes import RECIPES, recipe
from concurl.report import gallery, matrix, palette, verdict
from concurl.report.checks import percent
from concurl.report.curves import curves, numbers
from concurl.report.facts import RunFacts, shown
from concurl.report.histogram import histogram
from concurl.report.layout import Layout, lay_out
from concurl.report.nearest import next_clusters
from concurl.report.thumbnails import ACROSS, LARGEST, Sheets, sheets, singles
from concurl.runs.summary import change_summary

log = logging.getLogger("concurl")

MAX_SKIPPED = 500  # rows of skipped.csv on the page; the file has all
COARSE = 64  # pixels: smaller pictures are drawn with their pixels visible, as blurring them helps nobody
_HERE = Path(__file__).parent
_CITATION = """\
@inproceedings{regatti2021consensus,
  title     = {Consensus Clustering With Unsupervised Representation Learning},
  author    = {Regatti, Jayanth Reddy and Deshmukh, Aniket Anand and Manavoglu, Eren and Dogan, Urun},
  booktitle = {International Joint Conference on Neural Networks (IJCNN)},
  year      = {2021}
}"""


def write_report(folder: Path, opened: Opened, *, output: Path | None = None, other_labels: bool = False) -> Path:
    """Write the page about the run in `folder` to folder/report.html, or `output`, and return its path.

    `opened` has the images in the order of assignments.csv. Its labels, if any, add scores and a confusion matrix; -1 marks
    an image without one. `other_labels`: they are not those that the run's own scores are against, which are then left out.
    """
    facts = RunFacts.read(folder)
    if other_labels:
        facts = facts.without_scores()
    judged = verdict.judge(facts)
    html = _render(facts, judged, opened, Reading.of(facts.config))
    target = output or folder / "report.html"
    write_whole(target, html.encode())
    if output is None and (folder / "summary.json").exists():
        change_summary(folder, trouble=judged.trouble)  # for predict, which need not judge the run each night
    if judged.trouble:  # here too: who reads the last lines of a run alone should not take its clusters for good
        told = "the run is not healthy: do not rely on these clusters yet (%s); its page says what to try"
        log.warning(told, judged.trouble)
    return target


def _render(facts: RunFacts, judged: verdict.Verdict, opened: Opened, reading: Reading) -> str:
    images, progress = opened.images.images, stages()
    layout = None if facts.embeddings is None else lay_out(facts.embeddings, progress)
    cards = gallery.galleries(facts)
    pictured = sorted({row for card in cards for rows in card.rows.values() for row in rows})
    points = layout.rows.tolist() if layout is not None else []
    table = points + sorted(
        set(pictured) - set(points)
    )  # the images whose facts go into the page: the map's come first
    pictures = {row: images[row] for row in pictured} | read_originals(opened.images, pictured, LARGEST, reading)
    sprites = Sheets((), 0) if layout is None else sheets(images, layout.rows, progress)
    shares = matrix.votes(facts)
    colours = palette.pairs(facts.n_clusters)
    css_colours = [f"light-dark({light},{dark})" for light, dark in colours]
    charts = curves(facts, css_colours)
    found = matrix.matched(facts, opened.labels, opened.classes) if opened.labels is not None else None
    theme, script = _source("theme.js"), _source("page.js", "curves.js", "map.js")
    return _template().render(
        version=__version__,
        facts=facts,
        colours=css_colours,
        verdict=judged,
        accuracy=found.scores["acc"] if found is not None else _acc(facts),
        duration="" if math.isnan(facts.minutes) else duration(facts.minutes),
        members=_members(facts),
        faces=gallery.faces(cards),
        sureness=_sureness(facts),
        cards=cards,
        files=_are_files(opened.images),
        lenses=gallery.LENSES,
        max_galleries=gallery.MAX_GALLERIES,
        index={int(row): place for place, row in enumerate(table)},
        pictures=singles(pictures),
        coarse=all(min(picture.shape[1:]) < COARSE for picture in pictures.values()),
        layout=layout,
        sprites=sprites,
        charts=[chart for chart in charts if chart.key != "scores"],
        course=next((chart for chart in charts if chart.key == "scores"), None),
        numbers=numbers(facts) if facts.epochs else None,
        disagreement=matrix.disagreement(facts, shares) if shares is not None else None,
        pairs=matrix.mixed_up(shares) if shares is not None else [],
        mixed=matrix.mixed_with(shares) if shares is not None else [[]] * facts.n_clusters,
        scores=_scores(facts),
        matched=found,
        max_skipped=MAX_SKIPPED,
        configuration=_configuration(facts),
        recipe=_recipe(facts),
        chosen=[shown(line).partition(": ") for line in facts.provenance.chosen],
        environment=[(shown(key), _plain(value)) for key, value in facts.environment.items()],
        citation=_CITATION,
        css=Markup(_source("page.css")),
        theme=Markup(theme),
        script=Markup(script),
        hashes=[_hash(theme), _hash(script)],
        data=_json(_data(facts, table, layout, sprites, colours, charts)),
    )


def _are_files(images: ImageSet) -> bool:
    """Is any of them a file of its own, which can be sorted into a folder? A shard's member is none, nor an array's row."""
    root = images.root
    return root is not None and any(os.path.isfile(os.path.join(root, name)) for name in images.names)


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "share": percent,
        "count": "{:,}".format,
        "counted": counted,
        "three": _three,
        "shown": shown,
        "advice": _advice,
        "first_of": lambda kept, rest: f", the first {len(kept)} of {len(kept) + rest:,}" if rest else "",
    }
    return environment.get_template("page.html.j2")


def _data(
    facts: RunFacts,
    table: list[int],
    layout: Layout | None,
    sprites: Sheets,
    colours: list[tuple[str, str]],
    charts: list[Any],
) -> dict[str, Any]:
    # Each folder's name is written once, and not for every image.
    split = [facts.paths[row].rpartition("/") for row in table]
    folders = list(dict.fromkeys(head + slash for head, slash, _ in split))
    place = {folder: i for i, folder in enumerate(folders)}
    xy = (layout.xy * 10_000).round().astype(int) if layout is not None else np.zeros((0, 2), dtype=int)

    def column(values: NDArray[np.float64]) -> list[float | None]:
        return [None if math.isnan(value) else round(value, 4) for value in values[table].tolist()]

    return {
        "x": xy[:, 0].tolist(),
        "y": xy[:, 1].tolist(),
        "cluster": facts.cluster[table].tolist(),
        "confidence": column(facts.confidence),
        "margin": column(facts.margin),
        "agreement": column(facts.agreement),
        "outlier": column(facts.outlier),
        "unsure": facts.unsure[table].astype(int).tolist(),
        "next": next_clusters(facts, np.array(table, dtype=np.int64)).tolist(),
        "folders": folders,
        "folder": [place[head + slash] for head, slash, _ in split],
        "file": [name for _, _, name in split],
        "names": facts.names,
        "given": {cluster: shown(name) for cluster, name in facts.given.items()},
        "light": [light for light, _ in colours],
        "dark": [dark for _, dark in colours],
        "sheet": {"side": sprites.side, "across": ACROSS},
        "charts": {chart.key: chart.data for chart in charts},
    }


def _acc(facts: RunFacts) -> float | None:
    """The run's own score of the clusters on the page, where it was given labels."""
    acc = (facts.summary.get("scores") or {}).get("codes", {}).get("acc")
    return acc if isinstance(acc, int | float) else None


def _members(facts: RunFacts) -> str:
    n = facts.config.n_transforms
    return f"{n:,} variants" if n > 1 else "a set of variants"


def _scores(facts: RunFacts) -> list[tuple[str, list[str]]]:
    found = facts.summary.get("scores") or {}
    return [
        (TITLES.get(way, shown(way)), [_three(s.get(key)) for key in ("acc", "nmi", "ari")])
        for way, s in found.items()
        if isinstance(s, dict)
    ]


def _sureness(facts: RunFacts) -> tuple[str, Markup] | None:
    """Agreement, or confidence where there is none, by name and as a histogram."""
    for name, values, low in (("agreement", facts.agreement, UNSURE), ("confidence", facts.confidence, 0.0)):
        if np.isfinite(values).any():
            return name, histogram(values, name, low)
    return None


def _recipe(facts: RunFacts) -> str:
    name = facts.provenance.recipe
    return name if name in RECIPES else ""


def _configuration(facts: RunFacts) -> list[tuple[str, str, bool]]:
    """Name, value, and whether the value differs from the run's recipe (from the default where none is known)."""
    defaults = dataclasses.asdict(recipe(_recipe(facts)) if _recipe(facts) else Config())
    return [(shown(k), _plain(v), defaults[k] != v) for k, v in dataclasses.asdict(facts.config).items()]


def _plain(value: object) -> str:
    if value is None:
        return "none"
    return shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _advice(text: str) -> Markup:
    """Keeps options and their numbers in one piece: a browser would break the line after their hyphens."""
    option = r"(?<![\w-])-(?:k|-[a-z][a-z-]*)(?: [\d.]*\d)?"
    return Markup(re.sub(option, r'<span class="option">\g<0></span>', str(escape(text))))


def _three(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) and math.isfinite(value) else "\u2013"


def _source(*names: str) -> str:
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _hash(script: str) -> str:
    """For the page's policy, which allows these bytes to run and no others."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(value: object) -> Markup:
    """Json for a script element: nothing in it can end that element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
