"""Slices of tensors: places and indexes agree, whatever the dimensions."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.tui.models.slices import Slice, first, parse_index

shapes = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@settings(deadline=None)
@given(shapes, st.data())
def test_place_and_index_agree(shape, data):
    """Every element of the tensor has a place in the slice through it, and every place has its element."""
    here = first(shape)
    for _ in range(data.draw(st.integers(0, 4))):
        here = data.draw(st.sampled_from([here.next_rows, here.next_columns]))()
    index = tuple([data.draw(st.integers(0, size - 1)) for size in shape])
    here = here.through(index)
    row, column = here.place(index)
    assert 0 <= row < here.height and 0 <= column < here.width
    assert here.index(row, column) == index
    assert here.rows != here.columns or here.rows is None


@settings(deadline=None)
@given(shapes)
def test_steps_go_round(shape):
    """All slices are met, each once, before the first comes again; together they hold every element."""
    here = start = first(shape)
    seen = []
    for _ in range(here.slices):
        seen.append(here.number)
        here = here.step(1)
    assert here == start and seen == list(range(start.slices))
    assert start.slices * start.height * start.width == prod(shape)
    assert start.step(1).step(-1) == start


@settings(deadline=None)
@given(shapes, st.integers(1, 12), st.data())
def test_a_box_holds_what_is_asked_for(shape, across, data):
    """The elements at the rows and columns of a window all lie in its box."""
    found = first(shape)
    here = Slice(found.shape, found.rows, found.columns, found.at, across)
    rows = range(data.draw(st.integers(0, here.height - 1)), here.height)
    columns = range(data.draw(st.integers(0, here.width - 1)), here.width)
    box = here.box(rows, columns)
    for row in rows:
        for column in columns:
            index = here.index(row, column)
            assert index is None or all(at in each for at, each in zip(index, box, strict=True))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((), "[]"),
        ((7,), "[→]"),
        ((1, 7), "[0, →]"),
        ((64, 3, 7, 7), "[0, 0, ↓, →]"),
        ((64, 32, 3, 3), "[↓, →, 0, 0]"),
        ((64, 32, 1, 1), "[↓, →, 0, 0]"),
        ((8, 4096, 1024), "[0, ↓, →]"),
        ((0, 5), "[0, →]"),
    ],
)
def test_what_is_looked_at_first(shape, said):
    """The last two dimensions, or the largest two where those hold next to nothing."""
    assert str(first(shape)) == said


def test_turning():
    """Rows and columns change places where they meet."""
    here = first((4, 5, 6, 7))
    assert str(here) == "[0, 0, ↓, →]"
    assert str(here.next_rows()) == "[0, 0, →, ↓]"
    assert str(here.next_columns()) == "[→, 0, ↓, 0]"
    assert str(here.through((1, 2, 3, 4))) == "[1, 2, ↓, →]"


@pytest.mark.parametrize("text", ["", "1", "1, 2, 3", "a, 0", "9, 0", "-10, 0", "1.5 0", "9" * 40 + " 0"])
def test_an_index_that_makes_no_sense_is_refused(text):
    """With a sentence that says what is wanted."""
    with pytest.raises(ValueError, match=r"numbers, one|whole|out of range"):
        parse_index(text, (9, 4))


def test_an_index():
    """With commas, brackets or neither; negative ones count from the end."""
    assert parse_index("[3, -1]", (9, 4)) == (3, 3)
    assert parse_index("3 0", (9, 4)) == (3, 0)
    assert parse_index("", ()) == ()
