"""A run's page made again: elsewhere, from damaged files, and when pictures came or went."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main
from concurl.commands.images import change_of_images
from concurl.config import Config
from concurl.data.imageset import ImageSet
from concurl.data.sources import open_source
from concurl.runs.provenance import Provenance
from concurl.runs.spreadsheet import labelled_paths
from small_run import TINY, fit, refused, rows, told
from trees import tree_hash


def test_a_page_elsewhere_leaves_the_run_alone(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A colleague's run, say, on a disk that one may only read."""
    (photos / "00.png").rename(photos / os.fsdecode(b"\xff.png"))
    assert fit(photos) == 0
    Path("run/names.json").write_text('{"0": "birds"}')
    before = tree_hash(Path("run"))
    for page in ("page.html", "PAGE.HTM"):
        assert main(["report", "run", "-o", page]) == 0
        captured = capsys.readouterr()
        assert captured.out.endswith(f"{page}\n")
        assert "page: 24 of 24 images" in captured.err
        assert "birds" in Path(page).read_text()
    assert "the images' own folder" in refused(capsys, "report", "run", "-o", f"{photos}/page.html", "--quiet")
    assert "a file of the run itself" in refused(capsys, "report", "run", "-o", "run/config.json", "--quiet")
    assert "such as page.html" in refused(capsys, "report", "run", "-o", "page.json", "--quiet")
    assert "such as run/report.html" in refused(capsys, "report", "run", "-o", "run", "--quiet")
    assert tree_hash(Path("run")) == before
    Path("run/report.html").mkdir()
    assert "run/report.html is a folder" in refused(capsys, "report", "run", "--quiet")


