"""The packed copy: found again, made anew when anything changed, never half there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, scene
from PIL import Image

from concurl.data.checking import audit
from concurl.data.files.listing import list_source
from concurl.data.imageset import ImageSet
from concurl.data.pictures.decode import decode_picture
from concurl.data.pictures.reading import Reading
from concurl.data.sources import read_source
from concurl.data.storage import reader, store
from concurl.data.storage.reader import read_listing
from concurl.data.storage.store import find_slot, open_pack, write_pack
from concurl.errors import RunError, UserError
from file_limit import file_limit


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    root.mkdir()
    for i in range(20):
        (root / f"{i:02}.png").write_bytes(encoded(Image.fromarray(scene(seed=i)), "PNG"))
    (root / "text.jpg").write_text("no image")
    return root


def read(photos: Path, **options: Any) -> ImageSet:
    return read_source(photos, options.pop("size", 32), cache=photos.parent / "cache", workers=0, **options)


def test_a_second_start_decodes_nothing(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(photos)
    assert not first.reused
    monkeypatch.setattr(reader, "inspect", lambda *_, **__: pytest.fail("the files were read again"))
    second = read(photos)
    assert second.reused
    assert (second.summary, second.root) == (first.summary, first.root)
    assert isinstance(second.images, np.memmap)
    assert np.array_equal(first.images, second.images)
    assert list(first.names) == list(second.names)
    assert list(first.skipped) == list(second.skipped)


def rewrite(photos: Path) -> None:
    (photos / "03.png").write_bytes(encoded(Image.fromarray(scene(seed=99)), "PNG"))


def touch(photos: Path) -> None:
    os.utime(photos / "03.png", ns=(1, 1))


def add(photos: Path) -> None:
    (photos / "new.png").write_bytes(encoded(Image.fromarray(scene(seed=99)), "PNG"))


def remove(photos: Path) -> None:
    (photos / "03.png").unlink()


def rename(photos: Path) -> None:
    (photos / "03.png").rename(photos / "zz.png")


def mend(photos: Path) -> None:
    (photos / "text.jpg").write_bytes(encoded(Image.fromarray(scene(seed=99)), "JPEG"))


@pytest.mark.parametrize("change", [rewrite, touch, add, remove, rename, mend])
def test_any_change_makes_a_new_pack_in_place_of_the_old(photos: Path, change: Callable[[Path], None]) -> None:
    read(photos)
    change(photos)
    found = read(photos)
    assert not found.reused
    fresh = read_source(photos, 32, cache=photos.parent / "other", workers=0)
    assert np.array_equal(found.images, fresh.images)
    assert list(found.names) == list(fresh.names)
    assert len(list((photos.parent / "cache").glob("*.npy"))) == 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_file_that_the_disk_gives_again_is_read_again(
    photos: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """chmod, and a network disk that is back, change neither length nor time."""
    usual = os.open

    def refuse(path: Any, *arguments: Any) -> int:
        if str(path).endswith("03.png"):
            raise OSError(code, os.strerror(code))
        return usual(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        found = read(photos)
        assert ("03.png", os.strerror(code)) in [(skip.path, skip.reason) for skip in found.skipped]
        assert read(photos).reused
    found = read(photos)
    assert "03.png" in found.names
    assert read(photos).reused


def test_a_pack_that_another_program_has_changed_is_not_used(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "open_pack", lambda slot: None)
    with pytest.raises(RunError, match=r"changed while it was written: leave .*cache to concurl"):
        read(photos)


def test_other_settings_have_packs_of_their_own(photos: Path) -> None:
    readings = Reading((0, 0, 0)), Reading(depth=12)
    sets = [read(photos), read(photos, size=48), *(read(photos, reading=reading) for reading in readings)]
    with_copies = read_listing(list_source(photos), 32, photos.parent / "cache", keep_duplicates=True, workers=0)
    assert not any(found.reused for found in [*sets, with_copies])
    assert read(photos).reused
    assert read(photos, size=48).reused


def test_a_pattern_has_a_pack_for_each_folder_it_is_used_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, level in (("dark", 10), ("light", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.bmp").write_bytes(encoded(Image.new("L", (32, 32), level), "BMP"))
        os.utime(tmp_path / name / "a.bmp", ns=(1, 1))
        monkeypatch.chdir(tmp_path / name)
        assert (read_source("*.bmp", 32, cache=tmp_path / "cache", workers=0).images == level).all()


def test_another_decoder_makes_a_new_pack(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(photos)
    monkeypatch.setattr(store, "VERSION", store.VERSION + 1)
    assert not read(photos).reused


def test_a_package_that_reads_more_makes_a_new_pack(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(photos)
    assert read(photos).reused
    monkeypatch.setattr(reader, "find_spec", lambda name: None)
    assert not read(photos).reused


def test_a_size_that_was_chosen_is_not_packed_again_when_it_is_named(photos: Path) -> None:
    """fit chooses a size, up to the device's limit; predict and --resume name it."""
    chosen = read(photos, size=None, largest=32)
    named = read(photos, size=chosen.images.shape[-1])
    assert (chosen.reused, named.reused) == (False, True)
    assert chosen.images.shape[-1] == 32
    assert named.images.filename == chosen.images.filename
    assert not read(photos, size=None, largest=48).reused


