"""What leaves a run for other tools: folders of links, and a program that labels alike."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from concurl.cli import main
from concurl.clustering.assign import assign
from concurl.errors import RunError, UserError
from concurl.export import program
from concurl.export.folders import export_folders
from concurl.runs.provenance import Provenance
from concurl.runs.run import model_of
from file_limit import file_limit
from small_run import TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on 20 pictures, two of them of the same name in two folders."""
    base = tmp_path_factory.mktemp("export")
    rng = np.random.default_rng(0)
    for i in range(20):
        path = base / "photos" / f"{i % 2}" / f"{i // 2:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    assert main(["fit", str(base / "photos"), "-k", "3", "-o", str(base / "run"), *TINY, "--epochs", "1"]) == 0
    return base / "run"


def copied(run: Path, place: Path, **changes: str) -> Path:
    """The run in another folder, with another provenance."""
    shutil.copytree(run, place)
    (place / "run.json").write_text(dataclasses.replace(Provenance.read(run), **changes).to_json())
    return place


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.png")}


@pytest.mark.parametrize("how", ["symlink", "hardlink", "copy"])
def test_every_image_is_in_the_folder_of_its_cluster(run: Path, how: str, tmp_path: Path) -> None:
    photos = run.parent / "photos"
    before = content(photos)
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"0": "birds/..", "1": "cars"}))
    counts = export_folders(run, tmp_path / "out", how=how, names=names)
    assert sum(counts.values()) == 20
    lines = (run / "assignments.csv").read_text().splitlines()[1:]
    wanted = {}
    for line in lines:
        path, cluster, *_, status = line.split(",")
        folder = {"0": "000 birds_", "1": "001 cars", "2": "002"}[cluster]
        wanted[f"{'unsure' if status == 'unsure' else folder}/{path}"] = before[path]
    assert content(tmp_path / "out") == wanted
    some = next((tmp_path / "out").rglob("*.png"))
    assert some.is_symlink() == (how == "symlink")
    assert (some.stat().st_nlink > 1) == (how == "hardlink")
    assert content(photos) == before


@pytest.mark.parametrize("unsure", [0, 5])
def test_what_is_said_of_the_folders_counts_the_unsure(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], unsure: int
) -> None:
    shutil.copytree(run, tmp_path / "run")
    table = tmp_path / "run" / "assignments.csv"
    heading, *rows = table.read_text().replace(",unsure", ",ok").splitlines()
    table.write_text("\n".join([heading, *(row.replace(",ok", ",unsure") for row in rows[:unsure]), *rows[unsure:]]))
    assert main(["export", str(tmp_path / "run"), "--folders", "symlink", "-o", str(tmp_path / "sorted")]) == 0
    said = capsys.readouterr().out
    assert sum(path.is_symlink() for path in (tmp_path / "sorted" / "unsure").rglob("*")) == unsure
    assert (f", {unsure} of them in unsure: " in said) is bool(unsure)


@pytest.mark.parametrize("agreed", [0.0, 1.1])  # no run's agreement is below it, or every run's
def test_folders_of_a_run_that_is_not_healthy_come_with_a_warning(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, agreed: float
) -> None:
    monkeypatch.setattr("concurl.report.checks.AGREED", agreed)
    monkeypatch.setattr("concurl.report.checks.STUCK", 9.0)
    monkeypatch.setattr("concurl.report.checks.FLAT", 0.0)
    assert main(["export", str(run), "--folders", "symlink", "-o", str(tmp_path / "sorted")]) == 0
    warned = "do not rely on these folders yet (the ensemble disagrees with these clusters)"
    assert (warned in capsys.readouterr().err) is (agreed > 1)


def test_a_name_keeps_its_marks(run: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"0": "बिल्ली", "1": "cafe\u0301/x", "2": "ไก่"}))
    counts = export_folders(run, tmp_path / "out", how="symlink", names=names)
    assert set(counts) <= {"000 बिल्ली", "001 caf\u00e9_x", "002 ไก่", "unsure"}


