"""Which files a source means."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from folders import HOSTILE

from concurl.data.files import folder
from concurl.data.files.listing import Listing, list_source
from concurl.errors import UserError


def names(listing: Listing) -> list[str]:
    return [entry.text for entry in listing]


def fill(root: Path, files: Sequence[str | bytes]) -> Path:
    for file in files:
        path = os.path.join(os.fsencode(root), os.fsencode(file))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(os.fsencode(file))
    return root


TREE = ["b/1.png", "b-2.png", "b.png", "b/a/3.png", "a.png", "Z.png", "b/z", "ä.png"]


def test_a_folder_is_sorted_as_whole_paths_are(tmp_path: Path) -> None:
    found = list_source(fill(tmp_path, TREE))
    assert names(found) == sorted(TREE, key=os.fsencode)
    assert found.root == str(tmp_path)
    assert [entry.size for entry in found] == [len(entry.name) for entry in found]
    assert [entry.path(found.root) for entry in found] == [str(tmp_path / name) for name in names(found)]
    assert found[1:3] == [found[1], found[2]]


def test_the_folders_own_order_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, [f"{i % 5}/{i}.png" for i in range(50)])
    expected = list(list_source(tmp_path))
    scandir = os.scandir

    class Shuffled:
        def __init__(self, path: bytes) -> None:
            self.entries = list(scandir(path))
            random.shuffle(self.entries)

        def __enter__(self) -> Iterator[Any]:
            return iter(self.entries)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(folder.os, "scandir", Shuffled)
    for _ in range(5):
        assert list(list_source(tmp_path)) == expected


def test_hidden_files_loops_and_links(tmp_path: Path) -> None:
    fill(
        tmp_path,
        ["photos/a.png", "photos/.hidden.png", "photos/.git/b.png", "photos/sub/c.png", "other/d.png"],
    )
    photos = tmp_path / "photos"
    (photos / "sub" / "loop").symlink_to(photos)
    (photos / "elsewhere").symlink_to(tmp_path / "other")
    (photos / "link.png").symlink_to(photos / "a.png")
    (photos / "dangling.png").symlink_to("nowhere")
    (photos / "myself.png").symlink_to("myself.png")
    os.mkfifo(photos / "pipe.png")
    found = list_source(photos)
    faulty = {
        "dangling.png": "a link to nothing",
        "myself.png": "Too many levels of symbolic links",
        "pipe.png": "not a regular file",
    }
    assert names(found) == sorted(["a.png", "elsewhere/d.png", "link.png", "sub/c.png", *faulty])
    assert {entry.text: entry.fault for entry in found if entry.fault} == faulty


def test_deep_trees(tmp_path: Path) -> None:
    """Deeper than Python's recursion goes."""
    depth = sys.getrecursionlimit() + 50
    subprocess.run(["mkdir", "-p", tmp_path / ("d/" * depth)], check=True)
    try:
        fill(tmp_path, ["stay.png", "d/" * depth + "a.png"])
        assert names(list_source(tmp_path)) == ["d/" * depth + "a.png", "stay.png"]
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # as pytest's own cleaning recurses


def test_excluded_folders_are_not_entered(tmp_path: Path) -> None:
    fill(tmp_path, ["a.png", "runs/x/thumbnail.png"])
    assert names(list_source(tmp_path, exclude=[tmp_path / "runs", tmp_path / "missing"])) == ["a.png"]


def test_hostile_names_come_through(tmp_path: Path) -> None:
    fill(tmp_path, HOSTILE)
    found = list_source(tmp_path)
    assert [os.fsencode(name) for name in names(found)] == sorted(HOSTILE)
    assert not any(entry.fault for entry in found)
    (tmp_path / "all.lst").write_bytes(b"\0".join(HOSTILE) + b"\0")
    assert names(list_source(tmp_path / "all.lst")) == names(found)


def test_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ["p/a.png", "p/b.jpg", "p/x/c.png", "p/x/y/d.png", "p/.h.png", "q/e[1].png"])
    monkeypatch.chdir(tmp_path)
    assert names(list_source("p/*.png")) == ["a.png"]
    assert names(list_source("p/**/*.png")) == ["a.png", "x/c.png", "x/y/d.png"]
    assert names(list_source("p/*")) == ["a.png", "b.jpg", "x/c.png", "x/y/d.png"]
    assert names(list_source("p/**")) == names(list_source("p/*"))
    assert names(list_source("p/?/*.png")) == ["x/c.png"]
    assert names(list_source("*/[ab].*")) == ["p/a.png", "p/b.jpg"]
    assert names(list_source(f"{tmp_path}/p/*.jpg")) == ["b.jpg"]
    assert names(list_source("q/e[1].png")) == ["e[1].png"]  # a file that is called so
    assert names(list_source("p/*.gif")) == []
    Path("latest").symlink_to("p/x")  # comes before p, and must not take x's files with it
    assert names(list_source("[pq]/*/*.png")) == ["p/x/c.png"]
    assert names(list_source("[pq]/**/*.png")) == ["p/a.png", "p/x/c.png", "p/x/y/d.png", "q/e[1].png"]
    assert names(list_source("l*/*.png")) == ["latest/c.png"]
    Path("p").rename("p [2020]")  # no range of signs, as the folder is called so
    assert names(list_source("p [2020]/*.png")) == ["a.png"]
    assert names(list_source(f"{tmp_path}/p [2020]/**/*.png")) == ["a.png", "x/c.png", "x/y/d.png"]
    with pytest.raises(UserError, match="no such file or folder"):
        list_source("p [2020]/nowhere.png")
    with pytest.raises(UserError, match="nowhere is not a folder"):
        list_source("nowhere/*.png")


