"""Thumbnails: the right picture in the right place, and never more bytes than allowed."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from synthetic_run import shapes

from concurl.report import thumbnails
from concurl.report.thumbnails import ACROSS, sheets, singles


def decoded(uri: str) -> np.ndarray:
    head, _, body = uri.partition(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(body))).convert("RGB")).astype(int)


def flat(n: int, side: int = 32) -> np.ndarray:
    """One colour per picture, so that a place on a sheet tells which picture it is."""
    colours = np.random.default_rng(0).integers(0, 256, size=(n, 3))
    return np.broadcast_to(colours[:, :, None, None], (n, 3, side, side)).astype(np.uint8)


def test_singles_show_their_own_image() -> None:
    images = flat(40, 64)
    found = singles({row: images[row] for row in (5, 31)})
    assert sorted(found) == [5, 31]
    for row, uri in found.items():
        assert np.abs(decoded(uri).mean(axis=(0, 1)) - images[row, :, 0, 0]).max() < 8


def test_a_wide_image_keeps_its_shape() -> None:
    images = np.zeros((1, 3, 200, 400), dtype=np.uint8)
    assert decoded(singles(dict(enumerate(images)))[0]).shape == (160, 320, 3)


def test_sheets_hold_each_row_at_its_place() -> None:
    images, rows = flat(300), np.random.default_rng(1).permutation(300)
    found = sheets(images, rows)
    assert (found.side, len(found.uris)) == (32, 2)
    for place, row in enumerate(rows):
        sheet = decoded(found.uris[place // 256])
        line, column = divmod(place % 256, ACROSS)
        cell = sheet[line * 32 : line * 32 + 32, column * 32 : column * 32 + 32]
        assert np.abs(cell[8:24, 8:24].mean(axis=(0, 1)) - images[row, :, 0, 0]).max() < 10, place


@pytest.mark.parametrize("budget", [200_000, 60_000])
def test_noise_is_made_smaller_until_it_fits(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(thumbnails, "SHEETS_BUDGET", budget)
    monkeypatch.setattr(thumbnails, "GALLERY_BUDGET", budget)
    noise = np.random.default_rng(0).integers(0, 256, size=(120, 3, 96, 96), dtype=np.uint8)
    rows = np.arange(120)
    assert sum(len(uri) for uri in sheets(noise, rows).uris) <= budget * 4 / 3 + 100
    assert sum(len(uri) for uri in singles(dict(enumerate(noise))).values()) <= budget * 4 / 3 + 100 * 120


def test_pictures_of_two_sizes_keep_theirs() -> None:
    found = singles({0: flat(1, 96)[0], 1: flat(1, 32)[0]})
    assert [decoded(found[row]).shape[0] for row in (0, 1)] == [96, 32]


def test_small_images_are_not_blown_up() -> None:
    images, _ = shapes(4, 2, side=12)
    assert sheets(images, np.arange(4)).side == 12
    assert decoded(singles(dict(enumerate(images)))[0]).shape == (12, 12, 3)
