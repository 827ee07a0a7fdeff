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

from runs import OPTIONS, half_files, photos, results

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
    import concurl.commands.fit
    import concurl.report
    import concurl.run  # noqa: F401

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

    os.environ["XDG_CACHE_HOME"] = str(disk / "cache")  # the packed copy's turn
    Path("cache").mkdir()
    _leave_free(Path("ballast"), 8192)
    code, said = child([*FIT[:4], "-o", str(apart / "other"), *FIT[6:]])
    assert (code, half_files(Path("cache"))) == (74, []), said
    assert str(Path("cache")) in said
    tally["full"] += 1
    where["the packed copy"] += 1
    Path("ballast").unlink()

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


def _stop_at(step: int, apart: Path) -> Path:
    """A run that stopped at this step, with its two last checkpoints."""
    import concurl.training.trainer as trainer

    save = trainer.Trainer.save

    def and_stop(self: trainer.Trainer) -> None:
        save(self)
        if self.step == step:
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
