"""Pixels out of every mode and format, against numpy; sizes, and which are refused."""

from __future__ import annotations

import io
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pictures import encoded, png_bomb, scene, status_of
from PIL import Image, ImageFile

from concurl.data.pictures import decode as decode_module
from concurl.data.pictures.content import DecodeError
from concurl.data.pictures.decode import decode, decode_picture
from concurl.data.pictures.header import _learn_heif, image_size
from concurl.data.pictures.reading import Reading

# ---- EXIF ----------------------------------------------------------------------------------------------------

# What a camera stores when it was held so that the viewer must turn the picture (EXIF 2.3, tag 274).
STORED = {
    1: lambda shown: shown,
    2: lambda shown: shown[:, ::-1],
    3: lambda shown: shown[::-1, ::-1],
    4: lambda shown: shown[::-1],
    5: lambda shown: shown.transpose(1, 0, 2),
    6: lambda shown: np.rot90(shown, 1),
    7: lambda shown: np.rot90(shown[:, ::-1], -1),
    8: lambda shown: np.rot90(shown, -1),
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP", "JPEG", "AVIF"])
def test_exif_orientation(orientation: int, format: str) -> None:
    shown = scene(40, 64)
    exif = Image.Exif()
    exif[274] = orientation
    options = {
        "WEBP": {"lossless": True},
        "JPEG": {"quality": 100, "subsampling": 0},
        "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    }.get(format, {})
    data = encoded(Image.fromarray(np.ascontiguousarray(STORED[orientation](shown))), format, exif=exif, **options)
    found = decode(data, 40)
    expected = shown[:, 12:52].transpose(2, 0, 1).astype(int)
    assert np.abs(found.pixels - expected).max() <= {"JPEG": 6, "AVIF": 4}.get(format, 0)
    assert ("exif-rotated" in found.oddities) == (orientation != 1)


def test_broken_exif_does_not_cost_the_picture() -> None:
    data = encoded(Image.fromarray(scene()), "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert (decode(data, 64).pixels == scene().transpose(2, 0, 1)).all()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_damaged_png_is_not_taken_for_a_black_one(mode: str) -> None:
    data = bytearray(encoded(Image.fromarray(scene()).convert(mode), "PNG"))
    data[len(data) // 2] ^= 1
    assert status_of(bytes(data)) == "unreadable"
    with pytest.raises(DecodeError, match="data stream"):
        decode_picture(Image.open(io.BytesIO(data)), 64)


# ---- what phones and shops write -----------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["AVIF", "HEIF"])
def test_young_formats(format: str) -> None:
    clear = np.dstack([scene(), np.full((64, 64), 255, np.uint8)])
    clear[:, 32:, 3] = 0
    found = decode(encoded(Image.fromarray(clear), format, quality=95), 64, reading=Reading((0, 0, 0)))
    assert np.abs(found.pixels[:, :, :30] - scene().transpose(2, 0, 1)[:, :, :30].astype(int)).mean() < 6
    assert found.pixels[:, :, 36:].max() < 12
    assert (found.format, found.oddities) == (format, ("alpha",))


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("AVIF", {}),
        ("HEIF", {}),
        ("JPEG", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}),
    ],
)
def test_sizes_by_the_header(format: str, options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(encoded(Image.fromarray(scene(40, 64)), format, **options))
    with open(tmp_path / "photo", "rb") as file:
        assert image_size(file) == (64, 40)


def test_heic_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(Image.fromarray(scene()), "HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    _learn_heif.cache_clear()
    with pytest.raises(DecodeError, match="unreadable: HEIC: pip install pillow-heif"):
        decode(data, 32)


# ---- colour and alpha ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [(255, 255, 255), (10, 200, 90)])
@pytest.mark.parametrize("kind", ["RGBA", "LA", "P"])
def test_alpha_lies_over_the_background(kind: str, background: tuple[int, int, int]) -> None:
    alpha = np.arange(64 * 64, dtype=np.uint32).reshape(64, 64) // 16
    if kind == "P":
        index = (np.arange(64 * 64).reshape(64, 64) % 4).astype(np.uint8)
        palette = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 99, 199]])
        opacity = np.array([0, 85, 170, 255])
        image = Image.fromarray(index, "L")
        image.putpalette(palette.astype(np.uint8).tobytes())
        data = encoded(image, "PNG", transparency=bytes(opacity.tolist()))
        colour, alpha = palette[index], opacity[index]
    else:
        colour = scene() if kind == "RGBA" else np.repeat(scene()[..., :1], 3, 2)
        samples = np.dstack([colour if kind == "RGBA" else colour[..., :1], alpha.astype(np.uint8)])
        data = encoded(Image.fromarray(samples), "PNG")
    share = alpha[..., None] / 255
    expected = share * colour + (1 - share) * np.array(background)
    found = decode(data, 64, reading=Reading(background))
    assert np.abs(found.pixels.transpose(1, 2, 0) - expected).max() <= 1
    assert "alpha" in found.oddities
    assert ("palette" in found.oddities) == (kind == "P")


