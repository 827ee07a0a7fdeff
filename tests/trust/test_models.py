"""Model folders from elsewhere: damaged, forged, too large, of older versions."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from concurl.errors import UserError
from concurl.network.model import Model
from concurl.network.trained import TrainedModel

SAMPLE = Path(__file__).parent / "models" / "schema-1"


# ---- mutated model folders ------------------------------------------------------------------------------------


def write_small(folder: Path, tiny: Any) -> Path:
    torch.manual_seed(0)
    config = tiny(tau_b_end=1.0)
    TrainedModel(config, Model(config).eval(), "z", torch.randn(4, 8), torch.randn(5, 3, 8), torch.randn(4)).save(
        folder
    )
    return folder


def mutated_bytes(dice: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    kind = dice.randrange(5)
    place = dice.randrange(len(changed))
    if kind == 0:
        changed[place] ^= 1 << dice.randrange(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        changed[place:place] = dice.randbytes(dice.randrange(1, 200))
    elif kind == 3:
        changed[place : place + 50] = b"\0" * 50
    else:
        changed = bytearray(dice.randbytes(dice.randrange(2000)))
    return bytes(changed)


WILD = [None, True, -1, 0, 1e308, 10**12, "x", "", [], {}, [1], "NaN", 2**31, 0.5, "resnet50", 999_999]


def mutated_description(dice: random.Random, about: dict[str, Any]) -> dict[str, Any]:
    where = about if dice.random() < 0.3 else about["config"]
    name = dice.choice(sorted(where))
    if dice.random() < 0.2:
        del where[name]
    else:
        where[name] = dice.choice(WILD)
    return about


def mutated_tensors(dice: random.Random, weights: bytes) -> bytes:
    """A sound file of other tensors: one missing, of another shape or type, NaN, or one too many."""
    tensors = load(weights)
    name = dice.choice(sorted(tensors))
    kind = dice.randrange(5)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name] = torch.zeros(dice.randrange(5), dice.randrange(5))
    elif kind == 2:
        tensors[name] = tensors[name].to(torch.complex64 if dice.random() < 0.3 else torch.float16)
    elif kind == 3:
        tensors[name] = torch.full_like(tensors[name].float(), float("nan"))
    else:
        tensors["../../etc/passwd"] = torch.zeros(1)
    return save(tensors)


def mutate(dice: random.Random, folder: Path) -> None:
    json_path, weights_path = folder / "model.json", folder / "model.safetensors"
    kind = dice.randrange(4)
    if kind == 0:
        path = dice.choice([json_path, weights_path])
        path.write_bytes(mutated_bytes(dice, path.read_bytes()))
        return
    about = json.loads(json_path.read_text())
    if kind == 1:
        about = mutated_description(dice, about)
    elif kind == 2:
        weights_path.write_bytes(mutated_tensors(dice, weights_path.read_bytes()))
    else:
        weights_path.write_bytes(mutated_bytes(dice, weights_path.read_bytes()))
    if kind > 1:  # an attacker can hash
        about["sha256"] = hashlib.sha256(weights_path.read_bytes()).hexdigest()
    json_path.write_text(json.dumps(about))


def torture(where: Path, tiny: Any, n: int) -> Counter[str]:
    """Load n mutated folders: each loads to a model that labels, or is refused in one line."""
    from concurl.clustering.assign import assign

    whole, tally = write_small(where / "whole", tiny), Counter[str]()
    import numpy as np

    images = np.zeros((2, 3, 8, 8), np.uint8)
    for seed in range(n):
        folder = where / "mutated"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        mutate(random.Random(seed), folder)
        try:
            found = assign(TrainedModel.load(folder), images)
        except UserError as error:
            said = str(error)
            tally["refused" if str(folder) in said and "\n" not in said else f"badly refused: {said}"] += 1
        else:
            assert np.isfinite(found.probabilities).all(), seed
            tally["loaded"] += 1
    return tally


def peak_memory() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_sixty_mutated_models(tmp_path: Path, tiny: Any) -> None:
    tally = torture(tmp_path, tiny, 60)
    print(tally)
    assert tally["refused"] > 30
    assert tally.keys() == {"refused", "loaded"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_mutated_models(tmp_path: Path, tiny: Any) -> None:
    before = peak_memory()
    tally = torture(tmp_path, tiny, 1000)
    print(tally, f"memory grew by {(peak_memory() - before) / 2**20:.0f} MiB")
    assert tally["refused"] > 500
    assert tally.keys() == {"refused", "loaded"}
    assert peak_memory() - before < 500 * 2**20


def test_a_description_that_asks_for_terabytes(tmp_path: Path, tiny: Any) -> None:
    folder = write_small(tmp_path / "m", tiny)
    about = json.loads((folder / "model.json").read_text())
    about["config"] |= {"n_clusters": 1_000_000, "embedding_dim": 1_000_000, "cluster_hidden": 1_000_000}
    (folder / "model.json").write_text(json.dumps(about))
    before = peak_memory()
    with pytest.raises(UserError):
        TrainedModel.load(folder)
    assert peak_memory() - before < 100 * 2**20


# ---- what older versions wrote --------------------------------------------------------------------------------


class Small(nn.Module):
    """The sample's encoder, from outside: the smallest of our own takes 600 kB."""

    num_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.conv(x)).mean((2, 3))


def make_sample(tiny: dict[str, Any]) -> None:
    """How the sample was made. While the schema is 1 it is not to be made again."""
    import numpy as np

    from concurl.clustering.assign import assign
    from concurl.config import Config

    torch.manual_seed(0)
    config = Config(**tiny)
    centres, A, u = nn.functional.normalize(torch.randn(4, 8), dim=1), torch.randn(5, 3, 8), torch.randn(4) / 10
    TrainedModel(config, Model(config, Small()).eval(), "z", centres, A, u).save(SAMPLE)
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
    found = assign(TrainedModel.load(SAMPLE, encoder=Small()), images)
    wanted = {"images": images, "labels": found.labels, "probabilities": found.probabilities}
    content = save({name: torch.from_numpy(value) for name, value in wanted.items()})
    (SAMPLE.parent / "schema-1-wanted.safetensors").write_bytes(content)


def test_a_model_of_schema_1_still_loads_and_labels_alike() -> None:
    from concurl.clustering.assign import assign

    trained = TrainedModel.load(SAMPLE, encoder=Small())
    wanted = load((SAMPLE.parent / "schema-1-wanted.safetensors").read_bytes())
    found = assign(trained, wanted["images"].numpy())
    assert found.labels.tolist() == wanted["labels"].tolist()
    torch.testing.assert_close(torch.from_numpy(found.probabilities), wanted["probabilities"], atol=1e-4, rtol=1e-3)
    assert sum(path.stat().st_size for path in SAMPLE.parent.rglob("*") if path.is_file()) < 100_000
