"""A shard's index: the same members as the shard itself gives, without reading it, and only while it is the same shard."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.atomic import written_aside
from concurl.data.files import shardindex, shards
from concurl.data.files.entry import find_entry
from concurl.data.files.listing import list_source
from concurl.data.shardwriter import write_shards

NAMES = ["b.png", "a/1.jpg", "note.txt", "../../evil.jpg", "/x.jpg", "\udcff.png", "b.png"]  # the last b.png is valid


def write_tar(path: Path, names: list[str], size: int = 100) -> None:
    with tarfile.open(path, "w", errors="surrogateescape") as tar:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = size + number
            tar.addfile(info, io.BytesIO(bytes([number]) * info.size))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that were read and not taken from an index."""
    seen: list[str] = []
    members = shards.read_members
    monkeypatch.setattr(shards, "read_members", lambda path: seen.append(path.name) or members(path))
    return seen


def test_a_foreign_shard_is_read_once(tmp_path, read):
    write_tar(tmp_path / "s.tar", NAMES)
    plain = list(list_source(tmp_path / "s.tar"))
    assert len(plain) == 5
    assert [bool(entry.fault) for entry in plain] == [True, True, False, False, False]
    cache = tmp_path / "cache"
    for _ in range(3):
        for source in (tmp_path / "s.tar", str(tmp_path / "*.tar"), [tmp_path / "s.tar"], tmp_path):
            found = list_source(source, exclude=[cache], cache=cache)
            assert list(found) == plain
    assert read == ["s.tar"] * 2  # once without a cache, once with it
    data = (tmp_path / "s.tar").read_bytes()
    valid = next(entry for entry in found if entry.name == b"s.tar/b.png")
    assert data[valid.start : valid.start + valid.size] == bytes([6]) * 106


def test_a_shard_that_changes_is_read_again(tmp_path, read):
    cache, path = tmp_path / "cache", tmp_path / "s.tar"
    write_tar(path, ["a.png", "b.png"])
    list_source(path, cache=cache)
    length = path.stat().st_size
    write_tar(path, ["c.png", "d.png"])
    assert path.stat().st_size == length  # tar rounds up: equal lengths say little
    found = list_source(path, cache=cache)
    assert [entry.name for entry in found] == [b"s.tar/c.png", b"s.tar/d.png"]
    os.utime(path, ns=(1, 1))
    assert list_source(path, cache=cache)[0].mtime_ns == 1
    assert read == ["s.tar"] * 3
    assert len(list((cache / "shards").iterdir())) == 1  # the old ones have gone


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"[1]\n" + data,
        lambda data: data.replace(b"\x02" + bytes(7), b"\xff" * 8),
        lambda data: os.urandom(5000),
    ],
)
def test_a_damaged_index_is_made_again(harm, tmp_path, read):
    cache, path = tmp_path / "cache", tmp_path / "s.tar"
    write_tar(path, ["a.png", "b.png"])
    want = list(list_source(path, cache=cache))
    (index,) = (cache / "shards").iterdir()
    sound = index.read_bytes()
    index.write_bytes(harm(sound))
    assert list(list_source(path, cache=cache)) == want
    assert index.read_bytes() == sound
    assert read == ["s.tar"] * 2


@pytest.mark.parametrize("member", [("a", -1, 0), ("a", 1, -1), ("a", 10**6, 512), ("a", 9000, 9000), ("a", 1, 2**62)])
def test_an_index_that_points_outside_is_not_believed(member, tmp_path, read):
    cache, path = tmp_path / "cache", tmp_path / "s.tar"
    write_tar(path, ["a.png", "b.png"])
    want = list(list_source(path))
    name, size, start = member
    shard = find_entry(os.fsencode(tmp_path), b"s.tar")
    shardindex.write_index(shardindex.in_cache(path, cache), shard, [shardindex.Member(name.encode(), size, start)])
    assert list(list_source(path, cache=cache)) == want
    assert read == ["s.tar"] * 2


def test_a_damaged_shard_gets_no_index(tmp_path):
    cache, path = tmp_path / "cache", tmp_path / "s.tar"
    write_tar(path, [f"{i}.png" for i in range(9)], size=2000)
    path.write_bytes(path.read_bytes()[:7000])
    for _ in range(2):
        assert list_source(path, cache=cache)[0].fault.startswith("a damaged archive")
    assert not (cache / "shards").exists()


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, read):
    write_tar(tmp_path / "s.tar", ["a.png"])
    (tmp_path / "cache").write_text("a file where a folder should be")
    for _ in range(2):
        assert len(list_source(tmp_path / "s.tar", cache=tmp_path / "cache")) == 1
    assert read == ["s.tar"] * 2


def test_an_index_that_another_process_writes_is_left_to_it(tmp_path):
    cache, path = tmp_path / "cache", tmp_path / "s.tar"
    write_tar(path, ["a.png"])
    (cache / "shards").mkdir(parents=True)
    with written_aside(shardindex.in_cache(path, cache)) as theirs:
        assert len(list_source(path, cache=cache)) == 1
        theirs.write(b"theirs")
    assert shardindex.in_cache(path, cache).read_bytes() == b"theirs"


def test_packed_shards_come_with_their_index(tmp_path, read):
    (tmp_path / "photos").mkdir()
    for i in range(5):
        pixels = np.full((8, 8, 3), i, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    write_shards(list_source(tmp_path / "photos"), tmp_path / "shards", per_shard=2)
    packed = list(list_source(tmp_path / "shards"))
    assert read == []
    for index in (tmp_path / "shards").glob(".*.index"):
        index.unlink()
    assert list(list_source(tmp_path / "shards")) == packed
    assert len(packed) == 5
    assert len(read) == 3
