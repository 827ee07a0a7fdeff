"""Runs on a small tmpfs with less and less room; run it under `unshare -rm`, so that the mount is its own.

Each try resumes a run that was stopped in the middle, with a random number of bytes free. The last line printed is the
tally as json; any promise that is broken raises.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from user_runs import OPTIONS, half_files, photos, results
from warm import preload

FIT = ["fit", "photos", "-k", "3", "-o", "run", "--epochs", "4", *OPTIONS, "--checkpoint-minutes", "0"]


def child(arguments: list[str]) -> tuple[int, str]:
    """`concurl` in a forked process, for the memory of one run must not be the next one's."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = io.StringIO()
        from concurl.cli import main

        with contextlib.redirect_stderr(words), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main(arguments)
            except BaseException:
                import traceback

                traceback.print_exc(file=words)
                code = 99
        os.write(theirs, words.getvalue().encode())
        os._exit(code)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def main(tries: int, seed: int) -> None:
    preload()
    dice, tally, where = random.Random(seed), Counter[str](), Counter[str]()
    disk, apart = Path("disk").resolve(), Path("apart").resolve()
    for folder in (disk, apart):
        folder.mkdir()
    os.environ["XDG_CACHE_HOME"] = str(apart / "cache")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    os.chdir(disk)
    shutil.rmtree("photos", ignore_errors=True)
    photos(Path("photos"))

    code, said = child(FIT)
    assert code == 0, said
    wanted = results(Path("run"))
    page = len(Path("run/report.html").read_bytes())
    shutil.rmtree("run")
    stopped = {step: _stop_at(step, apart) for step in (6, 12)}  # in the middle, and before anything is labelled
    old_csv = b"path,cluster\nan,older\n"

    # So much is wanting: in the middle one more checkpoint than the two that are kept, at the end model and page.
    state = next(stopped[6].glob("checkpoints/*/state.safetensors")).stat().st_size
    room = {6: state, 12: page + len(wanted["model/model.safetensors"])}
    while tally["full"] < tries:
        shutil.rmtree("run", ignore_errors=True)
        step = dice.choice((6, 12))
        shutil.copytree(stopped[step], "run")
        Path("run/assignments.csv").write_bytes(old_csv)
        before = {p.name: p.stat().st_size for p in Path("run/checkpoints").iterdir()}
        _leave_free(Path("ballast"), dice.randrange(room[step]))
        code, said = child(["fit", "--resume", "-o", "run", "--quiet"])
        Path("ballast").unlink(missing_ok=True)
        if code == 0:
            tally["room enough"] += 1
            assert results(Path("run")) == wanted
            continue
        assert code == 74, (code, said)
        found = re.search(r"no space left to write (\S+): it needs ([\d,]+) bytes", said)
        assert found is not None, said
        assert "then go on with: concurl fit --resume -o run" in said or found[1] == "run/report.html", said
        assert half_files(Path()) == [], half_files(Path())
        csv = Path("run/assignments.csv").read_bytes()
        assert csv in (old_csv, wanted["assignments.csv"]), "half a csv"
        assert before, "the run had checkpoints"
        from concurl.training.checkpoint import checkpoints, load_newest

        assert load_newest(Path("run/checkpoints")) is not None
        assert len(checkpoints(Path("run/checkpoints"))) >= 1
        tally["full"] += 1
        where[re.sub(r"step-\d+", "step-N", str(Path(found[1])))] += 1
        print(dict(tally), dict(where), file=sys.stderr, flush=True)
        if tally["full"] % 5 == 1:  # with room again it goes on, to the same end
            code, said = child(["fit", "--resume", "-o", "run", "--quiet", "--no-report"])
            assert code == 0, said
            assert results(Path("run")) == wanted
            tally["resumed to the same bytes"] += 1

    shutil.rmtree("run", ignore_errors=True)
    for verb in (pack_copy, pack_shards, predict, folders):
        for _ in range(max(1, tries // 10)):
            verb(dice, apart, tally, where)

    os.environ["XDG_CACHE_HOME"] = str(apart / "cache")
    os.chdir(apart)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for output in (disk / "new", disk / "run"):
        code, said = child(["fit", str(disk / "photos"), "-o", str(output), "--overwrite", *FIT[6:]])
        assert code == 2, said
        assert f"cannot write {output}" in said, said
        assert "Read-only" in said, said
        tally["read-only"] += 1
    os.chdir("/")
    subprocess.run(["umount", str(disk)], check=True)
    print(json.dumps({**tally, "where": where}))


# ---- the other writers: each gets less than it needs, and then enough ------------------------------------------


def pack_copy(dice: random.Random, apart: Path, tally: Counter[str], where: Counter[str]) -> None:
    os.environ["XDG_CACHE_HOME"] = str(Path("cache").resolve())
    fit = [*FIT[:4], "-o", str(apart / "other"), *FIT[6:], "--overwrite", "--no-report", "--epochs", "1"]
    _less_and_enough(fit, Path("cache"), dice, 24 * 3 * 16 * 16, tally, where)
    os.environ["XDG_CACHE_HOME"] = str(apart / "cache")


def pack_shards(dice: random.Random, apart: Path, tally: Counter[str], where: Counter[str]) -> None:
    _less_and_enough(["pack", "photos", "-o", "shards"], Path("shards"), dice, 24 * 1024, tally, where)


def predict(dice: random.Random, apart: Path, tally: Counter[str], where: Counter[str]) -> None:
    arguments = ["predict", str(_finished(apart)), "photos", "-o", "new/new.csv", "--quiet"]
    Path("new").mkdir()
    Path("new/new.csv").write_text("the old one")
    _less_and_enough(arguments, Path("new"), dice, 1, tally, where)  # the csv takes less than a page of memory
    assert Path("new").exists() is False


def folders(dice: random.Random, apart: Path, tally: Counter[str], where: Counter[str]) -> None:
    arguments = ["export", str(_finished(apart)), "--folders", "copy", "-o", "folders"]
    _less_and_enough(arguments, Path("folders"), dice, 24 * 1024, tally, where)


def _finished(apart: Path) -> Path:
    run = apart / "finished"
    if not run.exists():
        code, said = child([*FIT[:4], "-o", str(run), *FIT[6:], "--no-report"])
        assert code == 0, said
    return run


def _less_and_enough(
    arguments: list[str],
    output: Path,
    dice: random.Random,
    needed: int,
    tally: Counter[str],
    where: Counter[str],
) -> None:
    """With less room than the output takes: exit code 74, path and bytes, nothing half. With room: it succeeds."""
    old = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    _leave_free(Path("ballast"), dice.randrange(needed))
    code, said = child(arguments)
    assert code == 74, (code, said)
    found = re.search(r"no space left to write (\S+): it needs (more than )?[\d,]+ bytes", said)
    assert found is not None, said
    assert half_files(output) == []
    assert all(path.read_bytes() == content for path, content in old.items())
    Path("ballast").unlink()
    if arguments[0] == "export":
        shutil.rmtree(output, ignore_errors=True)  # it wants an empty folder
    code, said = child(arguments)
    assert code == 0, said
    shutil.rmtree(output)
    tally["full"] += 1
    where[f"{arguments[0]}: {output}"] += 1


def _stop_at(step: int, apart: Path) -> Path:
    """A run that stopped at this step, with its two last checkpoints."""
    import concurl.training.trainer as trainer

    save = trainer.Trainer.save

    def and_stop(self: trainer.Trainer, kind: str = trainer.CHECKPOINTS) -> None:
        save(self, kind)
        if self.step == step and kind == trainer.CHECKPOINTS:
            raise KeyboardInterrupt

    trainer.Trainer.save = and_stop  # type: ignore[method-assign]
    code, said = child(FIT)
    trainer.Trainer.save = save  # type: ignore[method-assign]
    assert code == 130, said
    shutil.copytree("run", apart / f"stopped-{step}")
    shutil.rmtree("run")
    return apart / f"stopped-{step}"


def _leave_free(ballast: Path, free: int) -> None:
    fill = shutil.disk_usage(".").free - free
    with open(ballast, "wb") as file:
        file.write(b"\0" * max(0, fill))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
