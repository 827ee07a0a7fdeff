"""`concurl suggest`: how many clusters the features of a run hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concurl.cli import main
from concurl.commands.suggest import WEAK
from small_run import fit, refused, told


def suggested(capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    return told(capsys, "suggest", "run", "--quiet", *more).out.splitlines()


def test_three_colours_are_three_groups(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--cluster-start", "0.5", "--epochs", "8", "--preset", "none") == 0
    head, *rows, advice = suggested(capsys)
    found = {int(row.split()[0]): float(row.split()[1]) for row in rows}
    assert head.split() == ["K", "stability"]
    assert list(found) == [2, 3, 4, 5, 6]  # a quarter of the 24 pictures
    assert found[3] == max(found.values())
    assert advice.startswith("3 clusters stand out")
    assert advice.endswith(" The run has that number already.")
    assert "--from" not in advice
    assert main(["fit", "--from", "run", "-k", "4", "-o", "other", "--quiet", "--no-report"]) == 0
    assert "concurl fit --from other -k 3 -o" in told(capsys, "suggest", "other", "--quiet").out.splitlines()[-1]


def test_the_k_of_the_run_plays_no_part(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    before = suggested(capsys, "--up-to", "4")[:-1]  # the table; what is advised goes by what is there
    assert main(["fit", "--from", "run", "-k", "5", "-o", "other", "--quiet", "--no-report"]) == 0
    Path("run").rename("first")
    Path("other").rename("run")
    assert suggested(capsys, "--up-to", "4")[:-1] == before


def test_byol_alone_is_looked_at_as_it_ended(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--beta", "0", "--gamma", "0", "--head-init", "random", "-k", "3") == 0
    _, *rows, advice = suggested(capsys, "--up-to", "5")
    assert len(rows) == 4
    assert advice.startswith("3 clusters stand out")
    assert "already" not in advice
    assert "--from" not in advice  # there is nothing to go on from


def test_what_cannot_be_told_is_said(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--cluster-start", "0") == 0
    why = "no sound features to go on from: clustering began with the first step"
    assert why in refused(capsys, "suggest", "run")
    assert fit(photos, "--cluster-start", "0.5", "--overwrite") == 0
    for few, least in (("--images 7", 8), ("--images -5", 8), ("--up-to 1", 2)):
        assert f"{few}: at least {least} are needed" in refused(capsys, "suggest", "run", *few.split())
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"projector_hidden": 24, "cluster_hidden": 24}))
    assert "do not belong to its config.json" in refused(capsys, "suggest", "run")


def test_where_no_number_stands_out_none_is_advised(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    weak = {2: 0.5, 3: WEAK - 0.01}
    monkeypatch.setattr("concurl.clustering.stability.stabilities", lambda *_, **__: iter(weak.items()))
    assert "No number of clusters stands out" in suggested(capsys)[-1]


@pytest.mark.parametrize("agreed", [0.0, 1.1])  # no run's agreement is below it, or every run's
def test_features_of_a_run_that_is_not_healthy_come_with_a_warning(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, agreed: float
) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    monkeypatch.setattr("concurl.report.checks.AGREED", agreed)
    monkeypatch.setattr("concurl.report.checks.STUCK", 9.0)
    capsys.readouterr()
    assert main(["suggest", "run", "--quiet", "--up-to", "3"]) == 0
    warned = "the run is not healthy (the ensemble disagrees with these clusters): if it was too short"
    assert (warned in capsys.readouterr().err) is (agreed > 1)


def test_coarser_groups_are_named_and_the_end_of_the_search_is_said(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    several = {2: 0.98, 3: 0.5, 4: 0.95, 5: 0.6}
    tried = lambda x, counts, **_: iter([(k, several[k]) for k in counts])  # noqa: E731
    monkeypatch.setattr("concurl.clustering.stability.stabilities", tried)
    assert "4 clusters stand out (so do coarser ones: 2). To get them" in suggested(capsys, "--up-to", "5")[-1]
    *_, advice, end = suggested(capsys, "--up-to", "4")
    assert "4 clusters stand out" in advice
    assert "see --up-to" in end
