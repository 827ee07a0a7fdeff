"""Many paths in little memory: a list of str to whoever reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concurl.data.files.names import Names


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_names_are_a_list_of_str(texts):
    names = Names()
    for text in texts:
        names.append(text)
    assert list(names) == texts
    assert names[1:-1] == texts[1:-1]
    assert not texts or names[-1] == texts[-1]
    with pytest.raises(IndexError):
        names[len(texts)]
