"""Damaged files, and what is no picture: refused with a reason, and nothing worse."""

from __future__ import annotations

import os
import random
import signal
import zlib
from pathlib import Path

import numpy as np
import pytest
from mutants import FORMATS
from pictures import encoded, scene, status_of, tiff
from PIL import Image

from concurl.data.pictures import content
from concurl.data.pictures.content import DecodeError, read_content
from concurl.data.pictures.decode import decode


@pytest.mark.parametrize("name", FORMATS)
def test_truncated_anywhere(name: str) -> None:
    format, options = FORMATS[name]
    data = encoded(Image.fromarray(scene(96, 120)), format, **options)
    decode(data, 32)
    dice = random.Random(0)
    # libtiff says no more than "error" when a JPEG's tables are lost with the directory.
    allowed = ("truncated", "unreadable") if name == "tiff-jpeg" else ("truncated",)
    for _ in range(60):
        length = dice.randrange(16, len(data) - 40)
        assert status_of(data[:length]) in allowed, length


def test_truncated_behind_its_directory() -> None:
    """libtiff alone would only say "error"."""
    packed = zlib.compress(np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8).tobytes())
    whole = tiff(packed, 64, 64, 8, compression=8)
    decode(whole, 64)
    for length in (200, 1000, len(whole) - 100):
        assert status_of(whole[:length]) == "truncated"


def test_a_member_of_an_archive_that_became_shorter(tmp_path: Path) -> None:
    whole = encoded(Image.fromarray(scene()), "BMP")
    (tmp_path / "s.tar").write_bytes(bytes(512) + whole)
    assert read_content(str(tmp_path / "s.tar"), 512, len(whole)) == whole
    os.truncate(tmp_path / "s.tar", 512 + len(whole) - 1)
    with pytest.raises(DecodeError, match=f"truncated: {len(whole) - 1:,} of {len(whole):,} bytes"):
        read_content(str(tmp_path / "s.tar"), 512, len(whole))


def test_a_file_of_too_many_bytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.bmp").write_bytes(encoded(Image.new("L", (64, 64)), "BMP"))
    read_content(str(tmp_path / "a.bmp"))
    monkeypatch.setattr(content, "MAX_BYTES", 4000)
    with pytest.raises(DecodeError, match=r"too large: 5,174 bytes; at most 4,000 are read"):
        read_content(str(tmp_path / "a.bmp"))


def test_a_named_pipe_does_not_hold_up_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    signal.alarm(10)
    try:
        with pytest.raises(DecodeError, match="unreadable: not a regular file"):
            read_content(str(tmp_path / "pipe.jpg"))
    finally:
        signal.alarm(0)


def test_what_is_no_picture() -> None:
    assert status_of(b"") == "empty"
    assert status_of(b"a text called photo.jpg\n" * 9) == "not an image"
    assert status_of(b"\0\0\0\x18ftypisom\0\0\0\0isommp41" + bytes(99)) == "not an image"  # a film
    assert status_of(b"\0\0\0\x18ftypheic" + bytes(99)) == "unreadable"
    assert status_of(b"%PDF-1.7") == "not an image"
    assert status_of(b"P6 64 64 255 " + bytes(64 * 64 * 3)) == "not an image"  # Pillow would
    flipped = bytearray(encoded(Image.new("L", (64, 64)), "PNG"))
    flipped[20] ^= 1
    assert status_of(bytes(flipped)) == "unreadable"  # the header's checksum
