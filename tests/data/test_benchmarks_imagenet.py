"""ImageNet's subsets and Tiny-ImageNet: one colour per class shows whether image and label agree."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.data.benchmarks import load_benchmark
from concurl.data.publishers.imagenet import SUBSETS
from concurl.errors import UserError

# Chang et al. 2017 (Deep Adaptive Image Clustering), as the field has used them since
LISTS = {
    "imagenet10": """
        n02056570 n02085936 n02128757 n02690373 n02692877 n03095699 n04254680 n04285008 n04467665 n07747607
    """,
    "imagenet-dogs": """
        n02085936 n02086646 n02088238 n02091467 n02097130 n02099601 n02101388 n02101556 n02102177 n02105056
        n02105412 n02105855 n02107142 n02110958 n02112137
    """,
}
TINY = [f"n{97_000_003 * i % 10**8:08d}" for i in range(1, 201)]  # 200 distinct, not in order


def colour(label: int, n_classes: int) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(label / n_classes, 1, 0.3 + 0.7 * (label % 2)))


def write_image(path: Path, label: int, n_classes: int, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour(label, n_classes)).save(path, "JPEG", quality=100, subsampling=0)


def assert_colours(benchmark, n_classes: int) -> None:
    expected = np.array([colour(label, n_classes) for label in benchmark.labels])
    assert np.abs(benchmark.images.images.astype(int) - expected[:, :, None, None]).max() <= 4


def write_subset(folder: Path, name: str) -> None:
    wnids = LISTS[name].split()
    for label, wnid in enumerate(wnids):
        for i in (10, 9):
            write_image(folder / wnid / f"{wnid}_{i}.JPEG", label, len(wnids), (300, 260))
    write_image(folder / "n01440764" / "n01440764_1.JPEG", 0, 1, (300, 260))  # a tench, of neither subset


def test_decoding_says_how_far_it_is(tmp_path):
    write_subset(tmp_path / "train", "imagenet10")
    told = []
    load_benchmark("imagenet10", tmp_path, image_size=32, progress=lambda *step: told.append(step))
    assert told == [("read", i + 1, 20) for i in range(20)]


@pytest.mark.parametrize("name", LISTS)
def test_the_class_lists_are_the_fields(name):
    assert list(SUBSETS[name]) == LISTS[name].split()


@pytest.mark.parametrize("layout", ["train", "ILSVRC2012/train", "ILSVRC/Data/CLS-LOC/train", "."])
def test_subsets_are_read_from_every_usual_layout(tmp_path, layout):
    write_subset(tmp_path / layout, "imagenet10")
    read = load_benchmark("imagenet10", tmp_path)
    assert read.images.images.shape == (20, 3, 256, 256)
    assert read.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert read.images.names[:2] == ["n02056570/n02056570_10.JPEG", "n02056570/n02056570_9.JPEG"]
    assert read.classes[0] == "n02056570 king penguin"
    assert_colours(read, 10)


def test_dogs_with_a_limit_and_an_unreadable_file_keep_their_labels(tmp_path):
    write_subset(tmp_path / "train", "imagenet-dogs")
    whole = load_benchmark("imagenet-dogs", tmp_path, image_size=32)
    some = load_benchmark("imagenet-dogs", tmp_path, image_size=32, limit=12)
    assert len(whole.images) == 30
    assert len(set(some.labels.tolist())) > 5
    assert_colours(some, 15)
    broken = some.images.names[3]
    (tmp_path / "train" / broken).write_bytes(b"not an image")
    rest = load_benchmark("imagenet-dogs", tmp_path, image_size=32, limit=12)
    assert sorted(rest.images.names) == sorted(set(some.images.names) - {broken})
    assert [row.path for row in rest.images.skipped] == [broken]
    assert_colours(rest, 15)


def test_missing_classes_are_named(tmp_path):
    write_subset(tmp_path / "train", "imagenet10")
    with pytest.raises(UserError, match=r"no images of 14 of the 15 classes \(n02086646, .*train/n02086646$"):
        load_benchmark("imagenet-dogs", tmp_path)


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    for label, wnid in enumerate(TINY):
        write_image(folder / "train" / wnid / "images" / f"{wnid}_0.JPEG", label, 200, (64, 64))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in TINY))
    (folder / "words.txt").write_text(f"n00001740\tentity\n{TINY[0]}\tgoldfish, Carassius auratus\n")
    return folder


def test_tiny_imagenet(tiny):
    read = load_benchmark("tiny-imagenet", tiny.parent)
    assert read.images.images.shape == (200, 3, 64, 64)
    truth = {f"train/{wnid}/images/{wnid}_0.JPEG": label for label, wnid in enumerate(TINY)}
    assert dict(zip(read.images.names, read.labels.tolist(), strict=True)) == truth
    assert read.classes[:2] == [f"{TINY[0]} goldfish, Carassius auratus", TINY[1]]
    assert_colours(read, 200)


def test_tiny_imagenet_in_parts_is_refused(tmp_path):
    (tmp_path / "wnids.txt").write_text("n01443537\nn01629819\n")
    with pytest.raises(UserError, match=r"wnids\.txt: 2 lines found, 200"):
        load_benchmark("tiny-imagenet", tmp_path)
    (tmp_path / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in TINY))
    with pytest.raises(UserError, match=rf"no images of 200 of the 200 classes \({TINY[0]}, .*train/{TINY[0]}/images$"):
        load_benchmark("tiny-imagenet", tmp_path)
