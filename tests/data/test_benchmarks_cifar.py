"""CIFAR files in every official form, written byte by byte here and read back exactly."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from concurl.data.benchmarks import load_benchmark
from concurl.data.publishers import cifar
from concurl.errors import UserError

SMALL = {f"data_batch_{i}": 3 for i in range(1, 6)} | {"test_batch": 4, "train": 6, "test": 5}
FILES = {"10": [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], "100": ["train", "test"]}
FOLDERS = {
    ("10", "binary"): "cifar-10-batches-bin",
    ("10", "python"): "cifar-10-batches-py",
    ("100", "binary"): "cifar-100-binary",
    ("100", "python"): "cifar-100-python",
}


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(cifar, "RECORDS", SMALL)


def make_records(which: str) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    limits = {"labels": 10} if which == "10" else {"coarse_labels": 20, "fine_labels": 100}
    return {
        file: {"data": rng.integers(0, 256, (SMALL[file], 3072), np.uint8)}
        | {column: rng.integers(0, limit, SMALL[file]) for column, limit in limits.items()}
        for file in FILES[which]
    }


def python2_pickle(batch: dict[str, np.ndarray]) -> bytes:
    """Protocol 2 as Python 2's cPickle wrote it: text as byte strings, numpy under its old name."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def listed(values: list[bytes]) -> bytes:
        return b"](" + b"".join(values) + b"e"

    data = batch["data"]
    dtype = (
        b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
    )
    shape = number(data.shape[0]) + number(data.shape[1]) + b"\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + dtype + b"\x89" + text(data.tobytes()) + b"tb"
    items = [text(b"data"), array, text(b"batch_label"), text(b"training batch 1 of 5")]
    items += [text(b"filenames"), listed([text(b"leptodactylus_s_000004.png")] * len(data))]
    for column in batch.keys() - {"data"}:
        items += [text(column.encode()), listed([number(int(value)) for value in batch[column]])]
    return b"\x80\x02}(" + b"".join(items) + b"u."


def python3_pickle(batch: dict[str, np.ndarray]) -> bytes:
    plain = {key.encode(): value.tolist() for key, value in batch.items() if key != "data"}
    return pickle.dumps({b"data": batch["data"], b"batch_label": b"x", **plain}, protocol=2)


def binary(batch: dict[str, np.ndarray]) -> bytes:
    columns = [batch[column][:, None] for column in ("labels", "coarse_labels", "fine_labels") if column in batch]
    return np.concatenate([*columns, batch["data"]], axis=1).astype(np.uint8).tobytes()


def write_set(root: Path, which: str, form: str, packed: bool, pickler=python2_pickle) -> Path:
    records = make_records(which)
    folder = FOLDERS[which, form]
    contents = {
        f"{folder}/{file}{'.bin' if form == 'binary' else ''}": (binary if form == "binary" else pickler)(batch)
        for file, batch in records.items()
    }
    if packed:
        # backwards: the publisher's archives are not in the order of the batches either
        return write_tar(root / f"cifar-{which}-{form}.tar.gz", dict(reversed(contents.items())))
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root / folder


def write_tar(path: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def as_written(benchmark, which: str, column: str, files: list[str]) -> bool:
    """Are these the pixels and labels that write_set has written?"""
    records = make_records(which)
    pixels = np.concatenate([records[file]["data"] for file in files]).reshape(-1, 3, 32, 32)
    labels = [int(x) for file in files for x in records[file][column]]
    return np.array_equal(benchmark.images.images, pixels) and benchmark.labels.tolist() == labels


def test_the_hand_made_pickle_is_one_that_python_reads():
    batch = make_records("100")["train"]
    loaded = pickle.loads(python2_pickle(batch), encoding="bytes")
    assert (loaded[b"data"] == batch["data"]).all()
    assert loaded[b"data"].dtype == np.uint8
    assert loaded[b"coarse_labels"] == batch["coarse_labels"].tolist()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["binary", "python"])
@pytest.mark.parametrize(
    ("name", "column"), [("cifar10", "labels"), ("cifar100", "fine_labels"), ("cifar100-20", "coarse_labels")]
)
def test_every_official_form_gives_the_written_pixels_and_labels(tmp_path, name, column, form, packed):
    which = "10" if name == "cifar10" else "100"
    write_set(tmp_path, which, form, packed)
    before = sorted(tmp_path.rglob("*"))
    both = load_benchmark(name, tmp_path)
    assert as_written(both, which, column, FILES[which])
    assert len(both.classes) == {"cifar10": 10, "cifar100": 100, "cifar100-20": 20}[name]
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked
    n_train = sum(SMALL[file] for file in FILES[which][:-1])
    assert both.images.names[n_train - 1 : n_train + 1] == [
        f"cifar{which}/train/{n_train - 1:05d}",
        f"cifar{which}/test/00000",
    ]


