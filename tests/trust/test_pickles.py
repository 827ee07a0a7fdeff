"""Files that are not what their names say: nothing in them runs, and each is answered in one line."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pickles import payloads, register_extension
from user_runs import OPTIONS, photos

from concurl.cli import main

SOURCE = Path(__file__).parents[2] / "src" / "concurl"
NAMES = list(payloads(Path("canary")))
RUN = (
    "config.json run.json environment.json metrics.jsonl summary.json assignments.csv skipped.csv embeddings.npy "
    "names.json model/model.json model/model.safetensors checkpoints/*/manifest.json checkpoints/*/state.safetensors "
    "features/*/manifest.json features/*/state.safetensors"
).split()
CACHE = ["cache/concurl/*.npy", "cache/concurl/*.jsonl"]
PARTS = ["parts/part-1-of-2.json", "parts/part-1-of-2.csv"]
SHARDS = [f"shards/{name}" for name in (".shards.json", ".shard-000000.json", ".shard-*.index", "shard-000000.tar")]
CIFAR = ["data/cifar-10-batches-py/data_batch_1"]
# Each verb, and what it may come to read.
VERBS: dict[str, tuple[list[str], list[str]]] = {
    "resume": (["fit", "--resume", "-o", "run", "--quiet", "--no-report"], [*(f"run/{name}" for name in RUN), *CACHE]),
    "predict": (["predict", "run", "photos", "-o", "new.csv", "--quiet"], [*(f"run/{name}" for name in RUN), *CACHE]),
    "report": (["report", "run", "--quiet"], [*(f"run/{name}" for name in RUN), *CACHE]),
    "export": (["export", "run", "--folders", "copy", "-o", "out"], [f"run/{name}" for name in RUN]),
    "evaluate": (
        ["evaluate", "run", "--labels", "labels.csv"],
        [*(f"run/{name}" for name in RUN), *CACHE, "labels.csv"],
    ),
    "suggest": (["suggest", "run", "--up-to", "2", "--quiet"], [*(f"run/{name}" for name in RUN), *CACHE]),
    "from": (
        ["fit", "--from", "run", "-o", "other", "--quiet", "--no-report"],
        [*(f"run/{name}" for name in RUN), *CACHE],
    ),
    "part": (["predict", "run", "photos", "-o", "parts", "--shard", "1/2", "--quiet"], PARTS),
    "merge": (["merge", "parts", "-o", "merged.csv"], PARTS),
    "audit": (["audit", "photos", "--quiet"], ["photos/*.png"]),
    "audit of a list": (["audit", "list.txt", "--quiet"], ["list.txt"]),
    "audit of a csv": (["audit", "list.csv", "--quiet"], ["list.csv"]),
    "audit of shards": (["audit", "shards", "--quiet"], SHARDS[2:]),
    "pack": (["pack", "photos", "-o", "shards"], SHARDS),
    "fit": (["fit", "cifar10", "--data-dir", "data", "-o", "other", "--quiet"], CIFAR),
}
READERS: dict[str, list[str]] = {}  # file -> the verbs that may read it
for _verb, (_, _patterns) in VERBS.items():
    for _pattern in _patterns:
        READERS.setdefault(_pattern, []).append(_verb)
KEPT = ["run", "cache", "parts", "shards", "photos", "labels.csv", "list.txt", "list.csv", "data"]


def gone(canary: Path) -> bool:
    sang = canary.exists()
    if sang:
        canary.rmdir() if canary.is_dir() else canary.unlink()
    return not sang


@pytest.mark.parametrize("name", NAMES)
def test_each_canary_sings_for_a_careless_reader(name: str, tmp_path: Path) -> None:
    """Else the next tests would show nothing."""
    register_extension()
    content, careless = payloads(tmp_path / "canary")[name]
    with contextlib.suppress(Exception):  # some sing and then choke
        careless(content)
    assert not gone(tmp_path / "canary")


def test_there_are_enough_of_them() -> None:
    assert len({content for content, _ in payloads(Path("canary")).values()}) == len(NAMES) >= 20


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that we ever read, in a folder `whole`."""
    register_extension()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    photos(Path("photos"))
    fit = ["fit", "photos", "-k", "3", "-o", "run", "--epochs", "1", "--quiet", "--no-report", *OPTIONS]
    assert main([*fit, "--checkpoint-minutes", "0"]) == 0
    rows = [row.split(",")[0] for row in Path("run/assignments.csv").read_text().splitlines()[1:]]
    Path("labels.csv").write_text("path,label\n" + "".join(f"{row},a\n" for row in rows))
    Path("list.txt").write_text("".join(f"photos/{row}\n" for row in rows))
    Path("list.csv").write_text("path\n" + "".join(f"photos/{row}\n" for row in rows))
    Path("run/names.json").write_text("{}")
    for number in (1, 2):
        assert main([*VERBS["part"][0][:5], "--shard", f"{number}/2", "--quiet"]) == 0
    assert main(VERBS["pack"][0]) == 0
    Path("data/cifar-10-batches-py").mkdir(parents=True)
    for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        Path("data/cifar-10-batches-py", stem).write_bytes(b"")
    Path("whole").mkdir()
    for name in KEPT:
        Path(name).rename(Path("whole") / name)
    return tmp_path


def plant(pattern: str, content: bytes) -> None:
    for name in KEPT:
        path, whole = Path(name), Path("whole") / name
        if whole.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(whole, path)  # with the old times: else a changed folder would be packed anew
        else:
            shutil.copy2(whole, path)
    for name in ("out", "other"):
        shutil.rmtree(name, ignore_errors=True)
    found = list(Path().glob(pattern))
    assert found, pattern
    for path in found:
        path.write_bytes(content)


