"""Checkpoints: written aside, synced, renamed, with a hash; the last two are kept, the newest sound one is taken."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from concurl.errors import RunError

log = logging.getLogger("concurl")
KEPT = 2


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    """Write checkpoints/step-N. A kill at any moment leaves either the whole of it or none."""
    folder.mkdir(parents=True, exist_ok=True)
    final, aside = folder / f"step-{step:010d}", folder / f".step-{step:010d}.part"
    shutil.rmtree(aside, ignore_errors=True)
    weights = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    try:
        aside.mkdir()
        manifest = {"step": step, "sha256": hashlib.sha256(weights).hexdigest(), "facts": facts}
        write_synced(aside / "state.safetensors", weights)
        write_synced(aside / "manifest.json", json.dumps(manifest, indent=1).encode())
        shutil.rmtree(final, ignore_errors=True)
        os.rename(aside, final)
        _sync_folder(folder)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{final}: no space for a checkpoint of {len(weights):,} bytes; free some and resume", 74
            ) from error
        raise
    for old in checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def load_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors, facts) of the newest checkpoint that verifies; a damaged one is named and passed over."""
    for path in reversed(checkpoints(folder)):
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            weights = (path / "state.safetensors").read_bytes()
            if hashlib.sha256(weights).hexdigest() != manifest["sha256"]:
                raise ValueError("its content does not match its hash")
            facts: dict[str, Any] = manifest["facts"]
            return load(weights), facts
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            log.warning("checkpoint %s is damaged (%s): going back to the one before", path, error)
    return None


def write_synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