@pytest.mark.parametrize(("mode", "key"), [("L", 90), ("RGB", (90, 12, 200)), ("PA", (1, 0))])
def test_a_colour_that_stands_for_nothing(mode: str, key: Any) -> None:
    made = Image.new(mode, (16, 16), key)
    made.paste({"L": 33, "RGB": (33, 33, 33), "PA": (0, 255)}[mode], (8, 0, 16, 16))
    if mode == "PA":
        made.putpalette([33, 33, 33, 90, 12, 200])
    data = encoded(made, "TIFF") if mode == "PA" else encoded(made, "PNG", transparency=key)
    found = decode(data, 16, reading=Reading((10, 200, 90)))
    assert "alpha" in found.oddities
    assert found.pixels[:, 5].T.tolist() == [[10, 200, 90]] * 8 + [[33, 33, 33]] * 8


def test_alpha_that_its_colours_were_multiplied_with_is_alpha() -> None:
    samples = np.dstack([scene()[..., 0], np.full((64, 64), 128, np.uint8)])
    made = Image.fromarray(samples).convert("La")
    assert np.abs(decode_picture(made, 64).astype(int) - decode_picture(made.convert("LA"), 64)).max() <= 1


def test_invisible_colours_do_not_bleed_when_resized() -> None:
    samples = np.zeros((128, 128, 4), np.uint8)
    samples[:, :63] = (255, 0, 0, 0)  # red that nobody can see
    samples[:, 63:] = (0, 0, 255, 255)
    found = decode(encoded(Image.fromarray(samples), "PNG"), 32, reading=Reading((0, 0, 0))).pixels
    assert found[0].max() == 0


def test_cmyk() -> None:
    samples = np.random.default_rng(0).integers(0, 256, (64, 64, 4)).astype(np.uint8)
    found = decode(encoded(Image.fromarray(samples, "CMYK"), "TIFF"), 64)
    expected = (255 - samples[..., :3].astype(float)) * (255 - samples[..., 3:].astype(float)) / 255
    assert np.abs(found.pixels.transpose(1, 2, 0) - expected).max() <= 1
    assert found.oddities == ("cmyk",)
    plain = Image.new("CMYK", (64, 64), (0, 255, 255, 0))  # red
    assert np.abs(decode(encoded(plain, "JPEG"), 32).pixels[:, 9, 9].astype(int) - (255, 0, 0)).max() < 8


@pytest.mark.parametrize("mode", ["1", "L", "P", "YCbCr", "LAB"])
def test_other_modes(mode: str) -> None:
    shown = Image.fromarray(scene())
    if mode == "LAB":
        data = encoded(Image.new("LAB", (64, 64), (128, 128, 128)), "TIFF")  # L* = 50.2, neutral
        expected, tolerance = np.full((64, 64, 3), 119), 2
    elif mode == "P":
        image = shown.quantize(32)
        palette = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
        data, expected, tolerance = encoded(image, "PNG"), palette[np.asarray(image)], 0
    elif mode == "YCbCr":
        data, expected, tolerance = encoded(shown.convert("YCbCr"), "TIFF"), scene(), 3
    else:
        image = shown.convert(mode)
        expected = np.repeat(np.asarray(image, np.uint8)[..., None] * (255 if mode == "1" else 1), 3, 2)
        data, tolerance = encoded(image, "PNG"), 0
    found = decode(data, 64)
    assert np.abs(found.pixels.transpose(1, 2, 0).astype(int) - expected).max() <= tolerance
    assert found.oddities == ({"P": "palette", "YCbCr": "ycbcr", "LAB": "lab"}.get(mode, "gray"),)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_of_several_frames_the_first(format: str) -> None:
    frames = [Image.new("RGB", (40, 40), colour) for colour in ((200, 30, 40), (0, 255, 0), (0, 0, 255))]
    found = decode(encoded(frames[0], format, save_all=True, append_images=frames[1:]), 40)
    assert np.abs(found.pixels[:, 20, 20].astype(int) - (200, 30, 40)).max() <= 4
    said = "first of several pages" if format == "TIFF" else "animated"
    assert (said in found.oddities) == (format != "MPO")  # what cameras write: a photograph and its preview
    assert said not in decode(encoded(frames[0], format), 40).oddities


