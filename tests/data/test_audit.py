"""One row per file, whatever the file."""

from __future__ import annotations

import csv
import hashlib
import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from folders import HOSTILE, PHOTO, zoo
from mutants import mutated
from pictures import encoded, png, png_bomb, scene
from PIL import Image

from concurl.data.checking.audit import Row, audit, summarise, write_csv
from concurl.data.checking.duplicates import Firsts
from concurl.errors import RunError
from file_limit import file_limit
from trees import tree_hash


@pytest.mark.parametrize("workers", [0, 2])
def test_every_kind_gets_its_row(tmp_path: Path, workers: int) -> None:
    expected = zoo(tmp_path)
    before = tree_hash(tmp_path)
    rows = list(audit(tmp_path, workers=workers))
    assert {row.path: row.status for row in rows} == expected
    assert [row.path for row in rows] == sorted(expected)
    by_name = {row.path: row for row in rows}
    jpeg = (tmp_path / "a.jpg").read_bytes()
    assert by_name["a.jpg"] == Row(
        "a.jpg", "ok", "", 64, 64, "RGB", "JPEG", len(jpeg), hashlib.sha256(jpeg).hexdigest()
    )
    assert by_name["copy of a.jpg"].reason == "the same content as a.jpg"
    assert by_name["animated.gif"].reason == "palette, animated"
    assert by_name["deep.png"].reason == "gray, 16-bit"
    assert by_name["rotated.webp"].reason == "exif-rotated"
    assert all(row.reason for row in rows if row.status != "ok")
    assert tree_hash(tmp_path) == before


def test_the_summary_adds_up(tmp_path: Path) -> None:
    expected = zoo(tmp_path)
    done = []
    summary = summarise(audit(tmp_path, workers=0, progress=lambda *step: done.append(step)))
    assert summary.files == len(expected) == sum(summary.statuses.values())
    assert summary.statuses == {s: list(expected.values()).count(s) for s in expected.values()}
    assert summary.oddities == {
        "palette": 1,
        "animated": 1,
        "cmyk": 1,
        "gray": 1,
        "16-bit": 1,
        "exif-rotated": 1,
    }
    assert "5 ok" in str(summary)
    assert all(f"\n{status}, for example " in str(summary) for status in set(expected.values()) - {"ok"})
    assert done == [("audit", i + 1, len(expected)) for i in range(len(expected))]


def test_files_that_vanish_or_change_meanwhile(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(encoded(Image.fromarray(scene(seed=i)), "PNG"))
    rows = audit(tmp_path, workers=0)
    first = next(rows)
    (tmp_path / "1.png").unlink()
    (tmp_path / "2.png").write_bytes(b"")
    assert [first.status, *(row.status for row in rows)] == ["ok", "unreadable", "empty", "ok"]


def test_of_pictures_equally_long_only_copies_are_copies(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i:02}.bmp").write_bytes(encoded(Image.fromarray(scene(16, 16, seed=i % 39)), "BMP"))
    rows = list(audit(tmp_path, workers=0))
    assert len({row.bytes for row in rows}) == 1
    assert [row.status for row in rows] == ["ok"] * 39 + ["duplicate"]
    assert rows[39].reason == "the same content as 00.bmp"


def test_firsts_are_those_a_dict_would_find() -> None:
    dice = random.Random(0)
    contents = [dice.randbytes(dice.choice((1, 1, 2, 3))) for _ in range(2_000)]  # many alike, some alone
    firsts, wanted = Firsts([len(c) for c in contents]), {}
    for i, content in enumerate(contents):
        found = firsts.first(len(content), hashlib.sha256(content).hexdigest(), i)
        assert found == wanted.setdefault(content, i)
    assert len(wanted) < len(contents)


def test_hashes_that_are_half_alike_are_of_two_files() -> None:
    shas = [high * 16 + low * 16 + "0" * 32 for high in "0123456789abcdef" for low in "0123456789abcdef"]
    firsts = Firsts([5] * 256)
    assert [firsts.first(5, sha, i) for i, sha in enumerate(shas)] == list(range(256))


def test_firsts_that_meet_more_files_than_were_listed() -> None:
    firsts = Firsts([5, 5, 7])
    shas = [hashlib.sha256(bytes([i])).hexdigest() for i in range(50)]
    assert [firsts.first(5, sha, i) for i, sha in enumerate(shas)] == list(range(50))  # files that grew meanwhile
    assert firsts.first(5, shas[0], 50) == 0
    assert firsts.first(7, shas[0], 51) == firsts.first(9, shas[0], 51) == 51  # alone in their size


def test_what_is_not_read_has_its_size_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(5_000))
    (tmp_path / "text.jpg").write_bytes(b"not a picture")
    rows = list(audit(tmp_path, workers=0))
    assert [(row.status, row.bytes) for row in rows] == [("not an image", 5_012), ("not an image", 13)]
    assert summarise(rows).bytes == 5_025


