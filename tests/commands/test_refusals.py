"""Wrong use of any verb: one line that names the remedy, exit code 2, and nothing that was there is changed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pytest

from concurl.cli import main
from concurl.commands.refusals import check_file
from concurl.errors import UserError
from concurl.runs.provenance import Provenance
from small_run import TINY, fit, refused
from trees import tree_hash


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-k", "1"], "n_clusters=1"),
        (["-k", "25"], "n_clusters=25 is more than the 24 images"),
        (["--train-images", "2"], "n_clusters=3 is more than the 2 images"),
        (["--batch-size", "25"], "batch_size=25 is larger than the set of 24 images"),
        (["--tau", "0"], "tau=0"),
        (["--alpha", "inf"], "alpha=inf"),
        (["--limit", "1"], "limit"),
        (["--learning-rate", "0"], "learning_rate=0"),
        (["--depth", "17"], "depth=17"),
        (["--background", "blank"], "white, black or #808080"),
        (["--background", "#ffffff80"], "white, black or #808080"),
    ],
)
def test_wrong_values_are_named(
    capsys: pytest.CaptureFixture[str], photos: Path, options: list[str], says: str
) -> None:
    line = refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY, *options)
    assert says in line
    assert not Path("run").exists()


def test_a_shell_variable_that_is_not_set_does_not_mean_the_current_folder(
    capsys: pytest.CaptureFixture[str], photos: Path
) -> None:
    before = tree_hash(Path())
    for behind, *argv in (
        ("-o", "fit", str(photos), "-k", "3", "-o", "", *TINY),
        ("--output=", "fit", str(photos), "-k", "3", "--output=", *TINY),
        ("concurl fit", "fit", "", "-k", "3", "-o", "run", *TINY),
        ("concurl report", "report", ""),
    ):
        assert f"nothing follows {behind}; is a shell variable" in refused(capsys, *argv)
    assert tree_hash(Path()) == before


def test_a_current_folder_that_is_gone(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    Path("gone").mkdir()
    with chdir("gone"):
        Path("../gone").resolve().rmdir()
        assert "the current folder is not there any more; cd to" in refused(capsys, "audit", str(photos))


def test_links_to_nothing_as_to_a_disk_that_is_not_mounted(
    capsys: pytest.CaptureFixture[str], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("away").symlink_to("/mnt/none")
    for call in (
        "fit away -k 3 -o run",
        "report away",
        "fit photos -k 3 -o away/run",
        "pack photos -o away",
    ):
        assert "away: a link to /mnt/none, which is not there" in refused(capsys, *call.split()), call
    monkeypatch.setenv("XDG_CACHE_HOME", "away")
    assert "set XDG_CACHE_HOME to a folder" in refused(capsys, "fit", "photos", "-k", "3", "-o", "run", *TINY)


def test_a_name_that_is_too_long_is_no_failing_disk(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    long = "x" * 300
    for call in (f"fit photos -k 3 -o {long}", f"audit photos -o {long[:250]}.csv", f"report {long}"):
        assert "File name too long" in refused(capsys, *call.split()), call


def test_the_list_of_images_is_not_replaced(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    Path("list.csv").write_text("".join(f"{line}\n" for line in ("path", *sorted(photos.rglob("*.png")))))
    assert fit(Path("list.csv")) == 0
    before = tree_hash(Path())
    assert "-o list.csv is what" in refused(capsys, "evaluate", "run", "--labels", "folders", "-o", "list.csv")
    assert "-o list.csv is what is read" in refused(capsys, "audit", "list.csv", "-o", "list.csv")
    assert "-o list.csv is what" in refused(capsys, "predict", "run", f"{os.curdir}/list.csv", "-o", "list.csv")
    assert tree_hash(Path()) == before


def test_a_folder_called_as_a_benchmark_is_not_taken_for_it(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    photos.rename("digits")
    assert "write ./digits for the folder" in refused(capsys, "fit", "digits", "-k", "3", "-o", "run", *TINY)
    assert fit(Path("digits").resolve()) == 0
    assert "write ./digits for the folder" in refused(capsys, "predict", "run", "digits", "-o", "new.csv")
    for source, images in (("./digits", 24), ("digits", 1797)):
        assert main(["predict", "run", source, "-o", "new.csv", "--quiet", "--data-dir", "."]) == 0
        assert f"{images:,} images labelled" in capsys.readouterr().out
    assert main(["fit", "digits", "--data-dir", ".", "-k", "3", "-o", "other", "--limit", "30", *TINY]) == 0
    assert json.loads(Path("other/run.json").read_text())["source"] == "digits"


def test_a_file_that_is_there_is_only_replaced_by_its_own_kind(
    capsys: pytest.CaptureFixture[str], photos: Path
) -> None:
    assert fit(photos) == 0
    for name in ("q.png", "s.py", "labels", "t.txt", "p.htm"):
        Path(name).write_text("mine")
    before = tree_hash(Path())
    for call, says in {
        "predict run photos -o q.png": "q.png is there already, and only a .csv would be replaced; name a file such as q.csv",
        "audit photos -o s.py": "name a file such as s.csv",
        "audit photos -o p.htm": "name a file such as p.csv",
        "audit photos -o labels": "name a file such as labels.csv",
        "evaluate run --labels folders -o t.txt": "only a .json would be replaced; name a file such as t.json",
        "report run -o q.png": "only a .html would be replaced; name a file such as q.html",
        "export run --model -o s.py": "only a .pt2 would be replaced; name a file such as s.pt2",
        "merge photos -o t.txt": "name a file such as t.csv",
    }.items():
        assert says in refused(capsys, *call.split()), call
    assert tree_hash(Path()) == before
    Path("truth.csv").write_text("path,label\n00.png,a\n02.png,b\n04.png,a\n")
    for call in ("audit photos -o n.CSV", "evaluate run --labels truth.csv -o s.json", "report run -o p.htm"):
        Path(call.split()[-1]).write_text("before")
        assert main(call.split()) == 0, call
        assert Path(call.split()[-1]).read_text() != "before"
    assert main(["audit", "photos", "-o", "new"]) == 0  # where nothing lies, it needs no suffix


def test_devices_and_pipes_are_not_replaced(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    os.mkfifo("pipe")
    says = "pipe is a device or a pipe, and would be replaced; name a file with -o, such as files.csv"
    assert says in refused(capsys, "audit", "photos", "-o", "pipe")
    assert Path("pipe").is_fifo()
    for output in ("/dev/null", "/dev/stdout"):  # asked alone: a test that fails is not to take them away
        with pytest.raises(UserError, match="would be replaced"):
            check_file(Path(output), "files.csv")


def test_no_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no images" in refused(capsys, "fit", str(empty), "-k", "3", "-o", "run", "--quiet")
    (empty / "a.txt").write_text("x")
    (empty / "b.txt").write_text("y")
    assert "2 .txt" in refused(capsys, "fit", str(empty), "-k", "3", "-o", "run", "--quiet")
    assert "nowhere" in refused(capsys, "fit", "nowhere", "-k", "3", "-o", "run", "--quiet")
    Path("files.csv").write_text("path\na.png\nb.png\n")
    line = refused(capsys, "fit", "files.csv", "-k", "3", "-o", "run", "--quiet")
    assert "a list's paths start from its own folder, or from the current one" in line
    line = refused(capsys, "fit", "cifar10", "-k", "10", "-o", "run", "--quiet")
    assert "cifar-10-binary.tar.gz" in line
    assert not Path("run").exists()


def test_too_few_images_are_told_what_became_of_the_files(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    for path in photos.rglob("*.png"):
        if path.name > "02.png":
            path.write_bytes(b"damaged")
    says = "n_clusters=5 is more than the 3 images (21 files left out: concurl audit says why); ask for fewer"
    assert says in refused(capsys, "fit", str(photos), "-k", "5", "-o", "run", *TINY)
    for path in photos.rglob("*.png"):
        path.write_bytes((photos / "02.png").read_bytes())  # there is nothing less than two clusters to ask for
    assert "the 1 image (23 files" in (line := refused(capsys, "fit", str(photos), "-k", "2", "-o", "run", *TINY))
    assert "at least 2 are needed" in line


def test_a_folder_that_holds_a_run_is_kept(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    before = tree_hash(Path("run"))
    line = refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY)
    assert "--overwrite" in line
    assert refused(capsys, "fit", "nowhere", "-k", "3", "-o", "run", *TINY) == line  # before any image is read
    for more in ("--epochs 9", "-k 9", "--recipe digits", "--limit 0", "--overwrite", "--from run", "photos"):
        says = f"leave out {more.split()[0]}; it takes only -o DIR"
        assert says in refused(capsys, "fit", "--resume", "-o", "run", "--quiet", *more.split())
    assert "no run to resume" in refused(capsys, "fit", "--resume", "-o", "elsewhere", "--quiet")
    assert not Path("elsewhere").exists()
    assert tree_hash(Path("run")) == before
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"epochs": 9}))
    results = {n: Path("run", n).read_bytes() for n in ("assignments.csv", "model/model.safetensors", "metrics.jsonl")}
    assert "another configuration" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet")
    assert {n: Path("run", n).read_bytes() for n in results} == results


def test_two_runs_in_one_folder(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from concurl.runs.runfolder import run_folder

    with run_folder(Path("run"), resume=False, overwrite=False):
        Path("run/run.json").write_text(Provenance(str(photos)).to_json())  # what a run writes first
        assert "another process" in refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY)


def test_a_file_system_without_locks_can_hold_a_run(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert fit(photos) == 0


def test_a_file_system_whose_folders_cannot_be_synced_can_hold_a_run(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def of_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    assert fit(photos) == 0


def test_a_held_lock_may_also_be_said_by_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurl.runs.runfolder import run_folder

    def held(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(fcntl, "flock", held)
    with (
        pytest.raises(UserError, match="another process is running there"),
        run_folder(Path("run"), resume=False, overwrite=False),
    ):
        pass


def test_wrong_labels_and_models(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    Path("labels.csv").write_text("path,label\nother.png,1\n")
    assert "none of its 1 paths" in refused(capsys, "evaluate", "run", "--labels", "labels.csv")
    Path("labels.csv").write_text("file\nx\n")
    assert "which column holds the labels?" in refused(capsys, "evaluate", "run", "--labels", "labels.csv")
    assert "--labels" in refused(capsys, "evaluate", "run")
    assert "no model here" in refused(capsys, "predict", str(photos), str(photos), "-o", "x.csv", "--quiet")
    assert "no config.json" in refused(capsys, "evaluate", str(photos))
    assert not Path("x.csv").exists()


WRONG = [
    ("", "no output folder; add -o DIR, as in: concurl fit PHOTOS"),
    ("--resume", "which run? Name its folder with -o, as in: concurl fit --resume -o runs/photos"),
    ("photos -o x -k", "-k: a value is missing"),
    ("photos -o x -k three", "'three': a whole number is needed"),
    ("photos -o x --limit three", "--limit 'three': a whole number is needed"),
    ("photos -o x -K 3", "did you mean -k?"),
    ("photos -o x --k 3", "did you mean -k?"),
    ("photos -o x --n_clusters 3", "did you mean --n-clusters?"),
    ("photos -o x --epoch 3", "did you mean --epochs?"),
    ("photos -o x --lr 3", "did you mean --learning-rate?"),
    ("photos -o x --members 3", "did you mean --n-transforms?"),
    ("--version", "did you mean concurl --version?"),
    ("photos -o x --wd 3", "unknown option --wd; concurl fit --help lists what there is"),  # all begin with two dashes
    ("PHOTOS -o x", "PHOTOS: no such file or folder; did you mean photos?"),
    ("cifar1 -o x", "did you mean cifar10?"),
    ("CIFAR-10 -o x", "did you mean cifar10?"),
    ("photos more -o x", "more is a second source"),
    ("photos -o a.txt", "a.txt is a file"),
    ("photos -o /", "-o / is the root of the whole disk"),
    ("photos -o photos", "nothing is written into photos"),
    ("photos -o photos/inner/run", "nothing is written into photos"),
    ("photos/*.png -o photos/run", "nothing is written into photos"),
    ("photos -o x --workers -2", "--workers -2: at least 0 is needed"),
    ("photos -o x --train-images 1", "--train-images 1: at least 2 are needed"),
    ("photos -o x --recipe digits --recipe=modren", "unknown recipe 'modren'; did you mean modern?"),
    ("photos -o x --recipe=-modren", "unknown recipe '-modren'"),
    ("photos -o x --recipe", "--recipe: a value is missing"),
    ("photos --recipe -o x", "--recipe: a value is missing"),
    ("photos -o x --recipe=", "nothing follows --recipe=; is a shell variable not set?"),
    ("-- photos -o x", "-o comes behind --, where only paths are taken"),
    ("photos -o x --sobel=true", "--sobel takes no value; leave out 'true'"),
    ("photos -o x --quiet=1", "--quiet takes no value; leave out '1'"),
]


@pytest.mark.parametrize(("rest", "says"), WRONG, ids=[rest for rest, _ in WRONG])
def test_wrong_calls_of_fit(capsys: pytest.CaptureFixture[str], photos: Path, rest: str, says: str) -> None:
    Path("a.txt").write_text("x")
    before = tree_hash(Path())
    assert says in refused(capsys, "fit", *rest.split())
    assert tree_hash(Path()) == before


def test_wrong_calls_of_the_others(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    Path("a.txt").write_text("x")
    Path("empty").mkdir()
    Path("parts").mkdir()
    Path("parts/part-1-of-2.csv").touch()
    Path("half").mkdir()  # what a run leaves that was stopped
    for name in ("config.json", "run.json"):
        Path("half", name).write_bytes(Path("run", name).read_bytes())
    unfinished = "half: the run is not finished; wait for it, or go on with concurl fit --resume -o half"
    before = tree_hash(photos), tree_hash(Path("run"))
    for call, says in {
        "photos": "did you mean concurl fit photos -k 10 -o runs/photos?",
        "fitt photos": "did you mean fit?",
        "train photos": "did you mean fit?",
        "--epochs 3": "the verb comes first",
        "predict run": "source missing, as in: concurl predict runs/photos NEW -o new.csv",
        "predict photos run -o n.csv": "the run comes first: concurl predict run photos -o n.csv",
        "predict run photos new.csv": "write -o new.csv",
        "predict rum photos -o n.csv": "rum: no such file or folder; did you mean run?",
        "predict half photos -o n.csv": unfinished,
        "report half": unfinished,
        "evaluate half": unfinished,
        "export half --folders copy -o x": unfinished,
        "report rum": "did you mean run?",
        "report nowhere/run": "nowhere/run: no such file or folder; check the path",
        "report run/summary.json": "run/summary.json is a file; give the run's folder: run",
        "predict run/summary.json photos -o n.csv": "give the run's folder: run",
        "report a.txt": "a.txt is a file; give the run's folder\n",
        "version": "did you mean --version?",
        "--verison": "did you mean --version?",
        "sort run": "did you mean export?",
        "resume run": "did you mean fit --resume?",
        "fit photos --out-dir x": "did you mean --output?",
        "predict run photos -o -": "-o -: the result does not go to the terminal",
        "predict run photos -o n.xlsx": "-o n.xlsx would hold csv; name a file such as n.csv",
        "predict run photos -o n.csv.gz": "-o n.csv.gz would hold csv",
        "audit photos -o n.json": "-o n.json would hold csv; name a file such as n.csv",
        "evaluate run --labels a.txt -o s.csv": "-o s.csv would hold json; name a file such as s.json",
        "audit https://example.org/photos": "https://example.org/photos: nothing is downloaded; fetch it first",
        "merge run": "to join clusters, give them the same name in run/names.json",
        "audit photos --lr 3": "unknown option --lr; concurl audit --help lists what there is",
        "evaluate rum": "did you mean run?",
        "export rum --folders copy -o x": "did you mean run?",
        "predict run photos -o run": "run is a folder; name a file with -o, such as run/new.csv",
        "predict run photos -o no/n.csv": "no: no such folder",
        "predict run photos -o photos/n.csv": "-o photos/n.csv: nothing is written into photos, the images' own folder",
        "predict run photos -o photos/inner/n.csv": "nothing is written into photos",
        "predict run photos -o photos/parts --shard 1/2": "nothing is written into photos",
        "predict run photos -o n.csv --limit 0": "--limit 0: at least 1 is needed",
        "predict run photos -o n.csv --device tpu": "tpu",
        "predict run photos -o a.txt --shard 1/2": "a.txt is a file",
        "merge empty": "no output file; add -o FILE.csv, as in: concurl merge PARTS -o new.csv",
        "merge empty -o run": "run is a folder",
        "merge parts -o ./parts/part-1-of-2.csv": "is what is read, and would be replaced; choose another file",
        "merge emty -o n.csv": "emty: no such file or folder; did you mean empty?",
        "report": "run missing, as in: concurl report runs/photos",
        "export run -o x": "say what to export",
        "export run --folders copy -o photos/x": "nothing is written into",
        "export run --folders copy -o x --names no.json": "no.json: no such file or folder",
        "export run --model -o photos": "photos is a folder",
        "export run --model -o x --names a.txt": "--names goes with --folders",
        "audit empty": "no files in empty",
        "audit photos --workers -2": "--workers -2: at least 0 is needed",
        "audit photos -o photos": "photos is a folder",
        "audit photos -o photos/files.csv": "nothing is written into photos, the images' own folder",
        "audit photos -o photos/inner/files.csv": "nothing is written into photos, the images' own folder",
        "export run --model -o photos/x.pt2": "nothing is written into",
        "fit --from run -k 2 -o photos/run": "nothing is written into",
        "pack empty -o s": "no files in empty",
        "pack photos -o a.txt": "a.txt is a file",
        "pack photos -o photos/shards": "nothing is written into photos",
        "evaluate run --labels no.csv": "no.csv: no such file or folder",
        "evaluate run --labels folders -o photos/scores.json": "nothing is written into",
        "evaluate run --labels a.txt -o a.txt": "-o a.txt is what is read",
        "evaluate run --labels folders -o run/summary.json": "-o run/summary.json is a file of the run itself",
        "predict run photos -o run/config.json": "-o run/config.json is a file of the run itself",
        "predict run photos -o run/assignments.csv": "-o run/assignments.csv is a file of the run itself",
        "audit photos -o run/skipped.csv": "-o run/skipped.csv is a file of the run itself",
        "audit photos -o run/run.json": "-o run/run.json is a file of the run itself",
        "export run --model -o run/embeddings.npy": "-o run/embeddings.npy is a file of the run itself",
        "merge empty -o run/names.json": "-o run/names.json is a file of the run itself",
        "demo -o a.txt": "a.txt is a file",
    }.items():
        assert says in refused(capsys, *call.split()), call
    assert (tree_hash(photos), tree_hash(Path("run"))) == before
    assert main(["audit", "photos", "-o", "run/audit.csv"]) == main(["audit", "photos", "-o", "skipped.csv"]) == 0


def test_no_permission_is_said_before_any_work(
    capsys: pytest.CaptureFixture[str], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(photos) == 0
    Path("locked").mkdir()
    access = os.access  # root may write anywhere: the answer is made up, for this folder and for the run's
    closed = {Path("locked").resolve(), Path("run").resolve()}
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).resolve() not in closed and access(path, mode))
    before = tree_hash(Path())
    for call in (
        f"fit photos -k 3 -o locked/run {' '.join(TINY)}",
        "predict run photos -o locked/n.csv",
        "audit photos -o locked/n.csv",
        "export run --folders copy -o locked/x",
        "export run --model -o locked/x.pt2",
        "pack photos -o locked",
        "demo -o locked/demo",
    ):
        assert "Permission denied; choose a folder that can be written to" in refused(capsys, *call.split()), call
    assert "write its page elsewhere: concurl report run -o run.html" in refused(capsys, "report", "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
        assert "Read-only file system; choose" in refused(capsys, "pack", "photos", "-o", "locked")
    assert tree_hash(Path()) == before

    def denied(path: bytes) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    assert "/photos/: Permission denied; see who may read" in refused(capsys, "audit", "photos")


def test_a_run_that_is_there_is_told_with_what_can_be_done(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that goes on with it is whole: `--resume` behind the words of the first call is refused."""
    again = ["fit", str(photos), "-k", "3", "-o", "run", *TINY]
    assert fit(photos) == 0
    assert "which is finished; name another folder" in refused(capsys, *again)
    shutil.rmtree("run/checkpoints")  # as the FAQ allows: it must not be trained all over again
    before = tree_hash(Path("run"))
    assert "is finished, and its checkpoints/ are gone" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet")
    assert tree_hash(Path("run")) == before
    Path("run/assignments.csv").unlink()
    shutil.rmtree("run/model")
    assert "go on with it: concurl fit --resume -o run, or add --overwrite" in refused(capsys, *again)