def test_the_folder_itself_can_be_given_under_any_name(tmp_path):
    for form in ("binary", "python"):
        folder = write_set(tmp_path, "10", form, packed=False).rename(tmp_path / form)
        assert as_written(load_benchmark("cifar10", folder), "10", "labels", FILES["10"])


def test_an_unpacked_set_is_read_before_a_packed_one(tmp_path):
    """It is faster to read, and an archive beside it may be half downloaded."""
    write_set(tmp_path, "10", "binary", packed=False)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"half")
    assert as_written(load_benchmark("cifar10", tmp_path), "10", "labels", FILES["10"])


def test_pickles_saved_again_by_python_3(tmp_path):
    folder = write_set(tmp_path, "10", "python", packed=False, pickler=python3_pickle)
    assert b"_codecs" in (folder / "test_batch").read_bytes()
    assert as_written(load_benchmark("cifar10", tmp_path), "10", "labels", FILES["10"])


def test_a_column_major_array_is_read_as_numpy_would(tmp_path):
    folder = write_set(tmp_path, "10", "python", packed=False)
    batch = make_records("10")["test_batch"]
    batch["data"] = np.asfortranarray(batch["data"])
    (folder / "test_batch").write_bytes(python3_pickle(batch))
    assert as_written(load_benchmark("cifar10", tmp_path), "10", "labels", FILES["10"])


def test_classes_are_the_publishers():
    ten, hundred, twenty = (cifar.CIFARS[name].classes for name in ("cifar10", "cifar100", "cifar100-20"))
    assert (ten[1], ten[5], ten[9]) == ("automobile", "dog", "truck")
    assert list(hundred) == sorted(set(hundred))
    assert (len(hundred), hundred[23], hundred[99]) == (100, "cloud", "worm")
    assert list(twenty) == sorted(set(twenty))
    assert (len(twenty), twenty[14], twenty[19]) == (20, "people", "vehicles_2")


class Evil:
    def __init__(self, call, *args):
        self.reduced = (call, args)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("packed", [False, True])
def test_a_malicious_pickle_is_refused_before_it_acts(tmp_path, packed):
    canary = tmp_path / "canary"
    content = pickle.dumps({b"data": b"x" * 3072 * 4, b"labels": Evil(os.mkdir, str(canary))}, protocol=2)
    pickle.loads(content)
    assert canary.is_dir()  # the trap works, where nobody looks
    canary.rmdir()
    folder = write_set(tmp_path, "10", "python", packed=False)
    (folder / "test_batch").write_bytes(content)
    if packed:
        contents = {f"{folder.name}/{path.name}": path.read_bytes() for path in folder.iterdir()}
        write_tar(tmp_path / "cifar-10-python.tar.gz", contents)
        shutil.rmtree(folder)
    with pytest.raises(UserError, match=rf"cifar-10\S+: test_batch: refused.*{os.mkdir.__module__}\.mkdir"):
        load_benchmark("cifar10", tmp_path)
    assert not canary.exists()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("call", [eval, getattr, np.load, np.frombuffer, os.system])
def test_only_the_names_of_the_official_files_are_admitted(call, protocol):
    content = pickle.dumps(Evil(call, "1"), protocol=protocol)
    with pytest.raises(UserError, match=rf"\.{call.__name__}, which no official"):
        cifar.OfficialUnpickler(io.BytesIO(content)).load()


def test_a_forged_array_type_never_reaches_numpy(tmp_path):
    folder = write_set(tmp_path, "10", "python", packed=False)
    official = (folder / "test_batch").read_bytes()
    (folder / "test_batch").write_bytes(official.replace(b"U\x02u1", b"U\x02O8"))
    with pytest.raises(UserError, match=r"test_batch: .*an array of b'O8' in place of bytes"):
        load_benchmark("cifar10", tmp_path)


def test_a_state_set_on_a_class_changes_nothing():
    # BUILD with a slot state sets attributes on whatever lies on the stack: here on the admitted names.
    for name in (
        b"numpy\ndtype\n",
        b"numpy\nndarray\n",
        b"numpy.core.multiarray\n_reconstruct\n",
        b"_codecs\nencode\n",
    ):
        content = b"\x80\x02c" + name + b"N}U\x08__init__K\x01s\x86b."
        with pytest.raises((TypeError, AttributeError)):
            cifar.OfficialUnpickler(io.BytesIO(content), encoding="bytes").load()
    assert callable(cifar._Array.__init__)
    assert callable(cifar._Dtype.__init__)


