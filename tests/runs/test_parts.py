"""Parts of a labelling: they cover everything once, know when they are finished, and refuse to be mixed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concurl.errors import UserError
from concurl.runs.parts import Part, merge


@given(st.integers(0, 300), st.integers(1, 20), st.integers(1, 9))
def test_shares_cover_everything_once_and_begin_at_blocks(n, of, block):
    shares = [Part(i + 1, of).share(n, block) for i in range(of)]
    assert [image for share in shares for image in share] == list(range(n))
    assert all(share.start % block == 0 for share in shares if share)
    blocks = [-(-len(share) // block) for share in shares]
    assert max(blocks) - min(blocks) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/0", "a/b", "1/4/2", "-1/4", ""])
def test_a_wrong_shard_is_named(text):
    with pytest.raises(UserError, match=f"--shard {text}: I/N is needed"):
        Part.parse(text)


def write(folder, number, of, rows, work="w", left_out=0):
    part = Part(number, of)
    part.csv(folder).write_text("a,b\n" + "".join(f"{row},x\n" for row in rows))
    part.seal(folder, {"of": work}, len(rows) - left_out, left_out)
    return part


def test_merged_in_order_with_one_header(tmp_path):
    for number in range(1, 12):  # 10 and 11 come after 9, not after 1
        write(tmp_path, number, 11, [] if number == 5 else [number], left_out=number // 11)
    assert merge(tmp_path, tmp_path / "all.csv") == (9, 1)
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines == ["a,b", *(f"{i},x" for i in range(1, 12) if i != 5)]


def test_a_part_is_finished_only_as_it_was_sealed(tmp_path):
    part = Part(1, 2)
    assert not part.finished(tmp_path, {"of": "w"})
    write(tmp_path, 1, 2, [1])
    assert part.finished(tmp_path, {"of": "w"})
    assert not part.finished(tmp_path, {"of": "another"})
    part.csv(tmp_path).write_text("a,b\n1,y\n")
    assert not part.finished(tmp_path, {"of": "w"})


def test_merge_refuses_gaps_mixtures_and_damage(tmp_path):
    with pytest.raises(UserError, match="no finished parts"):
        merge(tmp_path, tmp_path / "all.csv")
    write(tmp_path, 1, 3, [1])
    with pytest.raises(UserError, match=r"part 2 of 3 \(and 1 more\) is missing"):
        merge(tmp_path, tmp_path / "all.csv")
    write(tmp_path, 2, 3, [2])
    write(tmp_path, 3, 3, [3], work="another")
    with pytest.raises(UserError, match="another model, source or cut"):
        merge(tmp_path, tmp_path / "all.csv")
    part = write(tmp_path, 3, 3, [3])
    part.csv(tmp_path).write_text("a,b\n")
    with pytest.raises(UserError, match="does not match its manifest"):
        merge(tmp_path, tmp_path / "all.csv")
    part.manifest(tmp_path).write_text(json.dumps([]))
    with pytest.raises(UserError, match="not a readable manifest"):
        merge(tmp_path, tmp_path / "all.csv")
    assert not (tmp_path / "all.csv").exists()