def test_csv_gives_hostile_names_back(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, name in enumerate(HOSTILE):
        with open(os.path.join(os.fsencode(photos), name), "wb") as file:
            file.write(encoded(Image.fromarray(scene(seed=i)), "PNG"))
    path = tmp_path / "audit.csv"
    summary = write_csv(audit(photos, workers=2), path)
    assert summary.statuses == {"ok": len(HOSTILE)}
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        table = list(csv.DictReader(file))
    assert [os.fsencode(line["path"]) for line in table] == sorted(HOSTILE)
    assert list(table[0]) == ["path", "status", "reason", "width", "height", "mode", "format", "bytes", "sha"]
    assert {line["status"] for line in table} == {"ok"}
    assert b"\r\n" not in path.read_bytes()  # as in a run's tables: awk and cut would take the \r for part of the sha


def test_a_csv_that_cannot_be_finished_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    path.write_text("the old one")
    rows = (Row(f"{i}.png", "ok") for i in range(100_000))
    with file_limit(100_000), pytest.raises(RunError, match=r"no space left to write .*audit\.csv") as caught:
        write_csv(rows, path)
    assert caught.value.exit_code == 74
    assert path.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["audit.csv"]


def test_no_torch(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(PHOTO, "PNG"))
    script = (
        "import sys; from concurl.cli import main\n"
        "main(['audit', sys.argv[1], '--depth', '12', '--quiet']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    first, *_, torch = done.stdout.splitlines()
    assert first.endswith(" bytes: 1 ok")
    assert torch == "False"


def bombs() -> dict[str, tuple[bytes, str]]:
    """Small files that would be large: in text, in a profile, in pixels just below the cap; and their statuses."""
    largest = Image.new("RGB", (8000, 8000))
    zeros = zlib.compress(bytes(300 * 2**20), 9)
    progressive = encoded(Image.new("L", (8000, 8000)), "JPEG", progressive=True)
    scan = progressive[progressive.rfind(b"\xff\xda") : -2]
    claimed = bytearray(encoded(Image.new("P", (64, 64)), "BMP"))
    claimed[18:26], claimed[30:34] = struct.pack("<ii", 8000, 8000), struct.pack("<I", 1)  # run lengths, and no runs
    return {
        "text.png": (with_chunk(b"zTXt", b"Comment\0\0" + zeros), "unreadable"),
        "profile.png": (with_chunk(b"iCCP", b"icc\0\0" + zeros), "unreadable"),
        "scans.jpg": (progressive[:-2] + 3000 * scan + progressive[-2:], "too large"),
        "claimed.bmp": (bytes(claimed), "unreadable"),
        "deep.png": (png(np.zeros((8000, 8000, 4), np.uint16), 16, 6), "ok"),
        "floats.tif": (encoded(Image.new("F", (8000, 8000)), "TIFF", compression="tiff_adobe_deflate"), "ok"),
        "flat.gif": (encoded(Image.new("P", (8000, 8000)), "GIF"), "ok"),
        "flat.webp": (encoded(largest, "WEBP", lossless=True), "ok"),
        "flat.tif": (encoded(largest, "TIFF", compression="tiff_adobe_deflate"), "ok"),
        "flat.jpg": (encoded(largest, "JPEG", quality=1), "ok"),
    }


def with_chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG with one more chunk, behind its header."""
    data = encoded(PHOTO, "PNG")
    checksum = struct.pack(">I", zlib.crc32(kind + body))
    return data[:33] + struct.pack(">I", len(body)) + kind + body + checksum + data[33:]


def test_bombs(tmp_path: Path) -> None:
    """Those in metadata; the large ones are in the long test."""
    small = zlib.compress(bytes(70 * 2**20), 9)
    (tmp_path / "text.png").write_bytes(with_chunk(b"zTXt", b"Comment\0\0" + small))
    (tmp_path / "profile.png").write_bytes(with_chunk(b"iCCP", b"icc\0\0" + small))
    assert {row.status for row in audit(tmp_path, workers=1)} == {"unreadable"}


def torture(root: Path, count: int) -> Path:
    dice = random.Random(2)
    for i in range(count):
        (root / f"{i:05}.bin").write_bytes(mutated(dice))
    (root / "bomb.png").write_bytes(png_bomb(9000))
    (root / "largest.png").write_bytes(png_bomb(8000))
    (root / "strip.png").write_bytes(encoded(Image.new("L", (1, 60_000)), "PNG"))
    return root


def check_torture(rows: list[Row], count: int) -> None:
    assert len(rows) == count + 3
    assert [row.path for row in rows] == sorted({row.path for row in rows})
    by_name = {row.path: row.status for row in rows}
    assert (by_name["bomb.png"], by_name["largest.png"], by_name["strip.png"]) == (
        "too large",
        "ok",
        "too small",
    )
    assert 0.1 < sum(row.status == "ok" for row in rows) / len(rows) < 0.9
    assert not [row for row in rows if "crashed" in row.reason or "took more" in row.reason]


def test_mutated_files(tmp_path: Path) -> None:
    check_torture(list(audit(torture(tmp_path, 300), workers=2)), 300)


# In an interpreter of its own: ru_maxrss of a child begins with what its parent held when it forked.
MEASURE = """
import resource, sys, time
from concurl.data.checking.audit import audit
start, count = time.time(), 0
for row in audit(sys.argv[1]):
    count += 1
seconds = time.time() - start
own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
slowest, name, last = 0.0, "", time.process_time()
for row in audit(sys.argv[1], workers=0) if len(sys.argv) > 2 else ():  # once more, one by one: which takes longest
    took, last = time.process_time() - last, time.process_time()
    if took > slowest:
        slowest, name = took, row.path
print(count, seconds, int(own) / 1024, worker / 1024, slowest, name)
"""


def measured(folder: Path, capsys: pytest.CaptureFixture[str], *one_by_one: str) -> tuple[float, float]:
    command = [sys.executable, "-c", MEASURE, str(folder), *one_by_one]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *words, name = done.stdout.rstrip("\n").split(" ", 5)
    count, seconds, own, worker, slowest = map(float, words)
    with capsys.disabled():
        print(
            f"\naudit of {count:,.0f} files: {count / seconds:,.0f} files/s, peak {own:.0f} MB, each worker's "
            f"{worker:.0f} MB" + (f"; the slowest file is {name} with {slowest:.2f} s of CPU" if name else "")
        )
    return own, worker


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_10_000_mutated_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torture(tmp_path, 10_000)
    rows = list(audit(tmp_path))
    check_torture(rows, 10_000)
    with capsys.disabled():
        print(f"\n{dict(summarise(iter(rows)).statuses)}")
    more = {name: status for name, (_, status) in bombs().items()}
    for name, (data, _) in bombs().items():
        (tmp_path / name).write_bytes(data)
    found = {row.path: row.status for row in audit(tmp_path)}
    assert {name: found[name] for name in more} == more
    own, worker = measured(tmp_path, capsys, "one by one")
    assert own < 150
    assert worker < 1200


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peaks = []
    for count in (10_000, 100_000):
        folder = tmp_path / str(count)
        for i in range(count):
            if i % 1000 == 0:
                (folder / f"{i // 1000:03}").mkdir(parents=True)
            pixels = np.full((8, 8), i % 256, np.uint8)
            pixels[0, :3] = np.frombuffer(i.to_bytes(3, "little"), np.uint8)  # no two are alike
            (folder / f"{i // 1000:03}" / f"{i:06}.bmp").write_bytes(encoded(Image.fromarray(pixels), "BMP"))
        peaks.append(measured(folder, capsys)[0])
    assert peaks[1] - peaks[0] < 16  # some 80 bytes a path: 7 MB
