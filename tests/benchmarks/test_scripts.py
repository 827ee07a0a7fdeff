"""The scripts as they are called: for help, and for a row whose command can be repeated."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ablations
from concurl.config import Config
from concurl.data.imageset import ImageSet

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHILD = "startup"  # started by throughput.py alone, which gives it a configuration
SCRIPTS = [path for path in sorted(BENCHMARKS.glob("*.py")) if "__main__" in path.read_text() and path.stem != CHILD]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_all_that_help_does(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    monkeypatch.setattr(Path, "write_text", lambda *arguments: pytest.fail(f"{script.name} --help writes"))
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {script.name}")


def test_an_ablation_trains_on_the_pictures_that_its_command_would_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("a", "b"):
        (tmp_path / "set" / kind).mkdir(parents=True)
        pixels = np.random.default_rng(ord(kind)).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "set" / kind / "0.png")
    sizes = []

    def fit(images: ImageSet, config: Config, **_: Any) -> None:
        sizes.append((images.images.shape[2:], config.image_size))
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ablations.run, "fit", fit)
    options = ["--table", "t", "--date", "d", "--results", str(tmp_path), "--set", "n_clusters=2", "batch_size=2"]
    monkeypatch.setattr(sys, "argv", ["ablations.py", str(tmp_path / "set"), *options, "image_size=16"])
    with pytest.raises(KeyboardInterrupt):
        ablations.main()
    assert sizes == [((16, 16), 16)]
