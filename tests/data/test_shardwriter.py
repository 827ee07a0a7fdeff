"""Packing into shards: every byte arrives, an interruption costs one shard, foreign shards are not joined."""

from __future__ import annotations

import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main
from concurl.data import shardwriter
from concurl.data.files.listing import list_source
from concurl.data.sources import read_source
from concurl.errors import UserError


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "b").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(10):
        name = f"{'b/' if i % 2 else ''}{i}.{'png' if i % 3 else 'JPG'}"
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(folder / name)
    (folder / "note.txt").write_text("x")
    (folder / "empty.png").write_bytes(b"")
    return folder


def test_a_packed_source_reads_as_the_source_itself(photos, tmp_path, capsys):
    (photos / "4.png").rename(photos / os.fsdecode(b"4\xe9.png"))
    want = read_source(photos, 12, cache=tmp_path / "cache", workers=0)
    first, again = tmp_path / "new" / "shards", tmp_path / "again"
    for source, folder, left_out in ((photos, first, " (left out: 1 empty, 1 not an image)"), (first, again, "")):
        assert main(["pack", str(source), "-o", str(folder), "--per-shard", "4", "--quiet"]) == 0
        assert f"10 images packed{left_out}: " in capsys.readouterr().out
        assert len(list(folder.glob("*.tar"))) == 3
        found = read_source(folder, 12, cache=tmp_path / "cache", workers=0)
        assert [name.rpartition(".tar/")[2] for name in found.names] == list(want.names)
        assert np.array_equal(found.images, want.images)
        assert found.summary.bytes == sum(path.stat().st_size for path in photos.rglob("*.[pJ]*"))


def test_a_member_whose_name_leaves_its_archive_is_left_out(photos, tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name in ("1.png", "../2.png"):
            tar.add(photos / "b" / "1.png", name)
    assert shardwriter.write_shards(list_source(tmp_path / "s.tar"), tmp_path / "shards", per_shard=9) == {
        "packed": 1,
        "unreadable": 1,
    }


def test_a_picture_that_no_reader_of_shards_would_look_at_is_left_out(photos, tmp_path):
    (photos / "b" / "1.png").rename(photos / "b" / "1")
    assert shardwriter.write_shards(list_source(photos / "b"), tmp_path / "shards", per_shard=9) == {
        "packed": 4,
        "not an image": 1,
    }


def test_a_list_of_files_elsewhere_stays_in_its_archive(photos, tmp_path):
    """The shard's own reader, like any careful one, takes no name that leads out of it."""
    (tmp_path / "lists").mkdir()
    names = ["../photos/b/1.png", str(photos / "2.png"), "../photos/b/../4.png"]
    (tmp_path / "lists" / "some.txt").write_text("\n".join(names))
    found = shardwriter.write_shards(list_source(tmp_path / "lists" / "some.txt"), tmp_path / "shards", per_shard=9)
    assert found == {"packed": 3}, found
    read = read_source(tmp_path / "shards", 12, cache=tmp_path / "cache", workers=0)
    assert read.skipped == []
    assert sorted(name[-5:] for name in read.names) == ["1.png", "2.png", "4.png"]


def test_a_shard_of_another_tool_is_not_replaced(photos, tmp_path):
    mine = tmp_path / "mine" / "shard-000000.tar"
    mine.parent.mkdir()
    mine.write_bytes(b"of years ago")
    with pytest.raises(UserError, match=r"shard-000000\.tar is not one of ours, and would be replaced"):
        shardwriter.write_shards(list_source(photos), mine.parent, per_shard=9)
    assert [path.read_bytes() for path in mine.parent.iterdir()] == [b"of years ago"]


def test_an_interrupted_packing_goes_on(photos, tmp_path, monkeypatch):
    listing = list_source(photos)
    told = []
    whole = shardwriter.write_shards(listing, tmp_path / "whole", per_shard=3, progress=lambda *step: told.append(step))
    assert told == [("pack", done, 12) for done in (3, 6, 9, 12)]
    read, count = shardwriter.read_content, 0

    def until_killed(*arguments):
        nonlocal count
        count += 1
        if count == 6:
            raise KeyboardInterrupt
        return read(*arguments)

    monkeypatch.setattr(shardwriter, "read_content", until_killed)
    with pytest.raises(KeyboardInterrupt):
        shardwriter.write_shards(listing, tmp_path / "shards", per_shard=3)
    first = tmp_path / "shards" / "shard-000000.tar"
    written = first.stat().st_mtime_ns
    assert shardwriter.write_shards(listing, tmp_path / "shards", per_shard=3) == whole
    assert first.stat().st_mtime_ns == written
    first.unlink()
    assert shardwriter.write_shards(listing, tmp_path / "shards", per_shard=3) == whole
    for damaged in ("", "[]", '{"packed": null}'):
        (tmp_path / "shards" / ".shard-000000.json").write_text(damaged)
        assert shardwriter.write_shards(listing, tmp_path / "shards", per_shard=3) == whole
    made = {path for path in (tmp_path / "whole").iterdir() if path.suffix != ".index"}  # those hold the time
    assert len(made) == 9  # four shards, their counts, the manifest
    for path in made:
        assert (tmp_path / "shards" / path.name).read_bytes() == path.read_bytes()


def test_shards_of_another_source_are_not_joined(photos, tmp_path):
    shardwriter.write_shards(list_source(photos), tmp_path / "shards", per_shard=3)
    (photos / "note.txt").unlink()
    with pytest.raises(UserError, match="another source, size, or state"):
        shardwriter.write_shards(list_source(photos), tmp_path / "shards", per_shard=3)