# ---- sizes ---------------------------------------------------------------------------------------------------


def reference(image: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
    """Centre square, antialiased bicubic, by torch."""
    side = min(image.shape[:2])
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    square = torch.from_numpy(image[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None].double()
    small = torch.nn.functional.interpolate(square, (size, size), mode="bicubic", antialias=True)
    return small[0].clamp(0, 255).numpy()


@pytest.mark.parametrize(("shape", "size"), [((200, 300), 64), ((300, 70), 32), ((20, 33), 32), ((900, 700), 48)])
def test_resizing(shape: tuple[int, int], size: int) -> None:
    image = scene(*shape)
    for format, tolerance in (("PNG", 2.0), ("JPEG", 3.0)):
        options = {"quality": 98, "subsampling": 0} if format == "JPEG" else {}
        found = decode(encoded(Image.fromarray(image), format, **options), size).pixels
        assert found.shape == (3, size, size)
        assert np.abs(found - reference(image, size)).mean() < tolerance


def test_large_jpegs_are_decoded_small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr(
        decode_module, "resized", lambda image, size: sizes.append(image.size) or image.resize((size, size))
    )
    decode(encoded(Image.fromarray(scene(800, 1200)), "JPEG"), 48)
    decode(encoded(Image.fromarray(scene(1600, 400)), "JPEG"), 48)
    assert sizes == [(150, 100), (100, 400)]  # the least eighth, quarter or half above 96, by the smaller edge


def test_too_small_and_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded_webp = encoded(Image.new("RGB", (16, 16)), "WEBP", lossless=True)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("a pixel was decoded"))
    assert status_of(encoded(Image.new("L", (1, 60_000)), "PNG")) == "too small"
    assert status_of(encoded(Image.new("RGB", (7, 7)), "JPEG")) == "too small"
    bomb = png_bomb(9_000)
    assert len(bomb) < 300_000
    assert status_of(bomb) == "too large"
    assert status_of(png_header(2**31 - 1, 2**31 - 1)) == "too large"
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("the canvas was allocated"))
    wide = bytearray(encoded_webp)
    wide[21:25] = (8999 | 8999 << 14).to_bytes(4, "little")
    assert status_of(bytes(wide)) == "too large"


def test_a_jpeg_in_too_many_scans() -> None:
    """Half a megabyte of them could hold a decoder up for minutes."""
    data = encoded(Image.fromarray(scene()), "JPEG", progressive=True)
    scan = data[data.rfind(b"\xff\xda") : -2]
    decode(data[:-2] + 150 * scan + data[-2:], 32)
    many = data[:-2] + 300 * scan + data[-2:]
    assert status_of(many) == "too large"
    assert status_of(many[:2] + b"\xff\x01" + many[2:]) == "too large"  # a marker without a length hides nothing


@pytest.mark.parametrize("place", ["in a segment", "behind the picture"])
def test_a_phones_film_is_no_scan(place: str) -> None:
    data, film = encoded(Image.fromarray(scene()), "JPEG"), 300 * b"\xff\xda"
    segment = b"\xff\xef" + (2 + len(film)).to_bytes(2, "big") + film
    filmed = data + film if place == "behind the picture" else data[:2] + segment + data[2:]
    np.testing.assert_array_equal(decode(filmed, 32).pixels, decode(data, 32).pixels)


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims this size, and holds nothing."""
    data = bytearray(png_bomb(8))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


def test_a_long_strip_is_cropped_before_it_is_enlarged() -> None:
    strip = np.zeros((8, 60_000), np.uint8)
    strip[:, 29_990:30_010] = 255  # the centre is white, all else black
    found = decode(encoded(Image.fromarray(strip), "PNG"), 224).pixels
    assert (found == 255).all()