def test_a_program_of_a_run_in_bfloat16_is_compared_in_its_own_arithmetic(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = model_of(run, "cpu")
    images = np.random.default_rng(0).integers(0, 256, (64, 3, 16, 16), dtype=np.uint8)
    half = dataclasses.replace(trained, autocast=torch.bfloat16)
    seen = []
    monkeypatch.setattr(program, "assign", lambda model, some: (seen.append(model.autocast), assign(model, some))[1])
    assert program.export_program(half, images, tmp_path / "half.pt2") == 64
    assert seen == [None]


def test_a_program_decides_between_equal_prototypes_as_the_model_does(run: Path, tmp_path: Path) -> None:
    trained = model_of(run, "cpu")
    images = np.random.default_rng(0).integers(0, 256, (64, 3, 16, 16), dtype=np.uint8)
    rows = torch.arange(13) % 2
    config = trained.config.replace(n_clusters=13)
    alike = dataclasses.replace(trained, config=config, centres=trained.centres[rows], scalings=trained.scalings[rows])
    assert program.export_program(alike, images, tmp_path / "alike.pt2") == 64


def test_clusters_of_one_name_share_a_folder(run: Path, tmp_path: Path) -> None:
    other, names = tmp_path / "sure", tmp_path / "names.json"
    shutil.copytree(run, other)
    (other / "assignments.csv").write_text((run / "assignments.csv").read_text().replace("unsure", "ok"))
    names.write_text(json.dumps({"2": "shoes", "1": "shoes", "0": ""}))
    counts = export_folders(other, tmp_path / "out", how="copy", names=names)
    assert counts.keys() == {"000", "001 shoes"}
    assert len(content(tmp_path / "out")) == 20


@pytest.fixture
def of_list(run: Path, tmp_path: Path) -> Path:
    """The run as it would be had a list in tmp_path named the pictures, which lie elsewhere."""
    other = copied(run, tmp_path / "of list", source=f"{tmp_path}/list.csv", root=str(tmp_path))
    root = run.parent / "photos"
    columns, *lines = (run / "assignments.csv").read_text().splitlines()
    places = [str(root), os.path.relpath(root, tmp_path)]  # lists are written in both ways
    lines = [f"{places[i % 2]}/{line}" for i, line in enumerate(lines)]
    (other / "assignments.csv").write_text("\n".join([columns, *lines]) + "\n")
    return other


def test_what_a_list_names_elsewhere_is_exported_as_well(run: Path, of_list: Path, tmp_path: Path) -> None:
    export_folders(run, tmp_path / "wanted", how="copy")
    export_folders(of_list, tmp_path / "sorted", how="copy")  # beside the list, which is no folder of pictures
    assert content(tmp_path / "sorted") == content(tmp_path / "wanted") != {}


@pytest.mark.parametrize("how", ["symlink", "hardlink", "copy"])
def test_links_and_names_that_are_no_text_are_exported(run: Path, how: str, tmp_path: Path) -> None:
    """Pictures that are themselves links, each relative to its folder, and called in bytes that are no UTF-8."""
    photos, links = run.parent / "photos", tmp_path / "links"
    other = copied(run, tmp_path / "of links", root=str(links))
    rows = (run / "assignments.csv").read_bytes().replace(b".png", b"\xff.png")
    (other / "assignments.csv").write_bytes(rows)
    for photo in photos.rglob("*.png"):
        link = links / photo.relative_to(photos).with_name(photo.stem + os.fsdecode(b"\xff.png"))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(photo, link.parent))
    export_folders(other, tmp_path / "out", how=how)
    assert sorted(content(tmp_path / "out").values()) == sorted(content(photos).values())


def test_members_of_a_shard_are_no_files_to_link(run: Path, tmp_path: Path) -> None:
    packed = copied(run, tmp_path / "packed", root=str(tmp_path / "shards"))
    (tmp_path / "shards").mkdir()
    for name in "01":  # the first part of each path is a file
        (tmp_path / "shards" / name).write_text("a tar")
    for out in (tmp_path / "out", tmp_path / "shards" / "out"):  # beside the shards it would not help to go elsewhere
        with pytest.raises(UserError, match=r"nothing to link to or copy; .*packed/assignments\.csv"):
            export_folders(packed, out, how="copy")


def test_files_beside_a_shard_are_linked_and_its_members_are_told(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photos, places = run.parent / "photos", tmp_path / "places"
    mixed = copied(run, tmp_path / "mixed", root=str(places))
    shutil.copytree(photos / "1", places / "1")
    (places / "0").write_text("a tar")
    members = len(list((photos / "0").iterdir()))
    assert sum(export_folders(mixed, tmp_path / "out", how="copy").values()) == 20 - members
    assert f"in tar shards, or gone: {members} of the run's 20 images, the first '0/" in caplog.text


def test_wrong_use_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="symlink, hardlink or copy"):
        export_folders(run, tmp_path / "out", how="move")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UserError, match="not an empty folder"):
        export_folders(run, tmp_path / "full", how="copy")
    with pytest.raises(UserError, match="holds no run"):
        export_folders(tmp_path, tmp_path / "out", how="copy")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_half_picture(run: Path, tmp_path: Path) -> None:
    with file_limit(10), pytest.raises(RunError, match="no space left to write") as caught:
        export_folders(run, tmp_path / "out", how="copy")
    assert caught.value.exit_code == 74
    assert content(tmp_path / "out") == {}


def test_a_link_across_disks_leaves_the_folder_for_the_next_try(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match=r"Invalid cross-device link.*try --folders copy"):
        export_folders(run, tmp_path / "out", how="hardlink")
    assert sum(export_folders(run, tmp_path / "out", how="copy").values()) == 20


def test_the_exported_program_labels_as_the_model_does(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a user can do nothing about what torch.export thinks of itself
        assert main(["export", str(run), "--model", "-o", str(file)]) == 0
    captured = capsys.readouterr()
    assert "same labels" in captured.out
    assert "Warning" not in captured.err
    loaded = torch.export.load(file).module()
    photos = sorted((run.parent / "photos").rglob("*.png"), key=lambda p: str(p).encode())
    pixels = np.stack([np.asarray(Image.open(p)).transpose(2, 0, 1) for p in photos])
    labels, q, z = loaded(torch.from_numpy(pixels))
    wanted = [int(line.split(",")[1]) for line in (run / "assignments.csv").read_text().splitlines()[1:]]
    assert labels.tolist() == wanted
    assert q.shape == (20, 3)
    np.testing.assert_allclose(z.numpy(), np.load(run / "embeddings.npy"), atol=1e-5)
    assert loaded(torch.from_numpy(pixels[:1]))[0].tolist() == wanted[:1]


def test_a_program_that_labels_otherwise_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "assign", lambda _, images: SimpleNamespace(labels=np.full(len(images), -1)))
    assert main(["export", str(run), "--model", "-o", str(tmp_path / "model.pt2")]) == 1
    assert "labels 20 of 20 images differently" in capsys.readouterr().err
    assert not (tmp_path / "model.pt2").exists()
