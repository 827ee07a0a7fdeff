"""Checkpoints with hashes: written aside, synced, then renamed. The last two are kept, and the newest sound one is loaded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from concurl.atomic import cannot_write, rename_folder, sync_folder, write_synced

log = logging.getLogger("concurl")
KEPT = 2
_NAME = re.compile(r"step-\d{10}")


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write folder/step-N. A kill at any moment leaves the whole of it or nothing."""
    final, aside = folder / f"step-{step:010d}", folder / f".step-{step:010d}.part"
    weights = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for remains in folder.glob(".step-*.part"):  # of a save that was killed
            shutil.rmtree(remains, ignore_errors=True)
        aside.mkdir()
        write_synced(aside / "state.safetensors", weights)
        write_synced(aside / "manifest.json", _manifest({"weights": _hash(weights), "facts": facts}))
        _exchange(aside, final)
        sync_folder(folder)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(error, final, len(weights)) from error
        raise
    # Those of later steps are damaged, as the run has begun again before them: they must not count, or this one would go.
    for old in [path for path in checkpoints(folder) if path.name <= final.name][:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _exchange(aside: Path, final: Path) -> None:
    """Give `aside` its name; what had that name goes only when the new one stands there."""
    replaced = aside.with_name(f"{aside.stem}.old.part")
    if final.exists():
        rename_folder(final, replaced)
    try:
        os.rename(aside, final)
    except BaseException:
        if replaced.exists():
            os.rename(replaced, final)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def load_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors, facts) of the newest sound checkpoint; a warning names each damaged one that is passed over."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            if not _NAME.fullmatch(path.name):
                raise ValueError("its name is none of ours")
            content = _content((path / "manifest.json").read_bytes())
            weights = (path / "state.safetensors").read_bytes()
            if _hash(weights) != content["weights"]:
                raise ValueError("its weights do not match their hash")
            facts: dict[str, Any] = content["facts"]
            return load(weights), facts
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            log.warning("checkpoint %s is damaged (%s): going back to the one before", path, error)
    return None


def _manifest(content: dict[str, Any]) -> bytes:
    """The content with a hash of its own, so that a flipped bit is noticed wherever it is."""
    return json.dumps({"content": content, "sha256": _hash(_canonical(content))}, indent=1).encode()


def _content(manifest: bytes) -> dict[str, Any]:
    read = json.loads(manifest)
    content: dict[str, Any] = read["content"]
    if _hash(_canonical(content)) != read["sha256"]:
        raise ValueError("its manifest does not match its hash")
    return content


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
