"""The source folders stand in the order in which data flows, and each imports only from those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import concurl

SOURCE = Path(concurl.__file__).parent
GROUND = [
    "errors",
    "amounts",
    "cores",
    "hostmemory",
    "atomic",
    "csvfile",
    "progress",
    "config",
]  # what all folders may use
FLOW = ["data", "views", "recipes", "network", "objective", "training", "clustering", "runs", "report", "export"]
DOORS = ["commands", "cli", "estimator"]
WITHIN_DATA = {"files": set(), "pictures": set(), "checking": {"files", "pictures"}, "publishers": set()}


def imports(file: Path) -> set[str]:
    """The modules of this package that `file` imports, anywhere in it, as dotted names without the package's own."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "concurl":
            inside = (node.module or "").removeprefix("concurl").lstrip(".")
            found |= {f"{inside}.{name.name}".lstrip(".") for name in node.names}
    return {name for name in found if not name.startswith("__")}


def used_by(folder: str) -> set[str]:
    """What the files of a folder, or the file of that name, import from elsewhere: first parts of the dotted names."""
    place = SOURCE / folder
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return {name.split(".")[0] for file in files for name in imports(file)} - {folder}


@pytest.mark.parametrize("folder", [*GROUND, *FLOW])
def test_arrows_go_one_way(folder: str) -> None:
    order = [*GROUND, *FLOW]
    assert used_by(folder) <= set(order[: order.index(folder)])


def test_every_file_has_its_place() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found == {*GROUND, *FLOW, *DOORS, "__init__", "__main__"}


@pytest.mark.parametrize(("folder", "allowed"), WITHIN_DATA.items())
def test_within_data_too(folder: str, allowed: set[str]) -> None:
    used = {name for file in (SOURCE / "data" / folder).glob("*.py") for name in imports(file)}
    assert {name.split(".")[1] for name in used if name.startswith("data.")} - {folder} <= allowed
