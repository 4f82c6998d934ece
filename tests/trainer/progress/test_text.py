"""Text that any terminal can show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.trainer.progress.text import duration, encodable, fitted, percent_of


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_what_is_fitted_can_be_encoded(text, encoding):
    """Any text can be encoded afterwards, and is visible."""
    assert fitted(text, encoding).isprintable()
    fitted(text, encoding).encode(encoding)


def test_signs_get_a_plain_form():
    """Where the encoding lacks our typographic signs, plain ones stand for them; other characters become codes."""
    assert encodable("8 × 64 · 3 … 4", "ascii") == "8 x 64 - 3 ... 4"
    assert encodable("süß", "ascii") == r"s\xfc\xdf"
    assert encodable("8 × 64 … 4", "latin-1") == "8 × 64 ... 4"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (5.4, "0:05"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")]
)
def test_durations_read_like_a_clock(seconds, text):
    """Minutes and seconds, with hours where there are any."""
    assert duration(seconds) == text


def test_percent_for_people():
    """Percent with one digit, and what is not a number as well."""
    assert percent_of(0.875) == "87.5 %"
    assert percent_of(float("nan")) == "nan %"
