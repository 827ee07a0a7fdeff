"""What holds for every benchmark: names, splits, limits, sizes, and the answer to a set that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from concurl.data import benchmarks
from concurl.data.benchmarks import BENCHMARKS, load_benchmark
from concurl.errors import UserError


def test_digits_are_scikit_learns():
    digits = load_benchmark("digits", image_size=8)
    truth = load_digits()
    assert digits.images.images.shape == (1797, 3, 8, 8)
    gray = digits.images.images.astype(float) * 16 / 255
    assert np.abs(gray - truth.images[:, None]).max() <= 0.5 * 16 / 255  # all three channels, rounded
    assert set(np.unique(digits.images.images)) == {round(255 * level / 16) for level in range(17)}
    assert (digits.labels == truth.target).all()
    assert digits.labels.dtype == np.int64
    assert list(digits.classes) == [str(i) for i in range(10)]
    assert digits.images.names[3] == "digits/all/00003"


def test_digits_are_enlarged_bilinearly_to_12_pixels():
    small, large = (load_benchmark("digits", image_size=size, limit=20).images.images for size in (8, None))
    assert large.shape == (20, 3, 12, 12)
    at = np.clip((np.arange(12) + 0.5) * 8 / 12 - 0.5, 0, 7)  # pixel centres, the edges held
    low = np.minimum(at.astype(int), 6)
    weights = np.zeros((12, 8))
    weights[np.arange(12), low] = 1 - (at - low)
    weights[np.arange(12), low + 1] = at - low
    expected = weights @ small.astype(float) @ weights.T
    assert np.abs(large - expected).max() <= 1.01  # Pillow rounds twice


def test_resizing_says_how_far_it_is():
    told = []
    load_benchmark("digits", limit=20, progress=lambda *step: told.append(step))
    assert told == [("resize", i + 1, 20) for i in range(20)]


def test_limit_is_a_fixed_prefix_that_mixes_the_classes():
    whole = load_benchmark("digits")
    some, more = (load_benchmark("digits", limit=limit) for limit in (100, 300))
    assert some.images.names == more.images.names[:100]
    assert (some.images.images == more.images.images[:100]).all()
    assert len(set(np.unique(some.labels))) == 10
    position = {name: i for i, name in enumerate(whole.images.names)}
    origin = [position[name] for name in some.images.names]
    assert (some.images.images == whole.images.images[origin]).all()
    assert (some.labels == whole.labels[origin]).all()
    everything = load_benchmark("digits", limit=10**6)
    assert sorted(everything.images.names) == list(whole.images.names)


def test_the_shuffle_never_changes():
    assert benchmarks._draw(10, 10).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert benchmarks._draw(10, 3).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9][:3]


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "digits"])
def test_a_missing_set_says_what_to_download_and_where_it_was_looked_for(name, tmp_path):
    with pytest.raises(UserError) as caught:
        load_benchmark(name, tmp_path)
    message = str(caught.value)
    official = {
        "cifar10": [
            "cifar-10-binary.tar.gz",
            "cifar-10-python.tar.gz",
            "cs.toronto.edu",
            "cifar-10-batches-py",
        ],
        "cifar100": ["cifar-100-binary.tar.gz", "cifar-100-python.tar.gz", "University of Toronto"],
        "cifar100-20": ["cifar-100-binary.tar.gz", "cifar-100-python.tar.gz", "University of Toronto"],
        "stl10": ["stl10_binary.tar.gz", "Stanford", f"{tmp_path}/stl10_binary/train_X.bin"],
        "stl10-unlabelled": ["stl10_binary.tar.gz", "Stanford", f"{tmp_path}/stl10_binary/train_X.bin"],
        "imagenet10": ["ILSVRC2012_img_train.tar", "image-net.org", f"{tmp_path}/ILSVRC/Data/CLS-LOC/train/"],
        "imagenet-dogs": ["ILSVRC2012_img_train.tar", "image-net.org", f"{tmp_path}/ILSVRC2012/train/"],
        "tiny-imagenet": ["tiny-imagenet-200.zip", f"{tmp_path}/tiny-imagenet-200/wnids.txt"],
    }[name]
    for part in [name, str(tmp_path), "looked for", "--data-dir", "CONCURL_DATA", *official]:
        assert part in message
    assert "\n" not in message


def test_the_data_folder_comes_from_the_environment_or_is_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCURL_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=r"put it into \S+/elsewhere "):
        load_benchmark("stl10")
    monkeypatch.delenv("CONCURL_DATA")
    with pytest.raises(UserError, match=rf"put it into {tmp_path}/data "):
        load_benchmark("stl10")


def test_reading_needs_no_torch():
    code = "import sys; from concurl.data.benchmarks import load_benchmark; load_benchmark('digits', limit=5);"
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


def test_the_real_cifar10():
    folder = os.environ.get("CONCURL_TEST_DATA")
    if not folder or not (Path(folder) / "cifar-10-batches-bin").is_dir():
        pytest.skip("CONCURL_TEST_DATA names no folder that holds cifar-10-batches-bin")
    real = load_benchmark("cifar10", Path(folder))
    assert real.images.images.shape == (60_000, 3, 32, 32)
    assert np.bincount(real.labels).tolist() == [6_000] * 10
    assert real.images.names[49_999:50_001] == ["cifar10/train/49999", "cifar10/test/00000"]
    raw = np.fromfile(Path(folder) / "cifar-10-batches-bin" / "data_batch_3.bin", np.uint8)
    assert (raw[3073 * 7 + 1 : 3073 * 8] == real.images.images[20_007].ravel()).all()
