"""Numbers with their nouns, shares, and lists that break off."""

from __future__ import annotations

import pytest

from ckptdoctor.wording import (
    and_more,
    and_so_on,
    article,
    beyond,
    first_few,
    listed,
    percent,
    plural,
    span,
    the_first,
)


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 bytes follow"), (1, "1 byte follows"), (2, "2 bytes follow"), (1_124, "1,124 bytes follow")],
)
def test_one_is_not_several(number: int, said: str) -> None:
    """Noun and verb agree, and thousands are told apart."""
    assert plural(number, "byte follows", "bytes follow") == said


def test_an_s_is_enough_for_most() -> None:
    """Only what takes more is named."""
    assert (plural(1, "tensor"), plural(3, "tensor")) == ("1 tensor", "3 tensors")


@pytest.mark.parametrize(
    ("words", "said"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_joined_as_people_do(words: list[str], said: str) -> None:
    """There is an "and" before the last of several, and nothing for none."""
    assert listed(words) == said


@pytest.mark.parametrize(("most", "said"), [(1, "1 and 2 more"), (2, "1, 2 and 1 more"), (3, "1, 2 and 3")])
def test_a_list_is_whole_or_says_how_many_are_left_out(most: int, said: str) -> None:
    """One that has no more than it may have is joined as ever."""
    assert listed([1, 2, 3], most) == said


@pytest.mark.parametrize(
    ("most", "said"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c"), (9, "a, b, c")]
)
def test_what_is_shown_and_what_is_left_out_make_the_whole(most: int, said: str) -> None:
    """A list that fits says nothing of others."""
    assert and_more(["a", "b", "c"], most) == said


def test_only_what_is_shown_is_put_into_words() -> None:
    """The others may be many."""
    said: list[int] = []

    def say(number: int) -> str:
        said.append(number)
        return str(number)

    assert and_more(range(1_000_000), 2, "key", say=say) == "0, 1 and 999,998 more keys"
    assert said == [0, 1]


@pytest.mark.parametrize(
    ("number", "said"), [(-1, ""), (0, ""), (1, "; and 1 more file."), (1_200, "; and 1,200 more files.")]
)
def test_what_is_left_out_is_counted_with_its_noun(number: int, said: str) -> None:
    """Nothing is said where nothing is left out."""
    assert beyond(number, "file", before="; and ", after=".") == said


def test_a_number_can_be_written_plainly() -> None:
    """Some outputs have thousands without a comma."""
    assert beyond(1_200, spelt=str) == " and 1200 more"


@pytest.mark.parametrize(("words", "said"), [("", ""), ("ab", "a, b"), ("abc", "a, b, …")])
def test_a_sign_stands_for_others_that_nobody_counts(words: str, said: str) -> None:
    """It stands only where there are others, and no more is taken than tells that."""
    rest = iter(words)
    assert and_so_on(rest, 2) == said
    assert list(rest) == []


@pytest.mark.parametrize(("most", "lines"), [(1, ["a", "… and 2 more"]), (3, ["a", "b", "c"])])
def test_the_last_line_counts_the_others(most: int, lines: list[str]) -> None:
    """It is there only where others are."""
    assert first_few(["a", "b", "c"], most, before="… and ") == lines


@pytest.mark.parametrize(
    ("part", "said"), [(0, "0 %"), (1, "0.1 %"), (123_456, "12.3 %"), (999_999, "99.9 %"), (1_000_000, "100 %")]
)
def test_a_share_does_not_lie_about_the_ends(part: int, said: str) -> None:
    """100 only when nothing is missing, 0 only when nothing is there."""
    assert percent(part, 1_000_000) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"), [(0, 0, "none"), (0, 4, "nothing"), (1, 4, "25.00 %"), (4, 4, "100 %")]
)
def test_what_lies_between_the_ends_is_rounded_as_asked(part: int, whole: int, said: str) -> None:
    """The ends are the same for all, but for how nothing is said."""
    assert percent(part, whole, lambda share: f"{share:.2f}", none="nothing", empty="none") == said


def test_nothing_of_nothing_is_all() -> None:
    """A target that wants nothing is fitted."""
    assert percent(0, 0) == "100 %"


@pytest.mark.parametrize(("first", "last", "said"), [(3, 3, "3"), (0, 1, "0..1"), (0, 1_000, "0..1000")])
def test_neighbours_are_written_by_their_ends(first: int, last: int, said: str) -> None:
    """One number is no span; and indices have no comma."""
    assert span(first, last) == said


def test_the_only_one_is_not_the_first_of_several() -> None:
    """It is simply named."""
    assert f"2 NaN in 1 tensor{the_first('a', 1)}" == "2 NaN in 1 tensor: a"
    assert f"2 NaN in 2 tensors{the_first('a', 2)}" == "2 NaN in 2 tensors; the first is a"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        *[(word, "an") for word in ("argparse.Namespace", "int", "Unpickler", "unimported", "8", "11", "18,000")],
        *[(word, "a") for word in ("uuid.UUID", "user.Net", "utils.Meter", "dict", "unit.Test", "1", "110", "1,100")],
    ],
)
def test_the_article_follows_the_sound(word: str, said: str) -> None:
    """Classes and numbers are read, not spelt."""
    assert article(word) == said
