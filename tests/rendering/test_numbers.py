import pytest

from ckptdoctor.rendering import numbers


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (61_234, "61 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (9_960_000, "10 MB"),
        (307_123_456, "307 MB"),
        (1_540_000_000, "1.5 GB"),
        (100 * 10**9, "100 GB"),
        (5 * 10**18, "5,000 PB"),
    ],
)
def test_sizes_are_decimal_and_short(nbytes, shown):
    """Bytes are shown in decimal units with two or three digits."""
    assert numbers.size(nbytes) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(812, "812"), (75_000, "75.0 k"), (25_557_032, "25.6 M"), (123_456_789, "123 M")]
)
def test_amounts_have_three_digits(number, shown):
    """Elements are shown to three digits."""
    assert numbers.amount(number) == shown


def test_integers_too_long_to_print_are_described():
    """An integer of a million digits is shown by its order of magnitude, at once."""
    huge = 1 << 4_000_000
    assert numbers.count(huge) == "2^4000000"
    assert numbers.count(-huge) == "-2^4000000"
    assert numbers.size(huge) == "2^4000000 bytes"
    assert numbers.amount(huge) == "2^4000000"
    assert numbers.shape((huge, 3)) == "[2^4000000, 3]"


def test_plurals():
    """A count is followed by the noun in the right number."""
    assert numbers.plural(1, "tensor") == "1 tensor"
    assert numbers.plural(1124, "tensor") == "1,124 tensors"
    assert numbers.plural(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(("number", "shown"), [(0, "0 elements"), (1, "1 element"), (25_600_000, "25.6 M elements")])
def test_amounts_agree_with_their_noun(number, shown):
    """One is not several."""
    assert numbers.amount_of(number, "element") == shown
