"""Words that rules share."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.kit import wording


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (0, 0, "0 %"),
        (999_999, 1_000_000, "> 99.9 %"),
        (1, 1_000_000, "< 0.1 %"),
        (92, 100, "92.0 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: int, whole: int, text: str) -> None:
    """100 % means all and 0 % means none."""
    assert wording.proportion(part, whole) == text


def test_counts_and_lists_read_as_people_write_them() -> None:
    """Each of them by its number, and an “and” before the last."""
    assert wording.all_of(1, "key") == "the only key"
    assert wording.all_of(2, "key") == "both keys"
    assert wording.all_of(3200, "key") == "all 3,200 keys"
    assert wording.listed([]) == ""
    assert wording.listed(["a", "b", "c"]) == "a, b and c"


def test_lines_of_torch_are_abridged_after_three_keys() -> None:
    """Three keys are quoted; an ellipsis says that there are more."""
    assert wording.missing_line("abc") == 'Missing key(s) in state_dict: "a", "b", "c".'
    assert wording.unexpected_line("abcd") == 'Unexpected key(s) in state_dict: "a", "b", "c", …'


def test_groups_say_which_modules_and_how_many_more() -> None:
    """The largest four modules are named, the others counted."""
    sizes = {f"m{number}.weight": 10 - number for number in range(7)}
    text = wording.module_groups(sizes)
    assert text.startswith("m0 (1 key, 10 parameters), m1")
    assert wording.module_groups({"a.weight": 1}) == "a (1 key, 1 parameter)"


def test_sizes_are_written_for_people() -> None:
    """Three digits or so, with the unit."""
    shown = [wording.size_words(each) for each in (1, 512, 1_000, 5_900, 102_400_000, 999_600_000_000, 5 * 10**16)]
    assert shown == ["1 byte", "512 bytes", "1.0 kB", "5.9 kB", "102 MB", "1.0 TB", "50,000 TB"]