def test_what_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    write_set(tmp_path, "10", "binary", packed=False)
    monkeypatch.setattr("concurl.data.publishers.archives.open", denied, raising=False)  # root may read anything
    with pytest.raises(UserError, match=r"cifar-10-batches-bin: cannot be read \(Permission denied\)"):
        load_benchmark("cifar10", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("form", "change"), [("binary", -1), ("binary", 1), ("python", -12_000)])
def test_a_file_of_the_wrong_size_names_file_found_and_expected(tmp_path, form, change, packed):
    folder = write_set(tmp_path, "10", form, packed=False)
    file = "data_batch_2.bin" if form == "binary" else "data_batch_2"
    content = (folder / file).read_bytes()
    wrong = content + b"x" if change > 0 else content[:change]
    (folder / file).write_bytes(wrong)
    if packed:
        write_tar(
            tmp_path / f"cifar-10-{form}.tar.gz",
            {f"{folder.name}/{path.name}": path.read_bytes() for path in folder.iterdir()},
        )
        for path in folder.iterdir():
            path.unlink()
    expected = "9,219 expected" if form == "binary" else "9,216 to "
    with pytest.raises(UserError, match=rf"cifar-10\S+: {file}: {len(wrong):,} bytes found, {expected}"):
        load_benchmark("cifar10", tmp_path)


def test_a_pickle_cut_near_its_end_is_refused(tmp_path):
    folder = write_set(tmp_path, "10", "python", packed=False)
    content = (folder / "test_batch").read_bytes()
    (folder / "test_batch").write_bytes(content[:-9])
    with pytest.raises(UserError, match=rf"test_batch: {len(content) - 9:,} bytes found, expected a whole pickle"):
        load_benchmark("cifar10", tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
@pytest.mark.parametrize("form", ["binary", "python"])
def test_an_archive_cut_off_names_bytes_found_and_expected(tmp_path, form, share):
    path = write_set(tmp_path, "10", form, packed=True)
    content = path.read_bytes()
    kept = content[: int(len(content) * share)]
    path.write_bytes(kept)
    size = {"binary": "170,052,171", "python": "170,498,071"}[form]
    with pytest.raises(UserError, match=rf"{path.name}: cut off.*{len(kept):,} bytes found, {size} expected"):
        load_benchmark("cifar10", tmp_path)


def test_an_archive_damaged_in_the_middle_is_refused(tmp_path):
    path = write_set(tmp_path, "10", "binary", packed=True)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(UserError, match=path.name):
        load_benchmark("cifar10", tmp_path)


def test_members_with_odd_names_or_kinds_are_not_followed(tmp_path):
    good = binary(make_records("10")["test_batch"])
    path = tmp_path / "cifar-10-binary.tar.gz"
    (tmp_path / "secret").write_bytes(good)
    odd = ["../cifar-10-batches-bin/test_batch.bin", "/cifar-10-batches-bin/test_batch.bin", "test_batch.bin"]
    with tarfile.open(path, "w:gz") as archive:
        for name in odd:
            member = tarfile.TarInfo(name)
            member.size = len(good)
            archive.addfile(member, io.BytesIO(good))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
            link.type, link.linkname = kind, str(tmp_path / "secret")
            archive.addfile(link)
    with pytest.raises(UserError, match=r"cifar-10-batches-bin/test_batch\.bin missing in the archive"):
        load_benchmark("cifar10", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, "secret"]


def test_a_missing_file_of_the_folder_is_named(tmp_path):
    folder = write_set(tmp_path, "10", "binary", packed=False)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(UserError, match=r"data_batch_4\.bin is missing; unpack cifar-10-binary\.tar\.gz"):
        load_benchmark("cifar10", tmp_path)


@pytest.mark.parametrize("form", ["binary", "python"])
def test_a_label_out_of_range_is_refused(tmp_path, form):
    folder = write_set(tmp_path, "10", form, packed=False)
    batch = make_records("10")["test_batch"]
    batch["labels"][2] = 10
    write, suffix = (binary, ".bin") if form == "binary" else (python2_pickle, "")
    (folder / f"test_batch{suffix}").write_bytes(write(batch))
    with pytest.raises(UserError, match=r"test_batch\S*: label 10 where 0 to 9"):
        load_benchmark("cifar10", tmp_path)


def test_official_counts_are_checked_by_default(tmp_path, monkeypatch):
    write_set(tmp_path, "10", "binary", packed=False)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"9,219 bytes found, 30,730,000 expected"):
        load_benchmark("cifar10", tmp_path)
