"""Numbers as text and as pictures: pure arithmetic, for every number there is."""

from __future__ import annotations

from itertools import groupby
from math import inf, isnan, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.tui.models.values import (
    DARK,
    axis,
    bars,
    by_size,
    fewer,
    filling,
    halves,
    kernel_grid,
    limit,
    merged,
    shade,
    text,
    zoomed,
)

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"]
counts = st.lists(st.integers(0, 10**12), max_size=300)


@pytest.mark.parametrize("name", FLOATS)
@settings(deadline=None)
@given(data=st.data())
def test_a_text_stands_for_its_value_alone(name, data):
    """Rounded to the dtype, the text is the value again."""
    dtype = getattr(torch, name)
    wide = data.draw(st.floats(width=64 if name == "float64" else 32))
    value = torch.tensor(wide, dtype=torch.float64).to(dtype).double().item()
    said = text(value, BY_NAME[name])
    again = torch.tensor(float(said), dtype=torch.float64).to(dtype).double().item()
    assert again == value or (isnan(again) and isnan(value))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
def test_no_two_values_have_one_text(name):
    """All values of a dtype, one by one."""
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16) if "8_" not in name else torch.arange(256).to(torch.uint8)
    values = bits.view(getattr(torch, name)).float()
    values = values[~values.isnan()].tolist()
    assert len({text(each, BY_NAME[name]) for each in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "name", "said"),
    [
        (torch.tensor(0.1).item(), "float32", "0.1"),
        (0.1, "float64", "0.1"),
        (torch.tensor(0.1).bfloat16().item(), "bfloat16", "0.1"),
        (torch.tensor(-0.0132).bfloat16().item(), "bfloat16", "-0.0132"),
        (1032.0, "bfloat16", "1032"),
        (3e38, "float64", "3e38"),
        (1e-7, "float64", "1e-7"),
        (-0.0, "float32", "-0"),
        (nan, "float32", "NaN"),
        (-inf, "float16", "-inf"),
        (7, "int64", "7"),
        (True, "bool", "True"),
        (complex(1.5, -0.25), "complex64", "1.5-0.25j"),
        (complex(nan, inf), "complex128", "NaN+infj"),
    ],
)
def test_texts(value, name, said):
    """What people would write."""
    assert text(value, BY_NAME[name]) == said


@settings(deadline=None)
@given(counts, st.integers(1, 120))
def test_fewer_keeps_what_there_is(found, columns):
    """No count is lost where bins are put together, and no more columns come out than there are."""
    drawn = fewer(found, columns)
    assert len(drawn) <= columns
    assert len(found) <= columns or sum(drawn) == sum(found)


@settings(deadline=None)
@given(counts, st.integers(1, 120))
def test_a_picture_is_as_wide_as_its_pane(found, columns):
    """All columns are used, and every bar that there is room for is among them, in order."""
    drawn = filling(found, columns)
    assert len(drawn) == (columns if found else 0)
    assert [count for count, _ in groupby(drawn)] == [count for count, _ in groupby(fewer(found, columns))]


@settings(deadline=None)
@given(counts, st.integers(1, 20), st.booleans())
def test_bars(found, height, logarithmic):
    """Each column has as many cells as its line is high; what occurs is to be seen, and the most reaches the top."""
    lines = bars(found, height, logarithmic)
    assert len(lines) == height and {len(line) for line in lines} == {len(found)}
    assert all((lines[-1][at] != " ") == bool(count) for at, count in enumerate(found))
    if any(found):
        assert lines[0][found.index(max(found))] == "█"


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_an_axis_has_one_zero(low, high):
    """Where zero lies between the ends, one column has the mark."""
    low, high = min(low, high), max(low, high)
    line = axis(low, high, 40)
    assert len(line) == 40 and line.count("┼") == (low < 0 < high)


def test_sizes_go_from_large_to_small_and_to_large_again():
    """Negative values left of the zeros, with the largest at the end."""
    assert by_size([(-3, 5, 6), (-1, 7, 0)], 2) == ([7, 0, 5, 2, 6, 0, 0], -3)
    assert by_size([(0, 0, 4)], 0) == ([0, 4], 0)
    assert by_size([], 9) == ([9], 0)


numbers = st.none() | st.floats(width=32)
tables = st.integers(1, 12).flatmap(
    lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=12)
)


@settings(deadline=None)
@given(tables, st.integers(1, 60), st.integers(1, 60))
def test_pictures_of_anything(cells, rows, columns):
    """Whatever the numbers: no error, all the room is used, every cell is there, every colour a colour."""
    most = limit(cells)
    drawn = zoomed(cells, rows, columns)
    assert (len(drawn), len(drawn[0])) == (max(rows, len(cells)), max(columns, len(cells[0])))
    assert {id(each) for row in drawn for each in row} == {id(each) for row in cells for each in row}
    for line in halves(drawn):
        for upper, lower in line:
            colour = DARK.of(upper, most)
            assert colour is None or all(0 <= each <= 255 for each in colour)
            assert len(shade(merged(upper, lower), most)) == 1


@settings(deadline=None)
@given(st.integers(2, 7), st.integers(2, 7), st.integers(1, 300), st.integers(8, 60), st.integers(8, 120))
def test_kernels_side_by_side(height, width, count, rows, columns):
    """They fit into the room, none is drawn over another, and the way back leads to the values that are drawn."""
    grid = kernel_grid((height, width), count, rows, columns)
    shown = min(count, grid.count)
    size = height * width
    cells = grid.cells([[kernel * size + at for at in range(size)] for kernel in range(shown)])
    assert len(cells) <= rows and len(cells[0]) <= columns
    seen = set()
    for row, line in enumerate(cells):
        for column, value in enumerate(line):
            place = grid.at(row, column)
            if value is not None:
                assert place == (value // size, value % size // width, value % width)
                seen.add(value)
    assert seen == set(range(shown * size))


def test_one_outlier_does_not_hide_the_rest():
    """The full colour belongs to what all but one in a hundred cells do not go beyond."""
    assert limit([[0.1] * 200 + [1000.0, nan, inf]]) == 0.1
    assert limit([[0.0] * 200 + [1.0]]) == 1.0
    assert limit([[nan]]) == 0.0
