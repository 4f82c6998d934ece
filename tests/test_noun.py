"""Nouns are dataclasses in everything but what they cost."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import field
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

import ckptdoctor
from ckptdoctor.noun import complete_all, maker, noun


@noun
class Pair:
    """Two."""

    first: int
    rest: list[int] = field(default_factory=list)

    @property
    def double(self) -> int:
        """Twice the first."""
        return 2 * self.first


@noun
class Longer(Pair):
    """One more, and another default."""

    rest: tuple[int, ...] = ()
    last: int = 0


def made_by(decorate, **options):
    """A new class with a bit of everything, decorated so; nothing has used it yet."""

    @decorate(**options)
    class Example:
        """Text that stays."""

        one: int
        two: str = "b"
        three: list[int] = field(default_factory=list)
        unseen: float = field(default=0.0, compare=False, repr=False)
        fixed: int = field(default=9, init=False)

        def __post_init__(self):
            self.three.append(self.one)

    return Example


KINDS = [
    {"frozen": frozen, "eq": eq, "slots": slots}
    for frozen, eq, slots in product((True, False), (True, False), (True, False))
]


@pytest.mark.parametrize("compiled", [False, True], ids=["field by field", "compiled"])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_noun_does_what_a_dataclass_does(options, compiled):
    """Fields, defaults, equality, hashes, refusals, slots: the same answers, or errors of one kind."""

    def answers(kind):
        if compiled:
            complete_all()
        one, same, other = kind(1), kind(1, "b", unseen=float("nan")), kind(two="c", one=1)
        asked = [
            lambda: [(each.name, each.default, each.compare, each.init) for each in dataclasses.fields(kind)],
            lambda: dataclasses.is_dataclass(kind),
            lambda: kind.__match_args__,
            lambda: kind.__doc__,
            lambda: (one == same, one == other, one != same, one == 1),
            lambda: hash(kind(1)) if kind.__hash__ is None else type(hash(dataclasses.replace(one))),
            lambda: dataclasses.asdict(dataclasses.replace(other, two="d")),
            lambda: (hasattr(one, "__dict__"), getattr(kind, "__slots__", None)),
            lambda: setattr(one, "two", "x") or one.two,
            lambda: (
                options["frozen"] or setattr(one, "nothing", "x") or one.nothing
            ),  # with slots it is a TypeError of super()
            lambda: delattr(one, "two") or hasattr(one, "two"),
            lambda: kind(),
            lambda: kind(1, 2, 3, 4, 5),
            lambda: kind(1, fixed=3),
            lambda: kind(1, one=3),
            lambda: kind(1, "b", nothing=3),
            lambda: {kind(2).three is kind(2).three: kind(2).fixed},
        ]
        return [answer(each) for each in asked]

    def answer(asked):
        try:
            return asked()
        except (TypeError, AttributeError) as error:
            return type(error).__mro__[1] if isinstance(error, dataclasses.FrozenInstanceError) else type(error)

    assert answers(made_by(noun, **options)) == answers(made_by(dataclasses.dataclass, **options))


def test_nothing_is_compiled_for_a_few_instances():
    """The class takes whatever until then; all instances are alike, those from before, too."""
    kind = made_by(noun)
    few = [kind(1, unseen=2.0)]
    assert list(inspect.signature(kind.__init__).parameters) == ["self", "values", "named"]
    while "values" in inspect.signature(kind.__init__).parameters:
        few.append(kind(1, unseen=2.0))
        assert len(few) < 100
    assert list(inspect.signature(kind.__init__).parameters) == ["self", "one", "two", "three", "unseen"]
    assert {(type(each), each.two, each.fixed) for each in few} == {(kind, "b", 9)}
    assert few == [kind(1, unseen=2.0)] * len(few)


def test_a_wrong_call_is_refused_as_ever():
    """The first call may already be wrong; the next one works."""
    kind = made_by(noun)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'one'"):
        kind()
    assert kind(1).three == [1]


def test_a_noun_below_a_noun_has_its_fields_too():
    """In their order, with the defaults of the lower one; and it is none of the upper ones."""
    made = Longer(4, last=5)
    assert [each.name for each in dataclasses.fields(made)] == ["first", "rest", "last"]
    assert (made.double, made.rest, made.last) == (8, (), 5)
    assert (type(made), made == Pair(4, ())) == (Longer, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.first = 1


def test_a_class_below_a_noun_that_is_none_keeps_its_own_type():
    """Its instances are filled, and stay what they are."""

    class Named(Pair):
        """Has a __dict__."""

    made = Named(3)
    assert (type(made), made.first, made.rest) == (Named, 3, [])


@pytest.mark.parametrize("made", [Pair(1, [2]), Longer(1, (2,), 3)], ids=repr)
def test_copies_are_equal(made):
    """Shallow, deep, and pickled."""
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made and type(again) is type(made)


def test_the_patterns_of_match_see_its_fields():
    """``case Pair(first)`` matches by place."""
    match Pair(7):
        case Pair(first):
            assert first == 7
        case _:
            pytest.fail("no match")


def test_what_is_the_same_object_is_equal():
    """A field that is not equal to itself, too."""
    nan = float("nan")
    assert Pair(nan) == Pair(nan)
    assert Pair(nan) != Pair(float("nan"))


def test_threads_that_come_first_together_all_get_theirs():
    """Compiling may happen twice, and nobody meets a class that is half complete."""
    kind = made_by(noun)
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
    assert sorted(each.one for each in made) == list(range(8))
    assert {type(each) for each in made} == {kind}


def test_all_that_wait_can_be_completed_at_once():
    """Those who watch what is compiled while files are read see none of it then."""
    kind = made_by(noun)
    complete_all()
    assert list(inspect.signature(kind.__init__).parameters) == ["self", "one", "two", "three", "unseen"]


def test_every_noun_of_the_house_compiles():
    """With the names and the defaults of its fields, in their order."""
    package = Path(ckptdoctor.__file__).parent
    found = 0
    for path in sorted(package.rglob("*.py")):
        if "@noun" in path.read_text(encoding="utf-8"):
            module = import_module(".".join(("ckptdoctor", *path.relative_to(package).with_suffix("").parts)))
            kinds = [
                each for each in vars(module).values() if isinstance(each, type) and dataclasses.is_dataclass(each)
            ]
            complete_all()
            for kind in kinds:
                parameters = list(inspect.signature(kind.__init__).parameters)[1:]
                assert parameters == [each.name for each in dataclasses.fields(kind) if each.init], kind
                found += 1
    assert found > 400


def test_a_maker_makes_what_the_class_makes():
    """It takes fields in their order, by name or by default, and what it makes is as frozen."""
    make = maker(Pair)
    assert make(1) == Pair(1)
    assert make(first=1, rest=[2]) == Pair(1, [2])
    assert type(make(1)) is Pair
    with pytest.raises(dataclasses.FrozenInstanceError):
        make(1).first = 2
    with pytest.raises(TypeError):
        make()
    assert maker(Pair) is make