def test_one_folder_has_one_pack_however_its_path_is_written(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(photos)
    monkeypatch.chdir(photos.parent)
    again = read_source("photos/", 32, cache=Path("cache"), workers=0)
    assert again.reused


def test_the_file_is_plain_npy(photos: Path) -> None:
    found = read(photos)
    plain = np.load(found.images.filename)
    assert plain.shape == (20, 3, 32, 32)
    assert np.array_equal(plain, found.images)
    assert not found.images.flags.writeable


def test_a_damaged_pack_is_made_anew(photos: Path) -> None:
    first = np.array(read(photos).images)
    pack = Path(read(photos).images.filename)
    for damage in (pack, pack.with_suffix(".jsonl")):
        for length in (0, 10, damage.stat().st_size // 2, damage.stat().st_size - 1):
            os.truncate(damage, length)
            found = read(photos)
            assert not found.reused
            assert np.array_equal(found.images, first)
    rows = pack.with_suffix(".jsonl").read_bytes()
    lines = rows.splitlines(keepends=True)
    for damaged in (
        b"".join(lines[:-1]),  # cut between two lines
        b"".join([*lines[:5], *lines[6:]]),
        rows.replace(b"03.png", b"04.png"),
        rows[:900] + bytes(400) + rows[1300:],  # a block that the disk has lost
    ):
        pack.with_suffix(".jsonl").write_bytes(damaged)
        assert not read(photos).reused
        assert pack.with_suffix(".jsonl").read_bytes() == rows
    pack.unlink()
    assert not read(photos).reused
    pack.with_suffix(".jsonl").unlink()
    assert not read(photos).reused


def test_an_interrupted_packing_leaves_nothing(photos: Path) -> None:
    cache = photos.parent / "cache"
    cache.mkdir()
    slot = find_slot(cache, list_source(photos), side=32)

    def stream() -> Iterator[tuple[dict[str, Any], Any]]:
        yield {"path": "a", "status": "ok"}, np.zeros((3, 32, 32), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pack(slot, 32, 2, stream())
    assert os.listdir(cache) == []
    assert open_pack(slot) is None


def test_old_rows_never_stand_beside_new_pixels(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between its two renames, after which the folder becomes what it was before."""
    read(photos)
    content, times = (photos / "03.png").read_bytes(), os.stat(photos / "03.png").st_mtime_ns
    rewrite(photos)
    replace = os.replace

    def stop_before_rows(old: Path, new: Path) -> None:
        if new.suffix == ".jsonl":
            raise KeyboardInterrupt
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop_before_rows)
        with pytest.raises(KeyboardInterrupt):
            read(photos)
    (photos / "03.png").write_bytes(content)
    os.utime(photos / "03.png", ns=(times, times))
    found = read(photos)
    assert np.array_equal(found.images, read_source(photos, 32, cache=photos.parent / "other").images)


def pack_and_kill(photos: Path, seconds: float) -> None:
    script = "import sys; from concurl.data.sources import read_source\nread_source(sys.argv[1], 32, cache=sys.argv[2])"
    command = [sys.executable, "-c", script, str(photos), str(photos.parent / "cache")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)


def test_a_killed_packing_does_no_harm(photos: Path) -> None:
    cache = photos.parent / "cache"
    for i in range(20, 300):
        (photos / f"{i:03}.png").write_bytes(encoded(Image.fromarray(scene(seed=i)), "PNG"))
    expected = read_source(photos, 32, cache=photos.parent / "other")
    for seconds in (0.3, 0.5, 0.7):
        pack_and_kill(photos, seconds)
        found = read_source(photos, 32, cache=cache)
        assert np.array_equal(found.images, expected.images)
        assert len(os.listdir(cache)) == 3  # pixels, rows, lock: no leftovers
        shutil.rmtree(cache)


def test_two_processes_pack_once(photos: Path) -> None:
    script = (
        "import sys; from concurl.data.sources import read_source\n"
        "print(read_source(sys.argv[1], 32, cache=sys.argv[2]).reused)"
    )
    command = [sys.executable, "-c", script, str(photos), str(photos.parent / "cache")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate()[0].strip() for process in processes) == ["False", "True", "True"]


def test_who_waits_for_another_process_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slot, entered = store.Slot(tmp_path, "slot", "key"), threading.Event()

    def enter() -> None:
        with store.locked(slot):
            entered.set()

    caplog.set_level("INFO", "concurl")
    with store.locked(slot):
        assert not caplog.messages
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.5)
        assert ["waiting for its packed copy" in line for line in caplog.messages] == [True]
    assert entered.wait(60)
    waiting.join()


@pytest.mark.parametrize("moment", [(reader, "open_pack"), (np.lib.format, "open_memmap")])
def test_names_and_pixels_are_of_one_packing(
    photos: Path, moment: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process packs the folder anew, just before or after the pixels are opened."""
    read(photos)
    place, name = moment
    usual = getattr(place, name)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        early = usual(*arguments, **options) if name == "open_pack" else None
        rename(photos)
        read(photos)
        return early or usual(*arguments, **options)

    monkeypatch.setattr(place, name, overtaken)
    found = read(photos)
    assert len(found) >= 19
    for image, path in zip(found.images, found.names, strict=True):
        seed = 3 if path == "zz.png" else int(path.removesuffix(".png"))
        assert np.array_equal(image, decode_picture(Image.fromarray(scene(seed=seed)), 32))


def test_without_locks(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network disks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert len(read(photos)) == 20


def test_a_full_disk(photos: Path) -> None:
    """At any point of the writing: exit code 74, the message names path and bytes, and nothing is left."""
    needed = f"{21 * 3 * 32 * 32:,}"
    for limit in (0, 1, 100, 4000, 30_000, 61_000):
        with (
            file_limit(limit),
            pytest.raises(RunError, match=r"no space left to write .*\.(npy|jsonl).* set XDG_CACHE_HOME") as caught,
        ):
            read(photos)
        assert caught.value.exit_code == 74
        assert ".jsonl" in str(caught.value) or needed in str(caught.value)
        assert [name for name in os.listdir(photos.parent / "cache") if not name.endswith(".lock")] == []


def test_a_disk_that_is_too_small_is_noticed_before(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    monkeypatch.setattr(audit, "ordered_map", lambda *_, **__: pytest.fail("decoding began"))
    with pytest.raises(RunError, match=r"it needs 64,512 bytes; free some, or set XDG_CACHE_HOME") as caught:
        read(photos)
    assert caught.value.exit_code == 74


def test_a_limit_that_the_pack_does_not_fit_into_costs_no_second_decoding(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(photos)
    monkeypatch.setattr(reader, "inspect", lambda *_, **__: pytest.fail("decoding began"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "open_memmap", refuse)
        with pytest.raises(RunError, match=r"\.npy does not fit into the address space; raise its limit \(ulimit -v\)"):
            read(photos)
    assert read(photos).reused


def test_a_cache_that_cannot_be_written(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"cannot write .*Read-only file system; set XDG_CACHE_HOME to a folder"):
        read(photos)


def test_the_default_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(photos.parent / "xdg"))
    found = read_source(photos, 32, workers=0)
    assert Path(found.images.filename).parent == photos.parent / "xdg" / "concurl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)  # nobody whom the machine knows
    with pytest.raises(UserError, match=r"no home folder .* set XDG_CACHE_HOME"):
        read_source(photos, 32, workers=0)
