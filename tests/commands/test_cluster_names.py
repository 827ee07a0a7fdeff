"""The names that a user gives the clusters: in page and table, taken back, and where they cannot be read."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from concurl.cli import main
from small_run import fit, refused, rows


def test_names_reach_page_and_table(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "00.png").rename(photos / os.fsdecode(b"\xff.png"))
    assert fit(photos) == 0
    before = rows("run/assignments.csv")
    Path("run/names.json").write_text(json.dumps({"0": "red, mostly", "2": "=1+1", "7": "nobody"}))
    assert main(["report", "run", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "the run has the clusters 0 to 2, and no 7" in captured.err
    assert "red, mostly" in Path("run/report.html").read_text()
    names = {"0": "red, mostly", "1": "", "2": "=1+1"}
    assert rows("run/assignments.csv") == [row | {"name": names[row["cluster"]]} for row in before]
    written = Path("run/assignments.csv").stat().st_mtime_ns
    assert main(["report", "run", "--quiet"]) == 0
    assert Path("run/assignments.csv").stat().st_mtime_ns == written, "nothing has changed"
    assert main(["predict", "run", str(photos), "-o", "all.csv", "--quiet"]) == 0
    assert Path("all.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert Path("all.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    named = Path("run/names.json").read_text()
    for take_back in (lambda path: path.write_text("{}"), Path.unlink):
        Path("run/names.json").write_text(named)
        assert main(["report", "run", "--quiet"]) == 0
        assert rows("run/assignments.csv") != before
        take_back(Path("run/names.json"))
        assert main(["report", "run", "--quiet"]) == 0
        assert rows("run/assignments.csv") == before
        assert "red, mostly" not in Path("run/report.html").read_text()
    for damaged in ("path\n00.png\n", "path,cluster,name\n00.png\n"):
        Path("run/assignments.csv").write_text(damaged)
        assert "anew with concurl fit --resume" in refused(capsys, "report", "run", "--quiet")
    Path("run/assignments.csv").unlink()
    assert "assignments.csv is missing: the run is not finished" in refused(capsys, "report", "run", "--quiet")


def test_where_the_names_are_no_json_is_said(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    Path("run/names.json").write_text('{"0": "red",\n "1": "blue",\n}')
    assert '"1": "cars"} is needed (' in (line := refused(capsys, "report", "run", "--quiet"))
    assert ": line " in line
    Path("run/names.json").write_text('{"0": "red", "1": "blue", "0": "green"}')
    assert refused(capsys, "report", "run") == "concurl: run/names.json: cluster 0 has two names; keep one of them\n"
    Path("run/names.json").write_text('{"1": "red", "01": "green"}')
    assert refused(capsys, "report", "run") == "concurl: run/names.json: cluster 1 has two names; keep one of them\n"
    for encoding in ("cp1252", "utf-16"):
        Path("run/names.json").write_text('{"0": "gr\u00fcn"}', encoding=encoding)
        assert "run/names.json: not text in UTF-8; save it again" in refused(capsys, "report", "run", "--quiet")
    for wrong in ('["red", "blue"]', '{"0": ["red"]}', '{"0": {"red": 1}}', '{"0": true}', '{"red": "0"}'):
        Path("run/names.json").write_text(wrong)
        assert line.partition(" (")[0] == refused(capsys, "report", "run", "--quiet").rstrip()


def test_half_of_an_emoji_costs_that_sign_alone(photos: Path) -> None:
    assert fit(photos) == 0
    used = rows("run/assignments.csv")[0]["cluster"]
    Path("run/names.json").write_text(f'{{"{used}": "smile \\ud83d"}}')
    assert main(["report", "run", "--quiet"]) == 0
    assert rows("run/assignments.csv")[0]["name"] == "smile \ufffd"
    assert "smile \ufffd" in Path("run/report.html").read_text()


def test_names_of_an_editor_that_marks_its_files(photos: Path) -> None:
    assert fit(photos) == 0
    used = sorted({row["cluster"] for row in rows("run/assignments.csv")})
    names = dict(zip(used, ["red", None, ""], strict=False))  # a run this short may leave a cluster empty
    Path("run/names.json").write_text(json.dumps(names), encoding="utf-8-sig")
    assert main(["report", "run", "--quiet"]) == 0
    assert {row["name"] for row in rows("run/assignments.csv")} == {"red", ""}
    assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    folders = {f"{int(used[0]):03d} red", *(f"{int(cluster):03d}" for cluster in used[1:]), "unsure"}
    assert {path.name for path in Path("sorted").iterdir()} <= folders


def saved_by_a_spreadsheet(
    path: Path, form: str, change: Callable[[list[list[str]]], object], encoding: str = "utf-8-sig"
) -> None:
    """assignments.csv, changed and saved again in the form of a country: what divides its columns, what its decimals."""
    with path.open(newline="", encoding="utf-8") as file:
        columns, *lines = csv.reader(file)
    change(lines)
    if form != ",":
        lines = [[*line[:3], *(cell.replace(".", ",") for cell in line[3:])] for line in lines]
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=form).writerows([columns, *lines])


@pytest.mark.parametrize("form", [",", ";", "\t"])
def test_a_table_that_a_spreadsheet_has_sorted_is_put_right(
    photos: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    assert fit(photos) == 0
    assert main(["report", "run", "--quiet"]) == 0
    table, page = Path("run/assignments.csv"), Path("run/report.html")
    before = table.read_bytes(), page.read_bytes()
    saved_by_a_spreadsheet(table, form, lambda lines: lines.sort(key=lambda line: line[6]))
    assert table.read_bytes() != before[0]
    assert "puts its rows back" in refused(capsys, "report", "run", "-o", "page.html", "--quiet")
    assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    assert main(["report", "run", "--quiet"]) == 0
    assert "was sorted: its rows are again in the order of embeddings.npy" in capsys.readouterr().err
    assert (table.read_bytes(), page.read_bytes()) == before
    saved_by_a_spreadsheet(table, form, lambda lines: lines.pop())
    assert "rows are not those of the run" in (line := refused(capsys, "report", "run", "--quiet"))
    assert line.endswith("make them anew with concurl fit --resume -o run\n")
    edited = table.read_bytes()
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert "it is kept as run/assignments.csv.old" in capsys.readouterr().err
    assert (table.read_bytes(), Path("run/assignments.csv.old").read_bytes()) == (before[0], edited)
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert "is kept as" not in capsys.readouterr().err
    assert Path("run/assignments.csv.old").read_bytes() == edited, "this time there was nothing to keep"
    saved_by_a_spreadsheet(table, form, lambda lines: lines.extend([[""] * 8, [""] * 8]))
    assert main(["report", "run", "--quiet"]) == 0
    assert table.read_bytes() == before[0], "empty lines are no rows"
    saved_by_a_spreadsheet(table, form, lambda lines: None)
    whole = table.read_bytes()
    table.write_bytes(whole.replace(b"cluster", b"group", 1))
    assert "(no column cluster)" in refused(capsys, "report", "run", "--quiet")
    table.write_bytes(whole[:-40])
    assert "no valid assignments" in refused(capsys, "export", "run", "--folders", "copy", "-o", "cut")
    assert "no valid assignments" in refused(capsys, "report", "run", "--quiet")


def test_names_typed_into_the_table(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    table, json_file = Path("run/assignments.csv"), Path("run/names.json")
    first, other = sorted({row["cluster"] for row in rows(table)})[:2]

    def typed(**names: str) -> Callable[[list[list[str]]], object]:
        """Each name into one row of its cluster, as people do."""

        def change(lines: list[list[str]]) -> None:
            for cluster, name in names.items():
                next(line for line in lines if line[1] == cluster)[2] = name

        return change

    saved_by_a_spreadsheet(table, ";", typed(**{first: "gr\u00fcn "}), encoding="cp1252")
    assert main(["report", "run", "--quiet"]) == 0
    assert json.loads(json_file.read_text()) == {first: "gr\u00fcn"}
    assert {row["name"] for row in rows(table) if row["cluster"] == first} == {"gr\u00fcn"}
    assert "gr\u00fcn" in Path("run/report.html").read_text()
    saved_by_a_spreadsheet(table, ",", typed(**{first: "green", other: "blue"}))  # one anew, one more
    assert main(["report", "run", "--quiet"]) == 0
    assert json.loads(json_file.read_text()) == {first: "green", other: "blue"}
    json_file.write_text(json.dumps({first: "lime"}))  # a name taken back there does not return from the table
    assert main(["report", "run", "--quiet"]) == 0
    assert {row["name"] for row in rows(table)} == {"lime", ""}

    edited = table.read_bytes()
    for change, says in (
        (typed(**{first: "a"}), f"cluster {first} is 'olive' in run/names.json and 'a' in run/assignments.csv"),
        (lambda lines: [line.__setitem__(2, line[0]) for line in lines], "has several names in the column name: "),
    ):
        json_file.write_text(json.dumps({first: "olive"}))
        saved_by_a_spreadsheet(table, ",", change)
        kept = table.read_bytes(), json_file.read_bytes()
        assert says in refused(capsys, "report", "run", "--quiet")
        assert (table.read_bytes(), json_file.read_bytes()) == kept, "what was typed is not lost"
        table.write_bytes(edited)
