"""A checkpoint is believed only when all of it verifies; else the one before is taken, and the bad one named."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from concurl.errors import RunError
from concurl.training.checkpoint import checkpoints, load_newest, save_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"w": torch.full((50, 10), float(step))}, {"step": step, "config": "x" * 200})
    return tmp_path


def taken(folder: Path) -> int | None:
    found = load_newest(folder)
    if found is None:
        return None
    tensors, facts = found
    assert torch.equal(tensors["w"], torch.full((50, 10), float(facts["step"])))
    return int(facts["step"])


def test_two_are_kept_and_the_newest_is_taken(folder: Path) -> None:
    assert [path.name for path in checkpoints(folder)] == ["step-0000000002", "step-0000000003"]
    assert taken(folder) == 3


@pytest.mark.parametrize("name", ["state.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "empty"])
def test_damage_anywhere_is_found(folder: Path, name: str, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """Must-show 2: 25 random offsets for each file and each kind of harm that has one."""
    dice = random.Random(f"{name} {harm}")
    path = folder / "step-0000000003" / name
    whole = path.read_bytes()
    for _ in range(25 if harm in ("truncate", "flip") else 1):
        damaged = bytearray(whole)
        if harm == "flip":
            # A flip in the space between two words of json changes nothing: any other is damage.
            place = dice.choice([i for i in range(len(whole)) if name != "manifest.json" or whole[i : i + 1].strip()])
            damaged[place] ^= 1 << dice.randrange(8)
        elif harm == "truncate":
            del damaged[dice.randrange(len(whole)) :]
        caplog.clear()
        if harm == "remove":
            path.unlink()
        else:
            path.write_bytes(b"" if harm == "empty" else damaged)
        with caplog.at_level(logging.WARNING, "concurl"):
            step = taken(folder)
        assert step == 2, bytes(damaged)
        assert "step-0000000003 is damaged" in caplog.text


def test_garbage_beside_the_checkpoints(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "step-zzz").mkdir()
    (folder / "step-9999999999").write_text("a file")
    (folder / ".step-0000000009.part").mkdir()
    with caplog.at_level(logging.WARNING, "concurl"):
        assert taken(folder) == 3
    assert "step-zzz" in caplog.text
    assert "step-9999999999" in caplog.text
    (folder / "step-9999999999").unlink()
    save_checkpoint(folder, 4, {"w": torch.full((50, 10), 4.0)}, {"step": 4})
    assert taken(folder) == 4
    assert (folder / "step-zzz").is_dir(), "what is not ours is not removed"
    assert not (folder / ".step-0000000009.part").exists(), "what a kill left of ours is"


def test_hostile_manifests(folder: Path) -> None:
    manifest = folder / "step-0000000003" / "manifest.json"
    for text in ("[" * 100_000, "[]", "null", '{"content": 3, "sha256": 4}', '{"content": {}}', "\x80\x04."):
        manifest.write_text(text)
        assert taken(folder) == 2
    facts = json.loads((folder / "step-0000000002" / "manifest.json").read_text())
    facts["content"]["facts"]["step"] = 7  # the hash of the weights is right, the facts are not
    (folder / "step-0000000002" / "manifest.json").write_text(json.dumps(facts))
    assert load_newest(folder) is None


def test_what_a_new_start_saves_outlives_the_damaged_ones_ahead_of_it(folder: Path) -> None:
    """As a run does whose checkpoints are all damaged: it begins anew, and may be stopped again before it comes past them."""
    for path in checkpoints(folder):
        (path / "state.safetensors").write_bytes(b"")
    for step in (0, 1):
        save_checkpoint(folder, step, {"w": torch.full((50, 10), float(step))}, {"step": step})
        assert taken(folder) == step
    for step in (4, 5):  # it has come past them, and two are kept, as ever
        save_checkpoint(folder, step, {"w": torch.full((50, 10), float(step))}, {"step": step})
    assert [path.name for path in checkpoints(folder)] == ["step-0000000004", "step-0000000005"]


def test_a_failed_save_leaves_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    from concurl.errors import RunError

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"step-0000000004: it needs [\d,]+ bytes") as caught:
        save_checkpoint(folder, 4, {"w": torch.zeros(9)}, {})
    assert caught.value.exit_code == 74
    assert taken(folder) == 3
    assert sorted(path.name for path in folder.iterdir()) == ["step-0000000002", "step-0000000003"]


def test_no_checkpoints(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "nowhere") is None
    shutil.rmtree(tmp_path)
    assert load_newest(tmp_path) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_that_is_saved_again_never_lacks_a_checkpoint(
    fails: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `fit --from` does with the features that it begins with."""
    real, seen = os.rename, []

    def rename(source: Path, target: Path) -> None:
        seen.append(len(list(folder.glob("*step-0000000003*/state.safetensors"))))
        if fails and target.name == "step-0000000003" and len(seen) == 2:
            raise OSError("no")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(RunError) if fails else nullcontext():
        save_checkpoint(folder, 3, {"w": torch.full((50, 10), 4.0)}, {"step": 4})
    assert seen[:2] == [2, 2]  # the old one and the new, whole, before either is renamed
    assert taken(folder) == (3 if fails else 4)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
