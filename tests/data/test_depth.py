"""Samples of more than eight bits: each keeps what a viewer would show of it."""

from __future__ import annotations

import io
import zlib
from typing import Literal

import numpy as np
import pillow_heif
import pytest
from numpy.typing import NDArray
from pictures import encoded, png, tiff
from PIL import Image

from concurl.data.pictures.content import DecodeError
from concurl.data.pictures.decode import Decoded, decode, decode_picture
from concurl.data.pictures.reading import Reading

RAMP = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def gray(decoded: Decoded) -> NDArray[np.uint8]:
    assert (decoded.pixels[0] == decoded.pixels[1]).all()
    assert (decoded.pixels[0] == decoded.pixels[2]).all()
    return decoded.pixels[0]


@pytest.mark.parametrize(
    "data",
    [
        png(RAMP, 16, 0),
        encoded(Image.fromarray(RAMP), "TIFF"),
        encoded(Image.fromarray(RAMP), "TIFF", compression="tiff_lzw"),
        tiff(RAMP.astype("<u2").tobytes(), 256, 256, 16),
        tiff(RAMP.astype(">u2").tobytes(), 256, 256, 16, order=">"),
    ],
    ids=["png", "tiff", "tiff-lzw", "tiff-little", "tiff-big"],
)
def test_a_16_bit_ramp_keeps_its_gray_levels(data: bytes) -> None:
    found = decode(data, 256)
    expected = np.round(RAMP / 257)  # 65535 / 255
    assert (gray(found) == expected).all()
    assert set(found.oddities) == {"gray", "16-bit"}
    assert len(np.unique(gray(found))) == 256  # Pillow's own conversion leaves 99.6% of it white


def test_a_heic_of_more_than_eight_bits_is_not_white() -> None:
    stream = io.BytesIO()
    pillow_heif.from_bytes("I;16", RAMP.shape, RAMP.tobytes()).save(stream, quality=-1)  # it keeps 12 of the 16
    assert np.abs(gray(decode(stream.getvalue(), 256)) - RAMP / 257).max() <= 1


def test_16_bit_colours() -> None:
    samples = np.stack([RAMP, RAMP[::-1], RAMP.T], -1)
    found = decode(png(samples, 16, 2), 256)
    assert np.abs(found.pixels.transpose(1, 2, 0) - samples / 257).max() <= 1
    assert found.oddities == ("16-bit",)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("channels", "extra"), [(3, 0), (4, 1)])
def test_16_bit_colours_in_planes(order: str, channels: int, extra: int) -> None:
    samples = np.stack([RAMP, RAMP[::-1], RAMP.T, RAMP[:, ::-1]][:channels])
    data = samples.astype(f"{order}u2").tobytes()
    made = tiff(data, 256, 256, 16, photometric=2, order=order, channels=channels, extra=extra, planar=True)
    found = decode(made, 256)
    assert np.abs(found.pixels - samples[:3] / 257).max() <= 1
    assert found.oddities == ("16-bit",)
    assert (decode_picture(Image.open(io.BytesIO(made)), 256) == found.pixels).all()


def test_gray_that_is_one_plane() -> None:
    found = decode(tiff(RAMP.astype("<u2").tobytes(), 256, 256, 16, planar=True), 256)
    assert (gray(found) == np.round(RAMP / 257)).all()


@pytest.mark.parametrize(
    ("bits", "sample_format", "order", "said"),
    [(64, 3, "<", "64-bit floating"), (64, 2, ">", "64-bit signed"), (32, 1, ">", "32-bit unsigned")],
)
def test_samples_that_are_not_read_are_named(bits: int, sample_format: int, order: str, said: str) -> None:
    made = tiff(bytes(64 * 64 * bits // 8), 64, 64, bits, sample_format=sample_format, order=order)
    with pytest.raises(DecodeError, match=f"unreadable: {said} samples of this kind are not read: save 8 or 16 bits"):
        decode(made, 32)


@pytest.mark.parametrize(
    ("photometric", "channels", "planar"),
    [(1, 2, False), (1, 2, True), (1, 5, False), (1, 5, True), (2, 5, False)],
)
def test_channels_that_are_no_colours_are_counted_and_refused(photometric: int, channels: int, planar: bool) -> None:
    extra = channels - (1 if photometric == 1 else 3)
    data = bytes(64 * 64 * 2 * channels)
    made = tiff(data, 64, 64, 16, photometric=photometric, channels=channels, extra=extra, planar=planar)
    with pytest.raises(DecodeError, match=f"unreadable: {channels} channels are not read"):
        decode(made, 64)


def test_12_bits_are_12_bits() -> None:
    values = np.arange(4096).reshape(64, 64)
    pairs = values.reshape(-1, 2)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], -1)
    found = decode(tiff(packed.astype(np.uint8).tobytes(), 64, 64, 12), 64)
    assert (gray(found) == np.round(values * 255 / 4095)).all()


@pytest.mark.parametrize(("greatest", "bits"), [(255, 8), (700, 12), (4095, 12), (4096, 14), (16383, 14), (16384, 16)])
def test_what_a_camera_leaves_in_16_bits_is_not_black(greatest: int, bits: int) -> None:
    values = np.linspace(0, greatest, 4096).astype(np.uint16).reshape(64, 64)
    expected = np.round(values * (255 / (2**bits - 1)))
    for data in (encoded(Image.fromarray(values), "TIFF", compression="tiff_lzw"), png(values, 16, 0)):
        found = decode(data, 64)
        assert (gray(found) == expected).all()
        assert set(found.oddities) == {"gray", f"{bits}-bit"}
    assert (decode_picture(Image.fromarray(values), 64)[0] == expected).all()


