"""Dataclasses that are completed when the first of them is made."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import field

import pytest

from ckptdoctor.late import complete_all, late_dataclass


def example():
    """A new class that nothing has used yet."""

    @late_dataclass(frozen=True)
    class Pair:
        """Two."""

        first: int
        rest: list[int] = field(default_factory=list)

        @property
        def double(self) -> int:
            """Twice the first."""
            return 2 * self.first

    return Pair


def test_nothing_is_compiled_before_the_first_instance():
    """The class has no fields until it is used, and is a dataclass from then on."""
    kind = example()
    assert not dataclasses.is_dataclass(kind)
    kind(1)
    assert [each.name for each in dataclasses.fields(kind)] == ["first", "rest"]


def test_instances_are_those_of_a_frozen_dataclass():
    """Values by place and name, defaults, equality, repr, properties and refused changes."""
    kind = example()
    made = kind(1, rest=[2])
    assert made == kind(first=1, rest=[2])
    assert made != kind(1)
    assert kind(3).double == 6
    assert repr(made).endswith("Pair(first=1, rest=[2])")
    assert dataclasses.replace(made, first=5) == kind(5, [2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.first = 2


def test_a_wrong_call_is_refused_as_ever():
    """The first call may already be wrong; the next one works."""
    kind = example()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        kind()
    assert kind(1).rest == []


def test_the_patterns_of_match_see_its_fields():
    """``case Pair(first)`` matches by place."""
    kind = example()
    match kind(7):
        case kind(first):
            assert first == 7
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize("options", [{"slots": True}, {"frozen": True, "slots": True}])
def test_slots_cannot_wait(options):
    """A class with slots is a new class: it cannot be completed in place."""
    with pytest.raises(TypeError, match="cannot wait"):

        @late_dataclass(**options)
        class Slotted:
            """One."""

            first: int


def test_a_class_below_a_dataclass_cannot_wait():
    """Its fields would have to be known."""
    above = example()
    with pytest.raises(TypeError, match="cannot wait"):

        @late_dataclass(frozen=True)
        class Below(above):
            """One more."""

            last: int


def test_threads_that_come_first_together_all_get_theirs():
    """Completing happens once, and nobody meets a class that is half complete."""
    kind = example()
    barrier = threading.Barrier(8)
    made = []

    def make(number):
        barrier.wait()
        made.append(kind(number))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.first for each in made) == list(range(8))


def test_all_that_wait_can_be_completed_at_once():
    """Those who watch what is compiled while files are read see none of it then."""
    kind = example()
    complete_all()
    assert [each.name for each in dataclasses.fields(kind)] == ["first", "rest"]
    assert kind(1) == kind(first=1)
