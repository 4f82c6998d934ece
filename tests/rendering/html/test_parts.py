"""The parts of a page, each by itself."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.rendering.html.charts import ChartLine, Point, block_of, line_chart
from ckptdoctor.rendering.html.markup import attributes, name, section, text
from ckptdoctor.rendering.html.table import LEVELS, bars, bounded, rounded
from ckptdoctor.rendering.html.treemap import Rectangle, squarified
from ckptdoctor.values.statistics import Histogram


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60))
def test_areas_fill_the_box_and_do_not_leave_it(sizes):
    """Each area is as large as its share, and lies inside."""
    sizes = sorted(map(float, sizes), reverse=True)
    boxes = list(squarified(sizes, Rectangle(0, 0, 800, 400)))
    assert len(boxes) == len(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        assert box.width * box.height == pytest.approx(320_000 * size / sum(sizes), rel=1e-4, abs=1e-2)
        assert box.x >= 0 and box.x + box.width <= 800.01
        assert box.y >= 0 and box.y + box.height <= 400.01


def test_areas_are_nearly_square():
    """The example of the paper: no side is three times the other."""
    boxes = list(squarified([6, 6, 4, 3, 2, 2, 1], Rectangle(0, 0, 6, 4)))
    assert all(max(box.width / box.height, box.height / box.width) < 3 for box in boxes)
    assert list(squarified([], Rectangle(0, 0, 1, 1))) == list(squarified([0.0], Rectangle(0, 0, 1, 1))) == []


def test_text_is_never_markup():
    """Signs of markup are replaced, also in attributes; names may be broken at their dots."""
    assert text("<b a='1'>&\x1b") == "&lt;b a=&#x27;1&#x27;&gt;&amp;\\x1b"
    assert name("a.<b>/c") == "a.<wbr>&lt;b&gt;/<wbr>c"
    assert name("{q,k} 14,562,048") == "{q,<wbr>k} 14,562,048"  # a number is one word
    assert attributes(class_='"x"', data_line=3, role=None) == ' class="&quot;x&quot;" data-line="3"'
    assert section("x", "X", "") == ""


@given(st.text())
def test_no_text_opens_an_element(value):
    """Whatever a key is."""
    for made in (text(value), name(value).replace("<wbr>", "")):
        assert not set(made) & set("<>\"'\x00\n\u2028")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("transformer.h.3.attn.c_attn.weight", ("transformer.h.3", "attn.c_attn.weight")),
        ("layer1.0.conv1.weight", ("layer1.0", "conv1.weight")),
        ("layers.0.blocks.1.mlp.fc1.bias", ("layers.0.blocks.1", "mlp.fc1.bias")),
        ("model.layers.7.mlp.experts.5.w1.weight", ("model.layers.7", "mlp.experts.5.w1.weight")),
        ("features.0.weight", ("features.0", "weight")),
        ("fc.weight", None),
        ("5", None),
    ],
)
def test_blocks_are_told_by_their_numbers(key, expected):
    """The block that a key belongs to, and what it is there."""
    assert block_of(key) == expected


@given(st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=8))
def test_lines_stay_inside_their_drawing(values):
    """Whatever the range of values."""
    import re

    points = tuple([Point(at, value, f"p{at}") for at, value in enumerate(values)])
    drawing = line_chart([ChartLine("kind", points)], list(map(str, range(len(values)))), "label")
    for x, y in re.findall(r'cx="(.*?)" cy="(.*?)"', drawing):
        assert 0 <= float(x) <= 560 and 0 <= float(y) <= 260


def test_zero_is_a_gap():
    """A logarithmic scale has no place for it; a line of nothing else has no drawing at all."""
    points = tuple([Point(at, value, "p") for at, value in enumerate([1.0, 2.0, 0.0, 3.0])])
    assert line_chart([ChartLine("kind", points)], list("0123"), "label").count("<polyline") == 2
    assert line_chart([ChartLine("kind", (Point(0, 0.0, "p"),))], ["0"], "label") == ""


def test_figures_are_short_and_json():
    """Four digits; what JSON cannot hold is null; integers of any size are bounded."""
    assert [rounded(0.123456), rounded(1234.0), rounded(nan), rounded(inf), rounded(1e-300)] == [
        *(0.1235, 1234, None, None, 1e-300),
    ]
    assert bounded(10**5000) == 1 << 60


def test_bars_keep_what_is_rare():
    """A bar is never empty where there is a value, and the highest is the last sign."""
    shown = bars(Histogram(tuple(map(float, range(33))), (*[0] * 30, 1, 1_000_000), False))
    assert len(shown) == 16 and shown[-1] == LEVELS[-1]
    assert bars(Histogram((0.0, 1.0, 2.0), (1, 1_000_000), False)) == f"{LEVELS[1]}{LEVELS[-1]}"
    assert bars(None) == ""
