"""Times as stores write them."""

from __future__ import annotations

import pytest

from ckptdoctor.remote.listed import seconds_of


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.000Z", 60.0),
        ("1970-01-01T00:01:00.5Z", 60.5),
        ("1970-01-01T00:01:00.25+00:00", 60.25),
        ("1970-01-01T00:01:00.123456789Z", 60.123456),
        ("1970-01-01T02:01:00.125+02:00", 60.125),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_time_has_any_number_of_digits(said, seconds):
    """A store written in Go cuts zeros off at the end of a fraction, and tells nanoseconds."""
    assert seconds_of(said) == seconds
