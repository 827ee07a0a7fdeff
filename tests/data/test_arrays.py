"""Arrays and tensors: every layout gives the same images; everything else one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import scene
from PIL import Image

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


@pytest.mark.parametrize("source", [GRAY, GRAY[:, None], GRAY[..., None], GRAY / 255, torch.from_numpy(GRAY)])
def test_gray(source: Any) -> None:
    found = read_source(source)
    assert (found.images == np.repeat(GRAY[:, None], 3, 1)).all()


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
        (np.full((5, 40, 40), 4095, np.uint16), r"array of uint16: .*4095 for 12 bits"),
        (np.full((5, 40, 40), 4095.0), "floats from 4095 to 4095: .*65535 for 16"),
        (np.zeros((5, 40, 40), complex), "array of complex128"),
        (np.full((5, 40, 40), 255.0), r"floats from 255 to 255.*divide by 255"),
        (np.linspace(0, 16, 8000).reshape(5, 40, 40), "floats from 0 to 16: .*divide by 16"),
        (np.linspace(-1, 1, 8000).reshape(5, 40, 40), "floats from -1 to 1"),
        (np.where(np.arange(8000) == 5000, np.nan, 0).reshape(5, 40, 40), r"image 3 .* NaN"),
        (np.where(np.arange(8000) == 7999, np.inf, 0).reshape(5, 40, 40), r"image 4 .* NaN or infinity"),
        ([IMAGES[0], IMAGES[1, :30]], r"shapes \(30, 40, 3\) and \(40, 40, 3\)"),
        ([IMAGES[0], "a.png"], "a list of ndarray, str"),
        (None, "NoneType given as images: a folder, a list"),
        (3, "int given as images"),
        (np.array("a.png"), "ndarray given as images"),
        (Image.new("RGB", (40, 40)), "Image given as images: .*a list of paths or pictures"),
        ([Image.new("RGB", (40, 40)), "a.png"], "a list of Image, str"),
        ([Image.new("L", (40, 7))], "picture 0 has 40 x 7 pixels"),
        ([1, 2], "a list of int"),
        (np.zeros((9, 8, 8), dtype=object), "an array of object"),
        (np.ma.masked_less(np.eye(8)[None], 1), r"X\.filled\(0\)"),
        (torch.eye(8)[None].to_sparse(), "a dense one"),
        (torch.zeros(9, 8, 8, device="meta"), "a dense one"),
        (torch.utils.data.TensorDataset(torch.zeros(9, 8, 8)), "a list of tuple"),
        (torch.nn.Identity(), "Identity given as images"),
        ("", "'' given as images"),
        ({"path": ["a.png"]}, "dict given as images"),
        (type("DataFrame", (list,), {"columns": ["path"]})(["path"]), "DataFrame given as images"),
    ],
)
def test_wrong_arrays_are_answered_in_one_line(source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_source(source)
    assert "\n" not in str(caught.value)


def test_pictures_are_read_as_their_files_are(tmp_path: Path) -> None:
    scenes = [scene(50, 40, seed) for seed in range(4)]
    alpha = np.dstack([scenes[1], np.full((50, 40), 90, np.uint8)])
    deep = np.arange(50 * 40, dtype=np.uint16).reshape(50, 40) * 30
    pictures = [Image.fromarray(pixels) for pixels in (scenes[0], alpha, deep, scenes[2][:, :, 0])]
    pictures.append(Image.fromarray(scene(64, 90, 5)).convert("P"))
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    exif = Image.Exif()
    exif[274] = 6  # lies on its side
    Image.fromarray(scenes[3]).save(tmp_path / "5.png", exif=exif)
    pictures.append(Image.open(tmp_path / "5.png"))
    pictures[2] = Image.open(tmp_path / "2.png")
    pictures[2].load()  # as libraries that hand out pictures do
    for size in (None, 24):
        files = read_source(sorted(tmp_path.glob("*.png")), size, cache=tmp_path / "cache", workers=0)
        found = read_source(pictures, size)
        assert np.array_equal(found.images, files.images)
    assert read_source(pictures, largest=32).images.shape == (6, 3, 32, 32)
    (tmp_path / "cut.png").write_bytes((tmp_path / "0.png").read_bytes()[:-500])
    with pytest.raises(UserError, match="picture 1 of the list cannot be read"):
        read_source([pictures[0], Image.open(tmp_path / "cut.png")])


def test_three_gray_images_or_one_in_colour(caplog: pytest.LogCaptureFixture) -> None:
    assert len(read_source(GRAY[:4])) == 4
    assert not caplog.text
    assert len(read_source(GRAY[:3])) == 3
    assert "three gray images; one in colour needs X[None]" in caplog.text
