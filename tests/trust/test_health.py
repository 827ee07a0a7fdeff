"""The watch: each symptom is told once, with what was seen, what it means and what to try; --strict ends the run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from user_runs import OPTIONS, photos

from concurl.cli import main
from concurl.config import Config
from concurl.network.model import Model
from concurl.training.health import PATIENCE, Health

SOUND = {
    "l2": 1.0,
    "cluster_sizes": [5, 5, 5, 5],
    "feature_std": 0.8,
    "feature_dimensions": 3.0,
    "diversity_mean": 0.6,
}
SYMPTOMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "ln K": ({"l2": math.log(4)}, "ln K = 1.386", "--epsilon"),
    "empty": ({"cluster_sizes": [20, 0, 0, 0]}, "only 1 of 4 clusters", "-k"),
    "collapse": ({"feature_std": 0.01}, "spread 0.010", "--learning-rate"),
    "flat": ({"feature_dimensions": 1.4}, "in only 1.4 directions", "--learning-rate"),
    "discord": ({"diversity_mean": 0.01}, "do not come to agree", "--projection-dim"),
    "unison": ({"diversity_mean": 1.0}, "agreed from the start", "--projection-dim"),
}


@pytest.mark.parametrize("name", SYMPTOMS)
def test_each_symptom_is_told_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    changes, seen, remedy = SYMPTOMS[name]
    health = Health(Config(n_clusters=4))
    for _ in range(PATIENCE - 1):
        health.look(SOUND | changes)
    assert health.warnings == []
    for _ in range(3 * PATIENCE):
        health.look(SOUND | changes)
    (warning,) = health.warnings
    assert seen in warning
    assert remedy in warning
    assert "Usually" in warning
    for _ in range(2):  # gone, and back
        health.look(SOUND)
        assert health.warnings == []
        for _ in range(PATIENCE):
            health.look(SOUND | changes)
    assert health.warnings == (
        [] if name == "unison" else [warning]
    )  # members that have differed did so from the start
    assert caplog.messages == [warning]


@pytest.mark.parametrize(
    ("losses", "cluster_lr", "told"),
    [
        ([0.60, 1.1, 0.9, 0.8, 0.7, 0.65, 0.59], 0.1, True),
        ([0.60, 1.1, 0.9, 0.8, 0.7, 0.65, 0.55], 0.1, False),  # it may rise in between
        ([0.60, 0.60], 0.1, False),  # too short to tell
        ([0.27, 0.27, 0.27, 0.27, 0.27, 0.27], 0.1, False),  # tight from the start: there was nothing to gain
        ([0.84, 0.84, 0.84, 0.84, 0.84, 0.84], 0.1, False),  # loose, at any rate: the page says that
        ([0.60, 1.1, 0.9, 0.8, 0.7, 0.59], None, False),  # what it proposes would be refused
    ],
)
def test_clusters_that_end_where_they_began_are_told(losses: list[float], cluster_lr: float | None, told: bool) -> None:
    health = Health(Config(n_clusters=4, epochs=2 + len(losses), cluster_lr=cluster_lr))
    for epoch, loss in enumerate([None, None, *losses]):
        assert health.warnings == []
        health.look({"epoch": epoch, "l1": 1.0, "l2": loss})
    assert [("ends at 0.590, and was 0.600" in text, "--cluster-lr" in text) for text in health.warnings] == [
        (True, True)
    ] * told


@pytest.mark.parametrize("name", SYMPTOMS)
def test_what_the_run_ends_with_is_told_at_once(name: str) -> None:
    changes, seen, _ = SYMPTOMS[name]
    health = Health(Config(n_clusters=4, epochs=20, monitor_every=5))
    health.look({"epoch": 18, "l2": 1.0})
    health.look(SOUND | changes | {"epoch": 19})
    if name == "unison":  # one look cannot tell it from a good end
        assert health.warnings == []
    else:
        (warning,) = health.warnings
        assert seen in warning


def test_a_sound_run_and_a_short_fright_are_not_told() -> None:
    health = Health(Config(n_clusters=4, epochs=40))
    for epoch in range(40):
        bad = {"l2": 1.4, "cluster_sizes": [20, 0, 0, 0], "feature_std": 0.0, "diversity_mean": 0.0}
        sound = SOUND | {"l2": 1 - epoch / 100}
        health.look((sound | bad if epoch % PATIENCE and epoch < 39 else sound) | {"epoch": epoch})
    without_consensus = Health(Config(n_clusters=4, gamma=0))
    for _ in range(40):  # full agreement in the end is what training is for
        health.look(SOUND | {"diversity_mean": 1.0})
        without_consensus.look(SOUND | {"diversity_mean": 1.0})
    assert health.warnings == without_consensus.warnings == []


def test_the_consensus_loss_alone_is_watched_too() -> None:
    for alpha, advised in ((1, False), (0, True)):
        health = Health(Config(n_clusters=4, alpha=alpha, beta=0, epochs=1))
        health.look({"epoch": 0, "l2": None, "l3": 1.386})
        assert "ln K = 1.386" in health.warnings[0]
        assert ("--alpha 1" in health.warnings[0]) is advised


@pytest.mark.parametrize(("n", "empty", "told"), [(4096, 100, False), (4096, 200, True), (4095, 1, True)])
def test_clusters_that_a_sample_misses_by_chance_are_not_told(n: int, empty: int, told: bool) -> None:
    """4,096 images of many cannot show 1,000 clusters; fewer are the whole set."""
    sizes = [0] * empty + [1] * (999 - empty) + [n - 999 + empty]
    health = Health(Config(n_clusters=1000, epochs=1))
    health.look(SOUND | {"epoch": 0, "cluster_sizes": sizes})
    assert [f"only {1000 - empty} of 1000" in warning for warning in health.warnings] == [True] * told


@pytest.mark.parametrize(
    ("K", "dimensions", "told"),
    [(2, 1.0, False), (4, 1.6, False), (10, 2.9, True), (10, 3.1, False), (1000, 3.1, False)],
)
def test_features_in_a_plane_are_told_where_clusters_need_more_room(K: int, dimensions: float, told: bool) -> None:
    health = Health(Config(n_clusters=K, epochs=1))
    health.look({"epoch": 0, "feature_std": 0.9, "feature_dimensions": dimensions})
    assert len(health.warnings) == told


def test_features_that_hardly_differ_are_told_once_and_not_as_flat_too() -> None:
    health = Health(Config(n_clusters=10, epochs=1))
    health.look({"epoch": 0, "feature_std": 0.0, "feature_dimensions": 0.0})
    assert len(health.warnings) == 1


def test_epochs_without_a_look_neither_count_nor_forget() -> None:
    health = Health(Config(n_clusters=4, monitor_every=3))
    for _ in range(PATIENCE):
        health.look({"l2": None})
        health.look({"l2": 1.0})
        health.look(SOUND | {"feature_std": 0.01})
    assert len(health.warnings) == 1


def test_only_strict_complains_and_of_the_first() -> None:
    health, lenient = Health(Config(n_clusters=4), strict=True), Health(Config(n_clusters=4))
    assert health.complaint is None
    for _ in range(PATIENCE):
        health.look(SOUND | {"feature_std": 0.01})
        lenient.look(SOUND | {"feature_std": 0.01})
    assert health.complaint == health.warnings[0] == lenient.warnings[0]
    assert lenient.complaint is None


# ---- sets on which nothing can be learned ---------------------------------------------------------------------


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(source: str, *more: str) -> int:
    options = [
        *OPTIONS,
        "--cluster-start",
        "0",
        "--monitor-every",
        "1",
        "--checkpoint-minutes",
        "10",
        "--quiet",
        "--no-report",
    ]
    return main(["fit", source, "-o", "run", "--epochs", str(PATIENCE + 1), *options, *more])


def finite_result(n: int, K: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("run/summary.json").read_text())
    assert sum(found["sizes"]) == n
    assert len(found["sizes"]) == K
    assert np.isfinite(np.load("run/embeddings.npy")).all()
    assert "nan" not in Path("run/assignments.csv").read_text()
    return found


def equal_but_not_the_same_bytes(folder: Path, colours: list[int], n: int) -> None:
    """As many files of so many pictures; a comment in each, or they would be left out as copies."""
    from PIL.PngImagePlugin import PngInfo

    folder.mkdir()
    for i in range(n):
        note = PngInfo()
        note.add_text("number", f"{i:03d}")
        pixels = np.full((16, 16, 3), colours[i % len(colours)], np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png", pnginfo=note)


def test_all_images_equal() -> None:
    equal_but_not_the_same_bytes(Path("photos"), [128], 24)
    assert fit("photos", "-k", "3", "--preset", "none") == 0
    warnings = finite_result(24, 3)["warnings"]
    assert any("hardly differ" in warning for warning in warnings)
    assert any("of 3 clusters" in warning for warning in warnings)


def test_two_images_only() -> None:
    equal_but_not_the_same_bytes(Path("photos"), [0, 255], 24)
    assert fit("photos", "-k", "3", "--preset", "none") == 0
    assert any("of 3 clusters" in warning for warning in finite_result(24, 3)["warnings"])


def test_two_images_and_no_more() -> None:
    photos(Path("photos"), 2)
    assert fit("photos", "-k", "2", "--batch-size", "2") == 0
    finite_result(2, 2)


@pytest.mark.parametrize(("k", "told"), [(2, False), (3, True)])
def test_fewer_clusters_are_advised_only_where_there_can_be_fewer(k: int, told: bool) -> None:
    health = Health(Config(n_clusters=k, epochs=1))
    health.look({"epoch": 0, "cluster_sizes": [9] + [0] * (k - 1)})
    (warning,) = health.warnings
    assert ("(-k)" in warning) == told


def test_a_cluster_that_is_empty_by_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each look two prototypes lie on images, and the third on the far side; no step follows the last look."""
    from torch.nn.functional import normalize

    from concurl.training.monitor import Monitor

    plain = Monitor.look

    def look(self: Monitor, model: Model, clustering: bool) -> dict[str, Any]:
        found = self.embeddings(model, np.arange(len(self.images)), ["online"])
        z = normalize(found["online"].z, dim=1)
        model.prototypes.data.copy_(torch.stack([z[0], -normalize(z.mean(0), dim=0), z[1]]))
        return plain(self, model, clustering)

    monkeypatch.setattr(Monitor, "look", look)
    photos(Path("photos"))
    assert fit("photos", "-k", "3") == 0
    last = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert last["cluster_sizes"][1] == 0
    (warning,) = [w for w in finite_result(24, 3)["warnings"] if "clusters are used" in w]
    assert warning.startswith("only 2 of 3 clusters"), warning
    assert main(["predict", "run", "photos", "-o", "new.csv", "--quiet"]) == 0
    assert Path("new.csv").read_text() == Path("run/assignments.csv").read_text()