def test_what_a_colour_camera_leaves_in_16_bits_is_not_black() -> None:
    values = np.linspace(0, 4095, 4096).astype(np.uint16).reshape(64, 64)
    samples = np.stack([values, values[::-1], values.T], -1)
    data = png(samples, 16, 2)
    found = decode(data, 64)
    assert np.abs(found.pixels.transpose(1, 2, 0) - samples * (255 / 4095)).max() <= 17  # Pillow leaves 16 levels
    assert found.oddities == ("12-bit",)
    assert (decode_picture(Image.open(io.BytesIO(data)), 64) == found.pixels).all()
    dim = Image.fromarray((samples >> 8).astype(np.uint8))  # as dark, and eight bits by right
    assert (decode_picture(dim, 64) == np.asarray(dim).transpose(2, 0, 1)).all()
    assert (decode(encoded(dim, "PNG"), 64).pixels == np.asarray(dim).transpose(2, 0, 1)).all()
    assert not decode(png(np.zeros_like(samples), 16, 2), 64).pixels.any()


def test_white_is_zero_in_16_bits() -> None:
    found = decode(tiff(RAMP.astype("<u2").tobytes(), 256, 256, 16, photometric=0), 256)
    assert (gray(found) == 255 - np.round(RAMP / 257)).all()


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-3, 7, 4096, dtype=np.float32).reshape(64, 64),
        np.linspace(-2_000_000, 1_000_000, 4096).astype(np.int32).reshape(64, 64),
        np.linspace(2_000_000_000, 2_000_000_255, 4096).astype(np.int32).reshape(64, 64),
        np.linspace(-1000, 3000, 4096).astype(np.int16).reshape(64, 64),
        np.linspace(-3e38, 3e38, 4096, dtype=np.float32).reshape(64, 64),
    ],
    ids=["float", "int32", "far from 0", "int16", "widest"],
)
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("compression", [1, 8], ids=["plain", "deflate"])
def test_samples_without_a_range_are_stretched_and_said_to_be(
    values: NDArray[np.generic], order: Literal["<", ">"], compression: int
) -> None:
    format = 3 if values.dtype.kind == "f" else 2
    data = values.astype(values.dtype.newbyteorder(order)).tobytes()
    data = zlib.compress(data) if compression == 8 else data
    bits = 8 * values.dtype.itemsize
    found = decode(tiff(data, 64, 64, bits, sample_format=format, compression=compression, order=order), 64)
    exact = values.astype(np.float64)
    expected = (exact - exact.min()) * (255 / (exact.max() - exact.min()))
    assert np.abs(gray(found) - expected).max() <= 0.51
    assert "stretched" in found.oddities


def test_nan_and_constant_floats() -> None:
    values = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)
    values[3, 5], values[4, 5] = np.nan, np.inf
    found = gray(decode(tiff(values.tobytes(), 64, 64, 32, sample_format=3), 64))
    assert found[3, 5] == found[4, 5] == 0
    assert found[63, 63] == 255
    white_is_zero = tiff(values.tobytes(), 64, 64, 32, sample_format=3, photometric=0)
    assert (gray(decode(white_is_zero, 64)) == 255 - found).all()
    constant = tiff(np.full((64, 64), 7, np.float32).tobytes(), 64, 64, 32, sample_format=3)
    assert (gray(decode(constant, 64)) == 0).all()


@pytest.mark.parametrize(("greatest", "bits", "clipped"), [(200, 8, False), (4095, 12, False), (9000, 14, True)])
def test_one_range_for_all_pictures_of_a_camera(greatest: int, bits: int, clipped: bool) -> None:
    values = np.linspace(0, greatest, 4096).astype(np.uint16).reshape(64, 64)
    expected = np.round(values * (255 / 4095)).clip(0, 255)
    camera = Reading(depth=12)
    for data in (encoded(Image.fromarray(values), "TIFF"), png(values, 16, 0)):
        found = decode(data, 64, reading=camera)
        assert (gray(found) == expected).all()
        assert set(found.oddities) == {"gray", f"{bits}-bit", *(["clipped"] if clipped else [])}
    assert (decode_picture(Image.fromarray(values), 64, camera)[0] == expected).all()


@pytest.mark.parametrize("alpha", [False, True])
def test_one_range_for_all_colours_of_a_camera(alpha: bool) -> None:
    """Of colours Pillow keeps the upper byte: four bits of twelve."""
    values = np.linspace(0, 1500, 4096).astype(np.uint16).reshape(64, 64)
    samples = np.stack([values, values[::-1], values.T] + [np.full_like(values, 65535)] * alpha, -1)
    found = decode(png(samples, 16, 6 if alpha else 2), 64, reading=Reading(depth=12))
    assert (found.pixels.transpose(1, 2, 0) == np.round((samples[..., :3] >> 8) * (255 / 15))).all()


def test_a_range_is_for_those_that_have_16_bits() -> None:
    photo = encoded(Image.fromarray(np.full((64, 64, 3), 200, np.uint8)), "PNG")
    assert (decode(photo, 64, reading=Reading(depth=12)).pixels == 200).all()
    twelve = tiff(bytes([0xFF, 0xFF, 0xFF] * 2048), 64, 64, 12)  # says itself that it has 12
    found = decode(twelve, 64, reading=Reading(depth=14))
    assert (gray(found) == 255).all()
    assert "clipped" not in found.oddities