def test_text_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ["lists/b.png", "lists/sub/a.png", "work/c.png", "far/d.png"])
    monkeypatch.chdir(tmp_path / "work")
    text = f"\ufeffb.png\r\n\r\n./sub//a.png\nc.png\n{tmp_path}/far/d.png\nb.png\n#missing.png\n"
    (tmp_path / "lists" / "all.txt").write_text(text, encoding="utf-8", newline="")
    found = list_source(tmp_path / "lists" / "all.txt")
    assert names(found) == [
        "#missing.png",
        f"{tmp_path}/far/d.png",
        f"{tmp_path}/work/c.png",
        "b.png",
        "sub/a.png",
    ]
    assert [entry.fault for entry in found] == ["No such file or directory", "", "", "", ""]
    assert all(os.path.isfile(entry.path(found.root)) for entry in found[1:])


@pytest.mark.parametrize("column", ["path", "file", "filename", "image", "Path", "image_path", "File Name"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv(tmp_path: Path, column: str, delimiter: str) -> None:
    fill(tmp_path, ["a.png", "b, c.png"])
    lines = [f"id{delimiter}{column}", f"1{delimiter}a.png", f'2{delimiter}"b, c.png"', "3", ""]
    plain = "\n".join(lines)
    for text in (plain, "\ufeff" + plain.replace("\n", "\r\n"), f'\ufeff{column}\na.png\n"b, c.png"\n'):
        (tmp_path / "table.csv").write_bytes(text.encode())  # the second and the third as spreadsheets write it
        assert names(list_source(tmp_path / "table.csv")) == ["a.png", "b, c.png"]


def test_spaces_and_commas_of_a_csv_that_no_program_wrote(tmp_path: Path) -> None:
    fill(tmp_path, ["a.png", "b, c.png", " d.png"])
    (tmp_path / "by hand.csv").write_text('id, path\n1, a.png\n2, "b, c.png"\n3, " d.png"\n')
    (tmp_path / "by program.csv").write_text('path,id\na.png,1\n"b, c.png",2\n d.png,3\n')
    (tmp_path / "by ls.csv").write_text("path\na.png\nb, c.png\n d.png\n")  # one column: commas divide nothing
    for table in ("by hand.csv", "by program.csv", "by ls.csv"):
        assert [entry.fault for entry in list_source(tmp_path / table)] == ["", "", ""], table


def test_csv_without_the_column(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,label\n1,2\n")
    with pytest.raises(UserError, match=r"Call it path \(found: id, label\)"):
        list_source(tmp_path / "table.csv")


@pytest.mark.parametrize("line", ['"b.png', '"b" at night.png', '"' + "b" * 200_000])
def test_a_quote_that_is_not_closed_swallows_no_lines(tmp_path: Path, line: str) -> None:
    (tmp_path / "table.csv").write_text(f"path\na.png\n{line}\nc.png\n")
    with pytest.raises(UserError, match=r"table\.csv, line \d: .*; is a quote not closed\?$"):
        list_source(tmp_path / "table.csv")


def test_a_list_in_utf16_is_told_to_be_saved_anew(tmp_path: Path) -> None:
    for name, what in (("table.csv", "save it as csv in UTF-8"), ("list.txt", "save it in UTF-8")):
        (tmp_path / name).write_text("path\na.png\n", encoding="utf-16")
        with pytest.raises(UserError, match=f"{name}: text in UTF-16; {what}"):
            list_source(tmp_path / name)


def shard(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, kind, target in (
            ("link.jpg", tarfile.SYMTYPE, "/etc/passwd"),
            ("one more.png", tarfile.LNKTYPE, "./1.png"),
            ("one.bak", tarfile.LNKTYPE, "./1.png"),
            ("lost.png", tarfile.LNKTYPE, "not here.png"),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            tar.addfile(link)
    return path


MEMBERS = [
    ("b/2.jpg", b"two"),
    ("./1.png", b"one"),
    ("1.json", b"{}"),
    ("1.cls", b"3"),
    ("../../evil.jpg", b"x"),
    ("/x.jpg", b"x"),
]


def test_shards_are_read_where_they_lie(tmp_path: Path) -> None:
    shard(tmp_path / "s-0.tar", MEMBERS)
    fill(tmp_path, ["s-0.png", "t.png"])
    found = list_source(tmp_path)
    inside = [f"s-0.tar/{name}" for name in ("../../evil.jpg", "/x.jpg", "1.png", "b/2.jpg", "one more.png")]
    assert names(found) == ["s-0.png", *inside, "t.png"]
    assert found[1].fault == found[2].fault == "its name leaves the archive"
    for entry, content in ((found[3], b"one"), (found[4], b"two"), (found[5], b"one")):
        with open(entry.path(found.root), "rb") as file:
            file.seek(entry.start)
            assert file.read(entry.size) == content
    for source in (tmp_path / "s-0.tar", str(tmp_path / "*.tar"), [tmp_path / "s-0.tar"]):
        assert names(list_source(source)) == inside
    below = list_source([tmp_path])
    assert below[3].path(below.root) == str(tmp_path / "s-0.tar")


def test_a_member_with_holes_is_refused(tmp_path: Path) -> None:
    """As `tar --sparse` stores it: a map of what is there, then only that. Read as it lies it would be another picture."""
    member = tarfile.TarInfo("GNUSparseFile.1/a.png")
    facts = {"major": "1", "minor": "0", "name": "a.png", "realsize": "4096"}
    member.pax_headers = {f"GNU.sparse.{name}": value for name, value in facts.items()}
    data = b"1\n0\n512\n".ljust(512, b"\0") + bytes(512)
    member.size = len(data)
    with tarfile.open(tmp_path / "s.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(data))
    for _ in range(2):  # by the archive, and by its index
        (entry,) = list_source(tmp_path / "s.tar", cache=tmp_path / "cache")
        assert (entry.text, entry.fault.split(":")[0]) == ("s.tar/a.png", "stored with holes (sparse)")


def test_damaged_shards(tmp_path: Path) -> None:
    whole = shard(tmp_path / "a.tar", [(f"{i}.jpg", bytes(2000)) for i in range(9)]).read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[:7000])
    (tmp_path / "b.tar").write_bytes(b"no archive" * 100)
    found = list_source(tmp_path)
    assert names(found) == ["a.tar", "a.tar/0.jpg", "a.tar/1.jpg", "a.tar/2.jpg", "b.tar"]
    assert found[0].fault.startswith("a damaged archive: ")
    assert found[4].fault.startswith("a damaged archive: ")


def test_a_shard_whose_headers_are_damaged_does_not_seem_to_end_there(tmp_path: Path) -> None:
    """Each of these nine images takes 512 bytes of header and 2048 of data."""
    path, header = tmp_path / "a.tar", 3 * (512 + 2048)
    whole = shard(path, [(f"{i}.jpg", bytes(2000)) for i in range(9)]).read_bytes()
    for damaged in (whole[: header + 100], whole[:header] + b"\xff" * 512 + whole[header + 512 :]):
        path.write_bytes(damaged)
        found = list_source(path)
        assert names(found) == ["a.tar", "a.tar/0.jpg", "a.tar/1.jpg", "a.tar/2.jpg"]
        assert found[0].fault.startswith("a damaged archive: what follows its first 7,680 bytes")
    path.write_bytes(whole[: 9 * (512 + 2048)])  # some programs leave out the zeros at the end
    assert names(list_source(path)) == [f"a.tar/{i}.jpg" for i in range(9)]


def test_several_paths(tmp_path: Path) -> None:
    fill(tmp_path, ["a/1.png", "a/2.png", "b/3.png"])
    found = list_source([tmp_path / "b", str(tmp_path / "a" / "2.png"), tmp_path / "b" / "3.png"])
    assert (names(found), found.root) == (["a/2.png", "b/3.png"], str(tmp_path))
    with pytest.raises(UserError, match="no paths were given"):
        list_source([])


def test_a_list_remembers_its_lines(tmp_path: Path) -> None:
    fill(tmp_path, ["a/1.png", "a/2.png", "b/3.png"])
    lines = ["b/3.png", "a", "b/3.png", "no.png", "a/../a/1.png"]
    found = list_source([tmp_path / line for line in lines])
    assert names(found) == ["a/1.png", "a/2.png", "b/3.png", "no.png"]
    assert found.listed is not None
    assert list(found.listed) == [2, 0, 1, 2, 3, 0]
    (tmp_path / "all.txt").write_text("b/3.png\na/2.png\nb/3.png\n")
    (tmp_path / "all.csv").write_text("path\nb/3.png\na/2.png\nb/3.png\n")
    for name in ("all.txt", "all.csv"):
        found = list_source(tmp_path / name)
        assert (names(found), list(found.listed or ())) == (["a/2.png", "b/3.png"], [1, 0, 1])
    assert list_source(tmp_path).listed is None


def test_wrong_sources(tmp_path: Path) -> None:
    fill(tmp_path, ["photos/a.png", "all.zip"])
    with pytest.raises(UserError, match=r"no such file or folder; did you mean .*photos\?"):
        list_source(tmp_path / "fotos")
    with pytest.raises(UserError, match="compressed archives are not read"):
        list_source(tmp_path / "all.zip")
