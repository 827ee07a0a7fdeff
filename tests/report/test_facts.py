"""Reading a run's folder: everything that is there, nothing that is not, and no row lost to an odd one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import hostile_names, make_run

from concurl.config import Config
from concurl.errors import UserError
from concurl.report.facts import RunFacts, mean_known, shown


def test_every_row_of_the_csv_arrives_in_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=60, names=hostile_names())
    facts, rows = RunFacts.read(run.folder), run.rows()
    assert [row["path"] for row in rows] == hostile_names()  # the csv itself kept them
    assert len(facts.paths) == 60
    assert facts.cluster.tolist() == [int(row["cluster"]) for row in rows]
    for key in ("confidence", "margin", "agreement", "outlier"):
        assert getattr(facts, key).tolist() == [float(row[key]) for row in rows]
    assert facts.unsure.tolist() == [row["status"] == "unsure" for row in rows]


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (b"caf\xe9.jpg".decode("utf-8", "surrogateescape"), "caf\ufffd.jpg"),
        ("\ud800", "\ufffd"),
        ("new\nline\t.jpg", "new␊line␉.jpg"),
        ("\x7f\x85", "␡\ufffd"),
        ("\u202e\u05e9\u05dc\u05d5\u05dd日本\u2028", "\u202e\u05e9\u05dc\u05d5\u05dd日本\u2028"),
    ],
)
def test_shown_keeps_what_can_be_shown_and_marks_the_rest(raw: str, seen: str) -> None:
    assert shown(raw) == seen
    seen.encode("utf-8")


def test_what_need_not_be_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=12, k=3)
    for file in run.folder.iterdir():
        if file.name in ("summary.json", "environment.json"):
            file.write_text("[]")  # no object: as good as nothing
        elif file.name not in ("config.json", "run.json", "assignments.csv"):
            file.unlink()
    facts = RunFacts.read(run.folder)
    assert (facts.n_clusters, facts.embeddings, facts.epochs, facts.skipped, facts.environment) == (3, None, (), (), {})
    (run.folder / "assignments.csv").unlink()
    with pytest.raises(UserError, match=r"assignments\.csv is missing.*concurl fit"):
        RunFacts.read(run.folder)


def test_an_empty_cluster_at_the_end_counts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=12, k=3)
    (run.folder / "config.json").write_text(Config(n_clusters=5).to_json())
    facts = RunFacts.read(run.folder)
    assert facts.n_clusters == 5
    assert facts.sizes.tolist()[3:] == [0, 0]


def test_names_come_from_names_json_alone(tmp_path: Path) -> None:
    """What the csv says may be a name that has been taken out since."""
    run = make_run(tmp_path / "r", n=12, k=4)
    path = run.folder / "assignments.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",1,,", ",1,from csv,"), encoding="utf-8")
    (run.folder / "names.json").write_text(json.dumps({"2": "given", "9": "no such cluster", "3": ""}))
    facts = RunFacts.read(run.folder)
    assert facts.names == ("Cluster 0", "Cluster 1", "given", "Cluster 3")
    assert facts.given == {2: "given"}


def test_a_table_that_a_spreadsheet_saved_says_the_same(tmp_path: Path) -> None:
    """With semicolons, decimal commas and a byte order mark, as Excel has it in half of Europe."""
    run = make_run(tmp_path / "r", n=12, k=3)
    before, path = RunFacts.read(run.folder), run.folder / "assignments.csv"
    lines = [line.replace(",", ";").replace(".", ",") for line in path.read_text().splitlines()]
    names = [line.split(",")[0] for line in path.read_text().splitlines()]
    whole = [";".join([name, *line.split(";")[1:]]) for name, line in zip(names, lines, strict=True)]
    path.write_text("\ufeff" + "\r\n".join(whole) + "\r\n", encoding="utf-8")
    after = RunFacts.read(run.folder)
    assert after.paths == before.paths
    for column in ("cluster", "confidence", "agreement", "unsure"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column))


def test_no_cluster_is_nameless_and_those_that_share_a_name_are_told_apart_by_number(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=20, k=4)
    (run.folder / "names.json").write_text('{"0": "  ", "1": "green", "3": "green"}')
    assert RunFacts.read(run.folder).names == ("Cluster 0", "green (1)", "Cluster 2", "green (3)")
    (run.folder / "names.json").write_text('{"1": "green", "2": "green", "3": " green (1) "}')
    assert len(set(RunFacts.read(run.folder).names)) == 4


def test_a_number_of_clusters_that_no_run_can_have_costs_no_memory(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=20, k=4)
    (run.folder / "config.json").write_text(Config(n_clusters=1_000_000).to_json())
    assert RunFacts.read(run.folder).n_clusters == 20


def test_a_line_of_the_log_that_a_kill_cut_off_costs_no_other_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path / "r", n=12, k=3, epochs=3)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "l1": 0.')
    facts = RunFacts.read(run.folder)
    assert [epoch["epoch"] for epoch in facts.epochs] == [0, 1, 2]
    assert caplog.messages == []


@pytest.mark.parametrize(
    "damaged",
    [
        '{"epoch": 1, "l1": 0.',
        "\0" * 30,
        "[1]",
        '{"l1": 1}',
        '{"epoch": 1, "l1": "?"}',
        '{"epoch": 1, "cluster_sizes": ["?"]}',
        '{"epoch": 1, "loss": [1, 2]}',
        '{"epoch": 1, "loss": 1' + "0" * 400 + "}",
    ],
)
def test_a_damaged_line_of_the_log_is_told_and_costs_no_other_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    run = make_run(tmp_path / "r", n=12, k=3, epochs=5)
    path = run.folder / "metrics.jsonl"
    first, _, third, _, last = path.read_text().splitlines()
    path.write_text("\n".join([first, damaged, third, damaged, last]) + "\n")
    facts = RunFacts.read(run.folder)
    assert [epoch["epoch"] for epoch in facts.epochs] == [0, 2, 4]
    assert caplog.messages == [f"{path}: damaged, and so left out: line 2 and 1 other"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("assignments.csv", "path,cluster,status\na.jpg,-1,ok\n", "row 1 has cluster '-1'.*anew with concurl fit"),
        ("assignments.csv", "path,cluster,status\na.jpg,0,ok\nb.jpg,77,ok\n", "cluster 77 is none of the 2"),
        ("assignments.csv", f"path,cluster\na.jpg,{'9' * 5000}\n", "row 1 has cluster '99999999999999999999'"),
        ("assignments.csv", "path,cluster,status\na.jpg,0,ok\nb.jpg,0\n", "row 2 has no path, or no status"),
        ("assignments.csv", "path,cluster,status\n", "no rows"),
        ("assignments.csv", 'path,cluster\n"' + "a.jpg,1\n" * 20_000, r"line \d+: field larger .*anew"),
        ("skipped.csv", 'path,status,reason\n"' + "a.jpg,1\n" * 20_000, "no valid csv"),
        ("summary.json", "{", r"summary\.json: no valid json"),
    ],
)
def test_wrong_files_are_named_with_the_remedy(tmp_path: Path, file: str, text: str, message: str) -> None:
    run = make_run(tmp_path / "r", n=12, k=3)
    (run.folder / file).write_text(text)
    with pytest.raises(UserError, match=message):
        RunFacts.read(run.folder)


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        ((11, 4), np.float32, r"shape \(11, 4\) for 12 rows"),
        ((12,), np.float32, r"shape \(12,\) for 12 rows"),
        ((12, 4), "U3", "no valid array"),
    ],
)
def test_embeddings_of_another_run_are_refused(tmp_path: Path, shape: tuple[int], kind: str, message: str) -> None:
    run = make_run(tmp_path / "r", n=12, k=3)
    np.save(run.folder / "embeddings.npy", np.zeros(shape, dtype=kind))
    with pytest.raises(UserError, match=message):
        RunFacts.read(run.folder)


def test_an_odd_cell_spoils_no_other(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", n=4, k=2)
    (run.folder / "assignments.csv").write_text(
        "path,cluster,confidence,status\na,0,0.5,ok\nb,0,much,ok\nc,0,inf,ok\nd,0,1,ok\n"
    )
    confidence = RunFacts.read(run.folder).confidence
    assert np.isnan(confidence).tolist() == [False, True, True, False]
    assert mean_known(confidence) == 0.75
