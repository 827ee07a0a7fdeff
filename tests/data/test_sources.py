"""From what the user hands over to an ImageSet."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from folders import HOSTILE, zoo
from pictures import encoded, scene
from PIL import Image

from concurl.data.batches import sample
from concurl.data.files.listing import list_source
from concurl.data.imageset import ImageSet
from concurl.data.pictures.decode import decode
from concurl.data.sources import read_source
from concurl.data.storage import sizes
from concurl.data.storage.reader import read_files
from concurl.data.storage.sizes import choose_size, stored_size
from concurl.errors import UserError


def photos(root: Path, count: int = 12, height: int = 100, width: int = 120) -> Path:
    for i in random.sample(range(count), count):
        path = root / f"class{i % 3}" / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(Image.fromarray(scene(height, width, seed=i)), "PNG"))
    return root


def same(one: ImageSet, other: ImageSet) -> bool:
    return (
        list(one.names) == list(other.names)
        and list(one.skipped) == list(other.skipped)
        and np.array_equal(one.images, other.images)
    )


def test_images_and_names_belong_together(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    found = read_source(root, cache=tmp_path / "cache", workers=0)
    assert found.images.shape == (12, 3, 96, 96)
    assert list(found.names) == sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    for name, image in zip(found.names, found.images, strict=True):
        assert (image == decode((Path(found.root) / name).read_bytes(), 96).pixels).all()


def test_a_limit_opens_no_other_files_and_keeps_the_whole_pack(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    whole = read_source(root, 32, cache=tmp_path / "cache", workers=0)
    (root / "notes.txt").write_text("not chosen where there are images")
    some = read_source(root, 32, cache=tmp_path / "cache", workers=0, limit=5)
    chosen = sample(0, 12, 5).tolist()
    assert list(some.names) == [whole.names[i] for i in chosen]
    assert np.array_equal(some.images, whole.images[chosen])
    assert (some.summary.files, list(some.skipped)) == (5, [])
    (root / "notes.txt").unlink()
    again = read_source(root, 32, cache=tmp_path / "cache", workers=0)
    assert again.reused
    assert same(read_source(root, 32, cache=tmp_path / "cache", workers=0, limit=12), whole)
    for name in set(whole.names) - set(some.names):
        (root / name).write_bytes(b"damaged")
    fresh = read_source(root, 32, cache=tmp_path / "fresh", workers=0, limit=5)
    assert same(fresh, some)
    thrice = [root / name for name in some.names] * 3
    assert len(read_source(thrice, 32, cache=tmp_path / "cache", workers=0, limit=14).each_given()) == 5


def test_order_times_and_workers_do_not_matter(tmp_path: Path) -> None:
    """The same files, made in another order and at other times, by any number of workers."""
    zoo(photos(tmp_path / "one"))
    shutil.copytree(
        tmp_path / "one", tmp_path / "two", symlinks=True, ignore=lambda _, names: {"pipe.jpg"} & set(names)
    )
    os.mkfifo(tmp_path / "two" / "pipe.jpg")
    for i, path in enumerate(sorted((tmp_path / "two").rglob("*.png"), reverse=True)):
        content = path.read_bytes() if path.is_file() else None
        if content is not None:
            path.unlink()
            path.write_bytes(content)
            os.utime(path, (i, i))
    sets = [
        read_source(tmp_path / folder, cache=tmp_path / f"cache{workers}", workers=workers)
        for folder in ("one", "two")
        for workers in (0, 1, 2)
    ]
    assert all(same(sets[0], other) for other in sets[1:])


def test_a_cache_within_the_folder_is_not_read(tmp_path: Path) -> None:
    root = photos(tmp_path)
    first = read_source(root, 32, cache=root / "runs" / "cache", workers=0)
    again = read_source(root, 32, cache=root / "runs" / "cache", workers=0)
    assert same(first, again)
    assert again.reused
    assert not again.skipped


def test_hostile_names(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i, name in enumerate(HOSTILE):
        with open(os.path.join(os.fsencode(tmp_path / "photos"), name), "wb") as file:
            file.write(encoded(Image.fromarray(scene(seed=i)), "PNG"))
    for _ in range(2):  # fresh, and from the pack
        found = read_source(tmp_path / "photos", cache=tmp_path / "cache")
        assert [os.fsencode(name) for name in found.names] == sorted(HOSTILE)
        assert all(os.path.exists(tmp_path / "photos" / name) for name in found.names)


def test_shards_lists_and_folders_give_the_same_images(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    whole = read_source(root, 64, cache=tmp_path / "cache", workers=0)
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for path in sorted(root.rglob("*.png"), reverse=True):
            tar.add(path, path.relative_to(root).as_posix())
            note = tarfile.TarInfo(path.stem + ".json")
            note.size = 2
            tar.addfile(note, io.BytesIO(b"{}"))
    (tmp_path / "all.txt").write_text("\n".join(str(path) for path in root.rglob("*.png")))
    (tmp_path / "all.csv").write_text("path\n" + "\n".join(f"photos/{name}" for name in whole.names))
    for source, prefix in (
        ("s.tar", "s.tar/"),
        ("all.txt", "photos/"),
        ("all.csv", "photos/"),
        ("*.tar", "s.tar/"),
    ):
        found = read_source(str(tmp_path / source), 64, cache=tmp_path / "cache", workers=2)
        assert list(found.names) == [prefix + name for name in whole.names]
        assert np.array_equal(found.images, whole.images)
        assert not found.skipped
        assert found.summary.bytes == whole.summary.bytes  # of a member its own, and not the shard to its end


def test_the_files_as_they_were_given(tmp_path: Path) -> None:
    """For labels: a list in its order, repeated lines and copies too. For training: each image once, by name."""
    root = photos(tmp_path / "photos", 6)
    files = sorted(root.rglob("*.png"))
    copy = root / "0 copy.png"  # the first by name: what is left out is the original then
    shutil.copy(files[3], copy)
    (root / "broken.png").write_bytes(b"no")
    lines = [files[4], files[3], root / "broken.png", files[0], copy, files[4]]
    for _ in range(2):  # fresh, and from the pack
        found = read_source(lines, 32, cache=tmp_path / "cache", workers=0)
        assert len(found) == 3
        each = found.each_given()
        assert [root / name for name in each.names] == [files[4], files[3], files[0], copy, files[4]]
        assert [skip.status for skip in each.skipped] == ["not an image"]
        want = np.stack([decode((root / name).read_bytes(), 32).pixels for name in each.names])
        assert each.images.shape == want.shape
        assert np.array_equal(np.asarray(each.images), want)
        assert np.array_equal(np.asarray(each.images[1:3]), want[1:3])
    again = read_source(sorted(lines), 32, cache=tmp_path / "cache", workers=0)
    assert again.reused
    assert np.array_equal(again.images, found.images)
    whole = read_source(root, 32, cache=tmp_path / "cache", workers=0).each_given()
    assert list(whole.names) == sorted(path.relative_to(root).as_posix() for path in [*files, copy])
    plain = read_source(files[:3], 32, cache=tmp_path / "cache", workers=0)
    assert plain.each_given() is plain


def test_read_files(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    paths = sorted(root.rglob("*.png"), reverse=True)
    shutil.copy(paths[0], root / "copy.png")
    found = read_files([*paths, root / "copy.png"], 48, root=root)
    assert list(found.names) == sorted(path.relative_to(root).as_posix() for path in [*paths, root / "copy.png"])
    assert found.images.shape == (13, 3, 48, 48)  # a benchmark's copies are part of it
    assert not found.skipped
    assert found.each_given() is found  # by name, as its labels are, and not in the order of the paths
    assert len(read_source([*paths, root / "copy.png"], 48)) == 12  # but not of a list of the user's


def test_nothing_to_read(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    root.mkdir()
    with pytest.raises(UserError, match="no files at all"):
        read_source(root, cache=tmp_path / "cache")
    (root / "0.txt").write_text("text")
    with pytest.raises(UserError, match=r"docs: 1 file, of them 1 \.txt;"):
        read_source(root, cache=tmp_path / "cache")
    for i in range(10):
        (root / f"{i}.txt").write_text("text")
    (root / "a.pdf").write_bytes(b"%PDF")
    (root / "b.pdf").write_bytes(b"%PDF")
    with pytest.raises(
        UserError, match=r"no images in .*docs: 12 files, of them 10 \.txt, 2 \.pdf; 12 not an image \("
    ):
        read_source(root, cache=tmp_path / "cache")
    (root / "c.jpg").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"1 \.jpg; 12 not an image \(0\.txt: none of .*\); 1 empty \(c\.jpg: 0 bytes\)"
    ):
        read_source(root, cache=tmp_path / "cache")
    with pytest.raises(UserError, match=r"2 given paths: 2 files.*2 unreadable \(no\.png: No such file"):
        read_source([root / "no.png", root / "none.png"], cache=tmp_path / "cache")
    with pytest.raises(UserError) as error:
        read_source([root / "0.txt"], cache=tmp_path / "cache")
    assert "a list's paths start from" not in str(error.value)  # it was found
    assert not [name for name in os.listdir(tmp_path / "cache") if not name.endswith(".lock")]


def test_choose_size() -> None:
    for side, chosen in (
        (8, 32),
        (32, 32),
        (47, 32),
        (96, 96),
        (100, 96),
        (223, 160),
        (224, 224),
        (5000, 224),
    ):
        assert choose_size([(side, 2 * side)]) == choose_size([(side + 9, side)]) == chosen
    assert choose_size([(64, 64), (300, 300)]) == 64  # the lower of two medians
    assert choose_size([(10, 10), (64, 64), (300, 300)]) == 64
    assert choose_size([]) == 32
    assert [stored_size(size) for size in (32, 96, 128, 160, 224)] == [32, 96, 128, 183, 256]


def test_the_size_comes_from_the_images(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 5, 240, 400)
    (root / "z.txt").write_text("no size")
    found = read_source(root, cache=tmp_path / "cache")
    assert found.images.shape == (5, 3, 256, 256)
    found = read_source(root, cache=tmp_path / "cache", largest=96)
    assert found.images.shape == (5, 3, 96, 96)
    for path in root.rglob("*.png"):
        path.rename(path.with_suffix(""))
    assert read_source(root, cache=tmp_path / "cache").images.shape == (5, 3, 256, 256)


def test_the_size_comes_from_images_all_over_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_SAMPLE", 3)
    for i, side in enumerate([40, 40, 100, 100, 100, 100]):
        (tmp_path / f"{i}.png").write_bytes(encoded(Image.fromarray(scene(side, side, seed=i)), "PNG"))
        (tmp_path / f"z{i}.txt").write_text("no size")
    assert read_source(tmp_path, cache=tmp_path / "cache", workers=0).images.shape[-1] == 96


def test_a_file_that_kills_its_reader_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ordered_map", lambda *_, **__: [b"[40, 60]", sizes.Lost("killed"), b""])
    assert sizes.measure_sizes(list_source(photos(tmp_path, 3)), 0) == [(40, 60)]