def test_as_many_clusters_as_images() -> None:
    photos(Path("photos"), 16)
    assert fit("photos", "-k", "16") == 0
    warnings = finite_result(16, 16)["warnings"]
    assert any("of 16 clusters are used" in warning for warning in warnings)
    assert any("ln K = 2.773" in warning for warning in warnings)


def test_more_clusters_than_images_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    photos(Path("photos"), 16)
    assert fit("photos", "-k", "17") == 2
    assert "more than the 16 images" in capsys.readouterr().err


def test_copies_alone_are_too_few_images(capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(Path("photos"), 1)
    for i in range(10):
        (folder / f"copy-{i}.png").write_bytes((folder / "000.png").read_bytes())
    assert fit("photos", "-k", "3") == 2
    assert "more than the 1 image (10 files left out" in capsys.readouterr().err


def test_strict_ends_the_run_and_it_goes_on_without(capsys: pytest.CaptureFixture[str]) -> None:
    equal_but_not_the_same_bytes(Path("photos"), [128], 24)
    assert fit("photos", "-k", "3", "--preset", "none", "--strict") == 1
    said = capsys.readouterr().err
    assert f"stops at step {3 * PATIENCE}; it goes on without --strict" in said  # at once, and not at the end
    assert "Traceback" not in said
    assert not Path("run/assignments.csv").exists()
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    finite_result(24, 3)


def test_strict_holds_in_a_run_too_short_for_patience_and_when_it_is_resumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `modern` looks: every fifth epoch, and clusters only at the end; here the last look is the only one."""
    equal_but_not_the_same_bytes(Path("photos"), [128], 24)
    short = ["--epochs", "3", "--monitor-every", "5", "--cluster-start", "0.85"]
    assert fit("photos", "-k", "3", "--preset", "none", "--strict", *short) == 1
    resumed = ["fit", "--resume", "-o", "run", "--quiet", "--no-report"]
    assert main([*resumed, "--strict"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not Path("run/assignments.csv").exists()
    assert main(resumed) == 0
    warnings = finite_result(24, 3)["warnings"]
    assert any("hardly differ" in warning for warning in warnings)
    assert any("of 3 clusters" in warning for warning in warnings)


def test_kinds_that_are_easy_to_tell_apart_bring_no_warning() -> None:
    """Found at once by k-means, all members agree from the first look on, and the loss is next to nothing."""
    health = Health(Config(n_clusters=4, epochs=100))
    for epoch in range(100):
        health.look({"epoch": epoch, "l2": 0.01, "l3": 0.01, "diversity_mean": 1.0, "cluster_sizes": [10] * 4})
    assert health.warnings == []


def test_a_symptom_that_has_gone_is_not_what_the_run_ends_with(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(Config(n_clusters=4, epochs=100))
    for epoch in range(50):
        health.look({"epoch": epoch, "feature_std": 0.5, "feature_dimensions": 1.1})
    assert len(health.warnings) == 1  # and told, once
    for epoch in range(50, 100):
        health.look({"epoch": epoch, "feature_std": 0.5, "feature_dimensions": 2.5})
    assert health.warnings == []
    assert len(caplog.messages) == 1