def test_what_is_damaged_is_made_anew_as_the_message_says(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    wanted = Path("run/assignments.csv").read_bytes()
    for name, call in {
        "embeddings.npy": "report run --quiet",
        "assignments.csv": "export run --folders copy -o sorted",
        "model/model.safetensors": "predict run photos -o new.csv --quiet",
    }.items():
        Path("run", name).write_bytes(Path("run", name).read_bytes()[:-20])
        assert "anew with concurl fit --resume" in refused(capsys, *call.split())
        assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
        assert main(call.split()) == 0
    assert Path("run/assignments.csv").read_bytes() == wanted


def test_a_damaged_epoch_is_told_once_and_the_others_stay(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--epochs", "3") == 0
    metrics = Path("run/metrics.jsonl")
    first, second, third = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(f"{first}{second[:40]}\n{third}")
    for call in ("report run", "fit --resume -o run --no-report"):
        assert (
            told(capsys, *call.split(), "--quiet").err.count("run/metrics.jsonl: damaged, and so left out: line 2\n")
            == 1
        )
    assert metrics.read_text() == first + third


def pictures(page: str) -> dict[str, bytes]:
    """The galleries' pictures by the files' names."""
    found = re.findall(
        r'<img src="data:image/webp;base64,([^"]+)" alt="([^",]+),', Path(page).read_text(encoding="utf-8")
    )
    return {name: base64.b64decode(data) for data, name in found}


def test_a_page_of_pictures_of_which_one_is_gone_and_one_is_new(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is shown under its own label, though their places have changed; the one that is gone is grey."""
    assert fit(photos) == 0
    assert "gone" not in told(capsys, "report", "run", "--quiet").err
    before = pictures("run/report.html")
    Path("labels.csv").write_text("path,label\n00.png,a\n04.png,a\ninner/01.png,b\n")
    (photos / "00.png").rename(photos / "zz.png")  # as many as before: each would be shown under the next one's label
    assert main(["report", "run", "--quiet", "--labels", "labels.csv"]) == 0
    assert "1 gone, such as 00.png and 1 new, such as zz.png" in capsys.readouterr().err
    after = pictures("run/report.html")
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] != before[name]] == ["00.png"]
    assert np.asarray(Image.open(io.BytesIO(after["00.png"]))).std() < 2


def test_a_page_of_names_that_look_alike_has_each_ones_picture(photos: Path) -> None:
    for name, odd in (("00.png", b"x\xfe.png"), ("04.png", b"x\xff.png")):
        os.rename(photos / name, os.fsencode(photos) + b"/" + odd)
    assert fit(photos) == 0
    assert main(["report", "run", "--quiet"]) == 0
    alike = re.findall(r'base64,([^"]+)" alt="x\ufffd\.png,', Path("run/report.html").read_text(encoding="utf-8"))
    assert len(set(alike)) == 2


def test_a_copy_with_an_earlier_name_does_not_take_a_pictures_place(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    assert main(["report", "run", "--quiet"]) == 0
    before = pictures("run/report.html")
    (photos / "000.png").write_bytes((photos / "inner" / "01.png").read_bytes())
    assert "changed" not in told(capsys, "report", "run", "--quiet").err
    assert pictures("run/report.html") == before


def test_pictures_that_were_exchanged_are_told(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    one, other = photos / "00.png", photos / "02.png"
    exchanged = one.read_bytes(), other.read_bytes()
    other.write_bytes(exchanged[0])
    one.write_bytes(exchanged[1])
    assert "have changed since run: other content under the same names" in told(capsys, "report", "run", "--quiet").err
    Path("labels.csv").write_text("path,label\n./00.png,a\n04.png,a\ninner/01.png,b\n")
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    assert "other content under the same names" in capsys.readouterr().err


def test_a_page_of_a_sample_that_cannot_be_drawn_again(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another number of files gives another sample: most of the run's pictures are there, but not among those."""
    assert fit(photos, "--limit", "16") == 0
    assert main(["report", "run", "--quiet"]) == 0
    used = {row["path"] for row in rows("run/assignments.csv")}
    next(path for path in photos.glob("*.png") if path.name not in used).unlink()
    assert "same sample cannot be drawn" in refused(capsys, "report", "run", "--quiet")


def test_other_images_are_not_shown_in_the_place_of_the_runs(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "00.png").rename(photos / os.fsdecode(b"\xff.png"))
    assert fit(photos) == 0
    config = Config.from_json(Path("run/config.json"))
    images = open_source(str(photos), image_size=16).images
    turned = ImageSet(images.images[::-1], list(images.names)[::-1])
    labelled, provenance = labelled_paths(Path("run")), Provenance.read(Path("run"))
    assert change_of_images(labelled, images, config, provenance) == ""
    assert change_of_images(labelled, turned, config, provenance) == "another order"
    for path in list(photos.rglob("*.png"))[1:]:
        path.rename(path.with_name(f"new {path.name}"))
    assert "not the images of run: 2" in refused(capsys, "report", "run", "--quiet")
    assert "or give their place with --source" in refused(capsys, "report", "run", "--quiet")
    photos.rename("moved")
    Path("moved/00.png").write_bytes(b"damaged")
    assert "images have changed" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet", "--source", "moved")
    assert "--source goes with" in refused(capsys, "fit", "moved", "--source", "moved", "-o", "new")


def test_the_galleries_show_the_files_and_not_the_small_copies_of_them(photos: Path) -> None:
    """Training at 16 px needs no more; someone who looks at the page does."""
    for path in photos.rglob("*.png"):
        Image.open(path).resize((200, 220), Image.Resampling.NEAREST).save(path)
    (photos / "00.png").write_bytes((photos / "04.png").read_bytes())  # a copy
    Image.open(photos / "02.png").resize((12, 12)).save(photos / "02.png")
    Image.open(photos / "08.png").resize((90, 50)).save(photos / "08.png")
    assert fit(photos) == 0
    (photos / "06.png").unlink()
    assert main(["report", "run", "--quiet"]) == 0
    sides = {name: Image.open(io.BytesIO(data)).size[0] for name, data in pictures("run/report.html").items()}
    assert (sides.pop("02.png"), sides.pop("06.png")) == (16, 16)  # nothing more to show, and nothing there
    assert sides.pop("08.png") == 50  # not blown up
    assert set(sides.values()) == {160}


def test_a_sample_of_which_one_picture_was_replaced_is_still_that_sample(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos, "--limit", "16") == 0
    used = photos / rows("run/assignments.csv")[0]["path"]
    Image.open(used).rotate(180).save(used)
    assert main(["report", "run", "--quiet"]) == 0
    assert "other content under the same names" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["photos", "shards", "both", "digits"])
def test_a_page_says_how_to_sort_files_where_there_are_files_to_sort(
    photos: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    assert main(["pack", "photos", "-o", "shards", "--quiet"]) == 0
    shutil.copytree("shards", "both")
    shutil.copyfile(photos / "00.png", "both/00.png")
    assert main(["fit", source, "-k", "3", "-o", "run", *TINY, *(["--limit", "24"] if source == "digits" else [])]) == 0
    assert main(["report", "run", "--quiet"]) == 0
    page = re.sub("<.*?>", "", Path("run/report.html").read_text())
    advice = "To sort the files into folders: concurl export RUN --folders copy -o sorted."
    if source in ("photos", "both"):
        assert advice in page
        assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    else:
        assert "To sort the files" not in page
        assert "to link to or copy; the cluster of each is in run/assignments.csv" in refused(
            capsys, "export", "run", "--folders", "copy", "-o", "sorted"
        )
