"""How pictures are read is said once, to fit; what is labelled later is read in the same way. The audit can be asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl import ConCURL
from concurl.cli import main
from concurl.data.pictures.reading import OWN, Reading
from concurl.data.sources import read_source
from small_run import fit, refused, rows, told


@pytest.fixture
def micrographs(tmp_path: Path) -> Path:
    """Pictures of a camera of 12 bits, dim and bright ones: a dim one needs no more than 8."""
    folder = tmp_path / "micrographs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(24):
        greatest = (200, 4000)[i % 2]
        Image.fromarray(rng.integers(0, greatest, (16, 16)).astype(np.uint16)).save(folder / f"{i:02}.tif")
    return folder


def was_read(folder: Path, reading: Reading) -> bool:
    """Is there a packed copy of the folder, made in this way?"""
    return bool(read_source(folder, 16, reading=reading).reused)


def lines_on_depth() -> list[str]:
    return [line for line in json.loads(Path("run/run.json").read_text())["chosen"] if line.startswith("depth")]


def test_unlike_depths_are_told_with_what_to_do(micrographs: Path) -> None:
    assert fit(micrographs) == 0
    (line,) = lines_on_depth()
    assert "12 use 8 bits and 12 use 12 bits" in line
    assert "give --depth 12" in line
    assert fit(micrographs, "--depth", "12", "--overwrite") == 0
    assert lines_on_depth() == []
    for dim in sorted(micrographs.iterdir())[::2]:
        dim.unlink()
    assert fit(micrographs, "--overwrite") == 0
    assert lines_on_depth() == []


def test_what_a_depth_clips_is_known_before_training(micrographs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for depth, clipped in (((), 0), (("--depth", "12"), 0), (("--depth", "11"), 12)):
        capsys.readouterr()
        assert main(["audit", str(micrographs), "-o", "files.csv", "--quiet", *depth]) == 0
        assert [row["reason"] for row in rows("files.csv")].count("gray, 12-bit, clipped") == clipped
        assert ("12 clipped" in capsys.readouterr().out) is bool(clipped)
    assert "depth=7: a whole number from 8 to 16 is needed" in refused(
        capsys, "audit", str(micrographs), "--depth", "7"
    )


def test_predict_reads_new_pictures_as_fit_read_its_own(micrographs: Path, photos: Path) -> None:
    camera = Reading((0, 0, 0), 12)
    assert fit(micrographs, "--depth", "12", "--background", "black") == 0
    assert was_read(micrographs, camera)
    assert main(["predict", "run", str(photos), "-o", "new.csv", "--quiet"]) == 0
    assert was_read(photos, camera)
    assert not was_read(photos, OWN)  # so the question means something


def test_predict_says_what_it_met(micrographs: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [Image.effect_noise((16, 16), sigma) for sigma in (20, 40)]
    pages[0].save(micrographs / "stack.tif", save_all=True, append_images=pages[1:])
    assert fit(photos, "--depth", "11") == 0
    for given, aloud in (([], True), (["--quiet"], False)):
        said = told(capsys, "predict", "run", str(micrographs), "-o", "new.csv", *given).err
        assert ("12 clipped, 1 first of several pages" in said) is aloud
        assert ("the others are not looked at" in said) is aloud


def test_the_estimator_does_so_too(micrographs: Path, photos: Path) -> None:
    options = {
        "encoder": "tiny",
        "image_size": 16,
        "epochs": 1,
        "batch_size": 8,
        "projector_hidden": 16,
        "queue_size": 0,
    }
    model = ConCURL(3, options=options | {"depth": 14, "background": "#102030"}).fit(str(micrographs))
    model.predict(str(photos))
    assert was_read(photos, Reading((16, 32, 48), 14))
