"""Arrays and tensors: every layout gives the same images; everything else one line of help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pictures import scene

from concurl.data.sources import read_source
from concurl.errors import UserError

IMAGES = np.stack([scene(40, 40, seed) for seed in range(5)])  # (N, H, W, 3)
FIRST = IMAGES.transpose(0, 3, 1, 2)
GRAY = IMAGES[..., 0]


@pytest.mark.parametrize(
    "source",
    [
        IMAGES,
        FIRST,
        np.asfortranarray(FIRST),
        torch.from_numpy(FIRST.copy()),
        IMAGES / 255,
        (IMAGES / 255).astype(np.float32),
        torch.from_numpy(IMAGES / 255).requires_grad_(),
        list(IMAGES),
        [torch.from_numpy(image) for image in IMAGES],
    ],
    ids=["last", "first", "fortran", "tensor", "float64", "float32", "grad", "list", "tensors"],
)
def test_layouts_and_types(source: Any) -> None:
    found = read_source(source)
    assert (found.images == FIRST).all()
    assert found.names == ["0", "1", "2", "3", "4"]
    assert found.facts["image_size"] == 40


@pytest.mark.parametrize("source", [GRAY, GRAY[:, None], GRAY[..., None], GRAY / 255, torch.from_numpy(GRAY)])
def test_gray(source: Any) -> None:
    found = read_source(source)
    assert (found.images == np.repeat(GRAY[:, None], 3, 1)).all()
    assert found.facts["oddities"] == {"gray": 5}


def test_half_precision_and_truth() -> None:
    assert np.abs(read_source(torch.from_numpy(IMAGES / 255).bfloat16()).images - FIRST.astype(int)).max() <= 1
    assert set(np.unique(read_source(GRAY > 100).images)) == {0, 255}


def test_bytes_in_place_are_not_copied() -> None:
    array = np.ascontiguousarray(FIRST)
    assert np.shares_memory(read_source(array).images, array)
    assert np.shares_memory(read_source(array, 40).images, array)


def test_sizes() -> None:
    assert read_source(IMAGES, 32).images.shape == (5, 3, 32, 32)
    wide = np.zeros((2, 48, 96, 3), np.uint8)
    wide[:, :, 24:72] = 200  # the central square
    found = read_source(wide)
    assert found.images.shape == (2, 3, 48, 48)
    assert (found.images == 200).all()
    assert read_source(np.zeros((1, 300, 300), np.uint8)).images.shape == (1, 3, 256, 256)
    assert read_source(np.zeros((1, 8, 8), np.uint8)).images.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((5, 64)), r"shape \(5, 64\).*X\.reshape\(N, H, W\)"),
        (np.zeros((40, 40, 3), np.uint8), r"single image needs X\[None\]"),
        (np.zeros((5, 40, 40, 4), np.uint8), r"shape \(5, 40, 40, 4\)"),
        (np.zeros((0, 40, 40), np.uint8), "holds no images"),
        (np.zeros((5, 4, 40, 3), np.uint8), "at least 8 pixels"),
        (np.zeros((5, 40, 40), np.int64), r"array of int64: .*astype\(np\.uint8\)"),
        (np.zeros((5, 40, 40), complex), "array of complex128"),
        (np.full((5, 40, 40), 255.0), r"floats from 255 to 255.*divide by 255"),
        (np.linspace(0, 16, 8000).reshape(5, 40, 40), "floats from 0 to 16: .*divide by 16"),
        (np.linspace(-1, 1, 8000).reshape(5, 40, 40), "floats from -1 to 1"),
        (np.where(np.arange(8000) == 5000, np.nan, 0).reshape(5, 40, 40), r"image 3 .* NaN"),
        (np.where(np.arange(8000) == 7999, np.inf, 0).reshape(5, 40, 40), r"image 4 .* NaN or infinity"),
        ([IMAGES[0], IMAGES[1, :30]], r"shapes \(30, 40, 3\) and \(40, 40, 3\)"),
        ([IMAGES[0], "a.png"], "a list of ndarray, str"),
        ([1, 2], "a list of int"),
    ],
)
def test_wrong_arrays_are_answered_in_one_line(source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_source(source)
    assert "\n" not in str(caught.value)
