"""``fix --auto`` on pairs of which the truth is known: right or refused, in both modes."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real
from tests.pairs.judge import FAMILIES, Judged, Verdict, judged, losing, pair_of
from tests.pairs.known import KNOWN
from tests.pairs.pair import loads

BAD = (Verdict.WRONG, Verdict.CRASH)
AT_SCALE = 1_200


def held(number: int, unsafe: bool) -> None:
    """Fail where something wrong was written, and say how to see it."""
    found = judged(number, unsafe)
    assert found.verdict not in BAD, told(found)


def told(found: Judged) -> str:
    """What went wrong, and the command that shows it."""
    return f"python -m tests.pairs {found.number}: {found.family}, {found.pair.what}: {found.why}"


def is_known(number: int, unsafe: bool) -> bool:
    """Whether this pair is one of those that are known to go wrong."""
    return number in KNOWN["unsafe" if unsafe else "plain"]


@real
@pytest.mark.parametrize("unsafe", [False, True], ids=["plain", "unsafe"])
def test_one_of_every_family_is_right_or_refused(unsafe):
    """Nothing that is not the truth is written, and nothing is called whole that is not."""
    wrong = [told(found) for number in range(len(FAMILIES)) if not is_known(number, unsafe)
             and (found := judged(number, unsafe)).verdict in BAD]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@real
@pytest.mark.parametrize(("mode", "number"), [(mode, number) for mode, numbers in KNOWN.items() for number in numbers])
@pytest.mark.xfail(strict=True, reason="a guess is written", raises=AssertionError)
def test_what_is_known_to_go_wrong(mode, number):
    """Each of these fails until it is repaired; then it leaves the list."""
    held(number, mode == "unsafe")


@real
@pytest.mark.slow
@pytest.mark.parametrize("unsafe", [False, True], ids=["plain", "unsafe"])
def test_none_is_wrong_at_scale(unsafe, scale):
    """Over a thousand pairs, and with --whole all of them, none that is not known is wrong."""
    first = scale.seed * 1_000_000 // len(FAMILIES) * len(FAMILIES) if scale.seed > 1 else len(FAMILIES)
    wrong = []
    for number, _ in scale.cases(AT_SCALE, at_least=len(FAMILIES)):
        if not is_known(first + number, unsafe) and (found := judged(first + number, unsafe)).verdict in BAD:
            wrong.append(told(found))
    assert not wrong, "\n".join(wrong)


@real
@pytest.mark.parametrize("family", ["base model", "more keys", "adapter", "trap: parts in doubt"])
def test_no_printed_command_loses_what_is_left_over(family):
    """Of a head, another layer, an adapter or a part too many the file has the only copy, and every line keeps it."""
    first = list(FAMILIES).index(family)
    assert [each for number in (first, first + len(FAMILIES)) for each in losing(number)] == []


@real
@pytest.mark.slow
def test_no_printed_command_loses_a_weight(scale):
    """Whatever is wrong with a file, no line that is printed for it leaves out the only copy of a weight."""
    lost = [each for number, _ in scale.cases(AT_SCALE, at_least=2 * len(FAMILIES)) for each in losing(number)]
    assert not lost, "\n".join(lost)


@real
def test_a_pair_is_made_from_its_number_alone():
    """The same number gives the same tensors under the same keys."""
    for number in range(len(FAMILIES)):
        one, other = pair_of(number), pair_of(number)
        assert one.what == other.what
        assert list(one.target) == list(other.target)
        assert all(torch.equal(value, other.target[key]) for key, value in one.target.items())


@real
def test_an_answer_is_one_that_the_model_takes():
    """Each answer has the keys of the target, and its model loads it strictly."""
    for number in range(2 * len(FAMILIES)):
        pair = pair_of(number)
        for answer in (*pair.answers, *pair.with_loss):
            assert set(answer) == set(pair.target), pair.what
            whole = {key: value for key, value in answer.items() if value is not None}
            assert not pair.model or loads(pair.model, whole), pair.what
