"""What is written about the results is what the tables hold."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

import unequal
from figures import FIGURES, ROOT, by_run, of_tables, rows_of, score_of
from results import page


def test_the_page_of_results_is_that_of_the_tables() -> None:
    written = (ROOT / "docs" / "results.md").read_text()
    assert written == page(), "call benchmarks/results.py"


def test_the_figures_are_those_of_the_tables() -> None:
    for name, svg in of_tables().items():
        assert (FIGURES / f"{name}.svg").read_text() == svg, "call benchmarks/figures.py"


def means(table: str, run: str) -> list[float]:
    """ACC, NMI and ARI of a run as the README gives them: by codes, for BYOL by k-means, over all its seeds."""
    rows = by_run(rows_of(table))[run]
    readout = "codes" if score_of(rows[0])[1] == "codes" else "kmeans_v_xi"
    return [mean(float(row[f"{readout}_{metric}"]) for row in rows) for metric in ("acc", "nmi", "ari")]


@pytest.mark.parametrize(
    ("table", "run"),
    [
        ("cifar10", "modern-1000"),
        ("cifar10", "modern-1000-soft"),
        ("cifar10", "paper-cifar10-385"),
        ("imagenette", "imagenette-modern"),
        ("imagenette", "imagenette-byol"),
    ],
)
def test_readme_has_the_scores_of_the_tables(table: str, run: str) -> None:
    assert " / ".join(f"{score:.3f}" for score in means(table, run)) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("run", ["concurl-300", "byol-300"])
def test_readme_tells_what_went_less_well(run: str) -> None:
    assert f"{means('cifar10', run)[0]:.3f}" in (ROOT / "README.md").read_text()


def test_a_deviation_is_that_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["1,0,10,1,0.6,0,0", "1,1,10,1,0.8,0,0", "3,0,10,0.5,0.7,0,0"]
    (tmp_path / "unequal.csv").write_text("\n".join([",".join(unequal.COLUMNS), *rows]))
    monkeypatch.setattr(unequal, "TABLE", tmp_path / "unequal.csv")
    assert unequal.summary()[2:] == [
        "| 1 : 1 | 2 | 0.700 ± 0.141 |  |  |  |  |  |",
        "| 3 : 1 | 1 |  |  |  |  | 0.700 |  |",
    ]
