"""A model folder: what is written comes back to the bit; anything else is refused in one line."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from concurl.errors import RunError, UserError
from concurl.network.model import Model
from concurl.network.trained import SCHEMA, TrainedModel


@pytest.fixture
def trained(tiny):
    torch.manual_seed(0)
    model = Model(tiny(transforms="projection", tau_b_end=1.0)).train()
    model(torch.randn(16, 3, 8, 8))  # running statistics that are not 0 and 1
    model.update_target(torch.tensor(0.5))
    return TrainedModel(tiny(tau_b_end=1.0), model.eval(), "z", torch.randn(4, 8), torch.randn(5, 3, 8), torch.randn(4))


@pytest.fixture
def folder(trained, tmp_path):
    trained.save(tmp_path / "model")
    return tmp_path / "model"


def edit(folder, **changes):
    path = folder / "model.json"
    about = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in about.items() if value is not None}))


def test_round_trip_to_the_bit(trained, folder):
    back = TrainedModel.load(folder)
    assert back.config == trained.config
    assert back.space == trained.space
    for name in ("centres", "A", "scalings"):
        assert torch.equal(getattr(back, name), getattr(trained, name))
    state, want = back.model.state_dict(), trained.model.state_dict()
    assert state.keys() == want.keys()
    assert all(torch.equal(state[name], want[name]) for name in want)
    assert not back.model.training
    assert not any(p.requires_grad for p in back.model.target.parameters())


def test_loading_imports_no_compiler(folder):
    """It takes a third of the time in which a picture is labelled."""
    script = "import sys; from pathlib import Path; from concurl.network.trained import TrainedModel; "
    script += f"TrainedModel.load(Path({str(folder)!r})); sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_the_folder_holds_json_and_safetensors_and_no_pickle(trained, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    stored = load((folder / "model.safetensors").read_bytes())
    assert torch.equal(stored["model.prototypes"], trained.model.prototypes)
    assert json.loads((folder / "model.json").read_text())["config"]["n_clusters"] == 4


def test_saving_again_replaces(trained, folder):
    (folder / "model.json").write_text("old")
    trained.scalings.fill_(3)
    trained.save(folder)
    assert torch.equal(TrainedModel.load(folder).scalings, torch.full((4,), 3.0))
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_what_a_kill_left_and_empty_folders_are_replaced(trained, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model.part").mkdir()
    (tmp_path / "model.part" / "model.safetensors").write_bytes(b"half")
    trained.save(tmp_path / "model")
    TrainedModel.load(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "theirs", ["thesis/chapter.tex", "thesis/drafts/model.json", "thesis.part/chapter.tex", "thesis"]
)
def test_the_users_files_are_never_replaced(trained, tmp_path, theirs):
    path = tmp_path / theirs
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="thesis") as caught:
        trained.save(tmp_path / "thesis")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == "years of work"


@pytest.mark.parametrize("name", [".", "..", "../here"])
def test_the_current_folder_is_no_place_for_a_model(trained, tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="name one inside it"):
        trained.save(Path(name))
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    trained.save(Path("model"))
    assert sorted(path.name for path in Path("model").iterdir()) == ["model.json", "model.safetensors"]


def test_where_a_disk_is_mounted_is_no_place_for_a_model(trained, tmp_path, monkeypatch):
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    with pytest.raises(UserError, match=r"volume is mounted there; name one inside it, such as .*/volume/model$"):
        trained.save(tmp_path / "volume")
    assert [path.name for path in tmp_path.rglob("*")] == ["volume"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(errno.ENOSPC, "full"), RunError)],
    ids=["interrupted", "disk full"],
)
def test_a_failure_leaves_the_old_model(trained, folder, monkeypatch, error, told):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def broken(path, content):
        path.write_bytes(content[:9])
        raise error

    monkeypatch.setattr("concurl.network.trained.write_synced", broken)
    with pytest.raises(told):
        trained.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("fails", [".part", "model"], ids=["the new one", "the old one"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EBUSY, "busy")], ids=["interrupted", "busy"])
def test_a_failure_to_exchange_the_folders_leaves_the_old_model(trained, folder, monkeypatch, fails, error):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rename = Path.rename

    def broken(path, target):
        if path.name.endswith(fails):
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises((KeyboardInterrupt, RunError)):
        trained.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_model_that_belongs_to_a_containers_image_is_replaced(trained, folder, monkeypatch):
    rename = Path.rename

    def broken(path, target):
        if path == folder and target.name == "model.replaced":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    (folder / "model.json").write_text("old")
    trained.save(folder)
    assert TrainedModel.load(folder).digest() == trained.digest()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_model_can_be_saved_after_the_current_folder_is_gone(trained, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    trained.save(tmp_path / "model")
    assert TrainedModel.load(tmp_path / "model").digest() == trained.digest()


class Flat(nn.Module):
    num_features = 5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 8 * 8, 5)
        self.again = self.linear  # a weight with two names

    def forward(self, x):
        return self.again(x.flatten(1))


def test_an_encoder_from_outside_is_given_again(tiny, tmp_path):
    model = Model(tiny(), Flat()).eval()
    TrainedModel(tiny(), model, "v_xi", torch.zeros(4, 12), torch.zeros(5, 3, 12), torch.zeros(4)).save(tmp_path / "m")
    back = TrainedModel.load(tmp_path / "m", encoder=Flat())
    x = torch.randn(3, 3, 8, 8)
    assert torch.equal(back.model(x).w, model(x).w)
    assert back.space == "v_xi"
    assert "cannot be read as a model" in refused(tmp_path / "m")


class Lazy(nn.Module):
    num_features = 5

    def __init__(self):
        super().__init__()
        self.linear = nn.LazyLinear(5)

    def forward(self, x):
        return self.linear(x.flatten(1))


def test_an_encoder_with_lazy_layers_is_loaded_into(tiny, tmp_path):
    encoder = Lazy()
    encoder(torch.zeros(2, 3, 8, 8))
    model = Model(tiny(), encoder).eval()
    TrainedModel(tiny(), model, "v_xi", torch.zeros(4, 12), torch.zeros(5, 3, 12), torch.zeros(4)).save(tmp_path / "m")
    x = torch.randn(3, 3, 8, 8)
    assert torch.equal(TrainedModel.load(tmp_path / "m", encoder=Lazy()).model(x).w, model(x).w)


def test_an_encoder_that_does_not_fit_is_what_is_told(tiny, tmp_path):
    model = Model(tiny(), Flat())
    TrainedModel(tiny(), model, "v_xi", torch.zeros(4, 12), torch.zeros(5, 3, 12), torch.zeros(4)).save(tmp_path / "m")
    encoder = Flat()
    encoder.linear = encoder.again = nn.Linear(7, 5)
    with pytest.raises(UserError, match=r"^encoder=Flat: it fails on images of shape"):
        TrainedModel.load(tmp_path / "m", encoder=encoder)


# ---- what is refused -----------------------------------------------------------------------------------------


def refused(folder: Path) -> str:
    """The one line that says so, and names the folder."""
    with pytest.raises(UserError) as caught:
        TrainedModel.load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


def test_tampered_weights(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # one bit of one weight
    path.write_bytes(data)
    assert "does not match the hash" in refused(folder)


def test_cut_off_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "does not match the hash" in refused(folder)


def test_weights_of_another_network(folder):
    import hashlib

    path = folder / "model.safetensors"
    tensors = load(path.read_bytes())
    tensors["model.prototypes"] = torch.zeros(7, 8)
    path.write_bytes(save(tensors))
    edit(folder, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert "cannot be read as a model" in refused(folder)


def test_not_safetensors(folder):
    import hashlib

    (folder / "model.safetensors").write_bytes(b"\x80\x04pickle?")
    edit(folder, sha256=hashlib.sha256(b"\x80\x04pickle?").hexdigest())
    assert "cannot be read as a model" in refused(folder)


def test_a_newer_schema(folder):
    edit(folder, schema=SCHEMA + 1)
    assert "newer version" in refused(folder)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3", '{"format": "something else"}'], ids=["empty", "list", "number", "other format"]
)
def test_a_foreign_json(folder, text):
    (folder / "model.json").write_text(text)
    assert "not one of ours" in refused(folder)


@pytest.mark.parametrize("data", [b"not json", b"\xff\xfe\x00", b""], ids=["text", "bytes", "empty"])
def test_not_json(folder, data):
    (folder / "model.json").write_bytes(data)
    assert "no readable model.json" in refused(folder)


def test_missing_files(folder):
    assert "no readable model.json" in refused(folder.parent / "nowhere")
    (folder / "model.safetensors").unlink()
    assert "cannot be read as a model" in refused(folder)
    (folder / "model.json").unlink()
    assert "no readable model.json" in refused(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": None},
        {"config": None},
        {"config": []},
        {"config": {"no_such_option": 1}},
        {"config": {"n_clusters": "four"}},
    ],
    ids=["no hash", "no config", "config a list", "unknown option", "bad option"],
)
def test_a_broken_description(folder, changes):
    edit(folder, **changes)
    assert "cannot be read as a model" in refused(folder)


def test_an_unknown_space(folder):
    edit(folder, space="y")
    assert "cannot be read as a model (unknown space 'y')" in refused(folder)
