"""The colours, measured again: every two of twenty differ, also to red-, green- and blue-weak eyes."""

from __future__ import annotations

import numpy as np
import pytest

from concurl.report.palette import pairs

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
SIGHT = {
    "full": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colours: list[str]) -> np.ndarray:
    v = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours]) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    lms = np.array(
        [[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.6299787]]
    )
    lab = np.array(
        [
            [0.21045426, 0.79361779, -0.00407205],
            [1.9779985, -2.42859221, 0.45059371],
            [0.02590404, 0.78277177, -0.80867577],
        ]
    )
    return np.cbrt(np.clip(rgb, 0, 1) @ lms.T) @ lab.T


def smallest_gap(colours: list[str], sight: np.ndarray) -> float:
    lab = oklab(linear(colours) @ sight.T)
    gaps = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return float(gaps[np.triu_indices(len(colours), 1)].min())


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("sight", SIGHT)
def test_twenty_colours_are_told_apart(theme: int, sight: str) -> None:
    colours = [pair[theme] for pair in pairs(20)]
    # two neighbouring grays of 256 are about 0.004 apart; 0.02 is a just noticeable difference
    assert smallest_gap(colours, SIGHT[sight]) > (0.1 if sight == "full" else 0.045)
    assert smallest_gap(colours[:10], SIGHT[sight]) > (0.15 if sight == "full" else 0.068)


@pytest.mark.parametrize(("theme", "ground"), [(0, "#ffffff"), (1, "#1a1c1f")])
def test_no_colour_drowns_in_the_page(theme: int, ground: str) -> None:
    luminance = linear([pair[theme] for pair in pairs(20)] + [ground]) @ [0.2126, 0.7152, 0.0722]
    high, low = np.maximum(luminance[:-1], luminance[-1]), np.minimum(luminance[:-1], luminance[-1])
    assert ((high + 0.05) / (low + 0.05)).min() > 1.9


def test_the_twenty_first_is_the_first_in_another_lightness() -> None:
    colours = [light for light, _ in pairs(60)]
    assert len(set(colours)) == 60
    lightness = oklab(linear(colours))[:, 0]
    for i in range(20):
        assert lightness[i + 20] - lightness[i] > 0.06
        assert lightness[i] - lightness[i + 40] > 0.06
    assert pairs(200)[60:80] == pairs(20)