def answer(arguments: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)  # an exception that comes out of here is a traceback at the user's
    return code, said.getvalue()


def torture(where: Path, cases: Iterator[tuple[str, str, str]]) -> Counter[str]:
    """(verb, pattern, name of the payload) each: no song, no traceback, and a refusal is one line."""
    canary, tally = where / "canary", Counter[str]()
    contents = {name: content for name, (content, _) in payloads(canary).items()}
    for verb, pattern, name in cases:
        content = contents[name]
        if "cifar" in pattern:  # shorter ones are refused unread; what comes behind a pickle is not looked at
            content = content.ljust(31_000_000, b"\0")
        plant(pattern, content)
        code, said = answer(VERBS[verb][0])
        assert code in (0, 2), (verb, pattern, name, said)
        assert gone(canary), (verb, pattern, name)
        if code == 2:
            lines = said.splitlines()  # after warnings, of a damaged checkpoint for instance
            assert lines[-1].startswith("concurl: "), (verb, pattern, name, said)
            assert not any(line.startswith(("concurl: ", "Traceback")) for line in lines[:-1]), (verb, said)
        tally["refused" if code else "passed over"] += 1
    return tally


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_pickles_under_every_name_we_read(here: Path) -> None:
    """With every other verb of those that read it."""
    pairs = [(v, pattern) for i, (pattern, verbs) in enumerate(READERS.items()) for v in verbs[i % len(verbs[:2]) :: 2]]
    assert {pattern for _, pattern in pairs} == READERS.keys()
    print(torture(here, ((*pair, NAMES[i % len(NAMES)]) for i, pair in enumerate(pairs))))


def test_a_registered_extension_that_another_reader_has_met(here: Path) -> None:
    """Python keeps what an extension stood for, and asks nobody the second time."""
    content, careless = payloads(here / "canary")["EXT1"]
    careless(content)
    assert not gone(here / "canary")
    assert torture(here, iter([("fit", *CIFAR, "EXT1")])) == {"refused": 1}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_pickles_under_every_name_we_read(here: Path) -> None:
    """Each under each name, read by the verbs in turn: so each verb meets each name several times, too."""
    before = peak_memory()
    cases = [
        (verbs[i % len(verbs)], pattern, name) for i, name in enumerate(NAMES) for pattern, verbs in READERS.items()
    ]
    assert len({(verb, pattern) for verb, pattern, _ in cases}) == sum(map(len, READERS.values()))
    tally = torture(here, iter(cases))
    grown = (peak_memory() - before) / 2**20
    print(f"{len(NAMES)} pickles under {len(READERS)} names: {dict(tally)}; memory grew by {grown:.0f} MiB")
    assert grown < 500


def test_an_array_with_a_header_too_deep(here: Path) -> None:
    """It is read as a Python literal, by numpy: no code, but no small task either."""
    for depth in (150, 9000):
        header = ("{'descr': " + "-" * depth + "1, 'fortran_order': False, 'shape': (1,)}").encode().ljust(9999) + b"\n"
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        for pattern, wanted in (("run/embeddings.npy", 2), ("cache/concurl/*.npy", 0)):
            plant(pattern, content)
            code, said = answer(VERBS["report"][0])
            assert (code, "Traceback" in said) == (wanted, False), said


@pytest.mark.parametrize("pattern", ["shards/.shard-*.index", "shards/.shard-000000.json", "parts/part-1-of-2.json"])
def test_json_too_deep(pattern: str, here: Path) -> None:
    plant(pattern, b"[" * 100_000)
    verb = "merge" if "part" in pattern else "audit of shards" if "index" in pattern else "pack"
    code, said = answer(VERBS[verb][0])
    assert (code, said.count("\n")) in ((0, 1), (0, 0), (2, 1)), said


def test_a_forged_csv_writes_nothing_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("photos/deep").mkdir(parents=True)
    Path("photos/a.png").write_text("x")
    deep = str(tmp_path / "photos" / "deep")
    Path("run/run.json").write_text(json.dumps({"source": deep, "data_dir": None, "limit": None, "root": deep}))
    for number, path in enumerate(("../a.png", str(tmp_path / "photos" / "a.png"), "../../photos/deep/../a.png")):
        Path("run/assignments.csv").write_text(f"path,cluster,status\n{path},0,ok\n")
        assert main(["export", "run", "--folders", "copy", "-o", f"out/{number}"]) == 0
        assert [str(file) for file in Path("out").rglob("*.*")] == [f"out/{number}/000/a.png"]
        shutil.rmtree("out")
    Path("run/assignments.csv").write_text("path,cluster,status\na.png,../0,ok\n")
    assert main(["export", "run", "--folders", "copy", "-o", "out/in"]) == 2
    assert "no valid assignments" in capsys.readouterr().err
    assert not Path("out").exists()


# ---- the source itself ----------------------------------------------------------------------------------------


def test_no_pickle_on_any_path() -> None:
    """One exception: the reader of CIFAR's official files, whose unpickler knows only what those hold."""
    found = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            if {"pickle", "_pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"} & set(names):
                found.append(f"{path.relative_to(SOURCE)} imports {names}")
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if called in ("np.load", "numpy.load") and options.get("allow_pickle") != "False":
                    found.append(f"{path.relative_to(SOURCE)} calls {ast.unparse(node)}")
                if called in ("torch.load", "eval", "exec", "torch.jit.load", "torch.export.load", "__import__"):
                    found.append(f"{path.relative_to(SOURCE)} calls {called}")
    assert found == ["data/publishers/cifar.py imports ['pickle']"]
