from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.rendering.wrapping import abridged, columns, joined, wrapped


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab ", max_size=200), st.integers(10, 60))
def test_wrapping_loses_no_word_and_fits(text, width):
    """Every word is kept in order, and a line is too long only when a single word is."""
    lines = wrapped(text, width, "  ", "    ")
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


def test_no_width_means_one_line():
    """Output that is not a terminal is not wrapped."""
    assert wrapped("word " * 100, None, "> ") == ["> " + "word " * 100]


def test_abridged_keeps_both_ends():
    """The beginning and the end of a long text stay, and the length is exact."""
    short = abridged("a" * 50 + "z" * 50, 20)
    assert len(short) == 20
    assert short.startswith("aaaa") and short.endswith("zzzz") and "…" in short


def test_pieces_stay_whole():
    """What does not fit beside the others begins a new line, unbroken."""
    assert joined(["one two", "three four", "five"], 20) == ["one two · three four", "  five"]


def test_columns_align():
    """Cells line up, numbers to the right."""
    assert list(columns([("a", "1"), ("bbb", "22")], right=frozenset({1}), gap=" ")) == ["a    1", "bbb 22"]
