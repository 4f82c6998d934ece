"""Text that any terminal can show."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.trainer.progress.text import duration, encodable, percent, plural, shell_word, visible


@given(st.text())
def test_nothing_invisible_is_left(text):
    """Whatever the text, what comes out is printable, and printable text comes out as it was."""
    assert visible(text).isprintable()
    assert visible(text) == text or not text.isprintable()


def test_controls_are_written_out():
    """An escape character, a bidi mark and a lone surrogate are shown by their codes."""
    assert visible("a\x1b[2J\u202e\udcff\U000e0001") == r"a\x1b[2J\u202e\udcff\U000e0001"


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_what_is_fitted_can_be_encoded(text, encoding):
    """Any visible text can be encoded afterwards."""
    encodable(visible(text), encoding).encode(encoding)


def test_signs_get_a_plain_form():
    """Where the encoding lacks our typographic signs, plain ones stand for them; other characters become codes."""
    assert encodable("8 × 64 · 3 … 4", "ascii") == "8 x 64 - 3 ... 4"
    assert encodable("süß", "ascii") == r"s\xfc\xdf"
    assert encodable("8 × 64 … 4", "latin-1") == "8 × 64 ... 4"


@pytest.mark.parametrize("path", ["run/a", "my run", "it's", "-rf", "a;b", "$HOME", "a\nb", "süß", "\udcff\\'\x1b"])
def test_a_shell_reads_the_path_back(path):
    """A path in a command reaches the program as it is, with ./ before a leading dash."""
    echoed = subprocess.run(["bash", "-c", f"printf %s {shell_word(path)}"], capture_output=True, check=True).stdout
    assert echoed.decode(errors="surrogateescape") == (f"./{path}" if path.startswith("-") else path)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (5.4, "0:05"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")]
)
def test_durations_read_like_a_clock(seconds, text):
    """Minutes and seconds, with hours where there are any."""
    assert duration(seconds) == text


def test_numbers_for_people():
    """Percent with one digit, thousands with commas, and the right number of the noun."""
    assert percent(0.875) == "87.5 %"
    assert percent(float("nan")) == "nan %"
    assert plural(1, "step") == "1 step"
    assert plural(1124, "step") == "1,124 steps"
