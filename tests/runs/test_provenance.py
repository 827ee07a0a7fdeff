"""run.json: written and read without loss; of an older version's run what is there is known, and a damaged one is no run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concurl.cli import main
from concurl.errors import UserError
from concurl.runs.provenance import Provenance


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = Provenance(
        "photos", origin="/runs/first", limit=5, recipe="modern", chosen=["stem = small"], root="/photos"
    )
    (tmp_path / "run.json").write_text(whole.to_json())
    assert Provenance.read(tmp_path) == whole
    assert json.loads(whole.to_json())["from"] == "/runs/first"


def test_what_an_older_version_did_not_say_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"source": "photos", "data_dir": null, "limit": 7, "colour": "red"}')
    assert Provenance.read(tmp_path) == Provenance("photos", limit=7)


@pytest.mark.parametrize("damaged", ["", "[]", "{", '{"limit": 3}', '{"source": 3}', '{"source": "a", "limit": "3"}'])
def test_a_damaged_one_is_no_run(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "run.json").write_text(damaged)
    with pytest.raises(UserError, match=r"holds no run \(no readable run\.json\)"):
        Provenance.read(tmp_path)


def test_the_demo_is_a_run_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurl.runs.run.fit", stopped)
    assert main(["demo", "-o", str(tmp_path)]) == 130
    found = Provenance.read(tmp_path)
    assert (found.source, found.recipe) == ("digits", "digits")
    assert len(found.images or "") == 64
