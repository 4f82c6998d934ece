"""A checkpoint did not load, and the error of ``load_state_dict`` tells which keys and shapes do not fit.

An error names the keys that are missing, the keys that are unexpected, and the shapes that differ. What fits it does
not name, nor the shape of a key that only one side has. A rule that can judge that much has a function for it, marked
with ``@judges``, next to the one that judges files. Where the evidence is the same, both ask the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from ckptdoctor.noun import noun
from ckptdoctor.wording import and_so_on, plural

if TYPE_CHECKING:
    from ckptdoctor.match.shapes.pairs import Pair
    from ckptdoctor.rules.messages import Way

_SHOWN = 3  # keys that a sentence names


@noun
class LoadError:
    """What a text says does not fit. Keys are in the text's order, each once.

    ``complete`` is False where a list is cut short or the message names only the first of more. ``model_class`` is
    the model's class as the text calls it, "" where it does not. ``running_stats``: the unexpected keys include
    running statistics that torch refuses by name. ``offset`` is where it begins in the squeezed text; ``warning`` says
    that the loader only warned. ``file`` is where the text was read from ("-": standard input), "" where that is not
    known. ``first_only``: torch before 0.4 named the first unexpected key and no other. ``transformers``: its
    ``from_pretrained`` loaded the weights.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[Pair, ...]
    complete: bool
    model_class: str = ""
    running_stats: tuple[str, ...] = ()
    warning: bool = False
    offset: int = 0
    file: str = ""
    first_only: bool = False
    transformers: bool = False


@noun(eq=False)
class IncompatibleKeys:
    """What no rule has explained yet of an error: its keys that are missing and unexpected, its shapes that differ."""

    error: LoadError
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[Pair, ...]

    @property
    def top(self) -> set[str]:
        """The unexpected keys without a dot: what a file has at its top that was loaded whole."""
        return {key for key in self.unexpected if "." not in key}

    def without(self, causes: Iterable[Cause]) -> IncompatibleKeys:
        """Return what these causes leave."""
        missing, unexpected, mismatched = set[str](), set[str](), set[str]()
        for cause in causes:
            missing.update(cause.missing)
            unexpected.update(cause.unexpected)
            mismatched.update(cause.mismatched)
        return IncompatibleKeys(
            self.error,
            tuple([key for key in self.missing if key not in missing]),
            tuple([key for key in self.unexpected if key not in unexpected]),
            tuple([pair for pair in self.mismatched if pair.key not in mismatched]),
        )


class Repair(Enum):
    """What ``fix --auto`` with the error as its target does about a cause."""

    SAFE = "renames"
    LOSS = "drops or computes something, with --unsafe-fixes"
    BY_HAND = "nothing; the cause names what does"
    NONE = "nothing, and nothing else does either"


@noun
class Cause:
    """What a rule makes of an error: what it means, what to do, and the keys that it explains.

    TARGET in a command stands for the way to name the model. Without ``ways`` the command follows from ``repair``, and
    from those of the other causes in the same error. ``code`` is "" where the cause is not a problem of the file, and
    None for that of the rule.
    """

    meaning: str
    repair: Repair
    ways: tuple[Way, ...] = ()
    missing: Collection[str] = ()
    unexpected: Collection[str] = ()
    mismatched: Collection[str] = ()
    code: str | None = None

    @property
    def size(self) -> int:
        """How many keys it explains."""
        return sum([len(set(keys)) for keys in (self.missing, self.unexpected, self.mismatched)])


class Turn(IntEnum):
    """When a rule is asked. What it explains is taken off the rest, so what says most of a file comes first."""

    FILE = 0
    """The file does not hold the weights of this model: an optimizer, a training checkpoint, an adapter."""

    WRAPPER = 1
    """Every key has what a wrapper puts there."""

    FORM = 2
    """Weights are kept in parts on one side."""

    PREFIX = 3
    """Keys were cut, or begin with something else."""

    FUSED = 4
    """Layers are one tensor on one side, and several on the other."""

    NAME = 5
    """Parts have other names."""

    LEFTOVER = 6
    """Some keys are on one side only, and their names say why."""

    TIE = 7
    """Nothing is missing but one of two names of a tensor."""

    SHAPE = 8
    """Shapes differ in a way that one layer explains."""

    SIZE = 9
    """Shapes differ all over, or in the last layer."""

    REST = 10
    """Nothing else explains it."""


@noun
class Judge:
    """A way to ask a rule of an error. Of those at one turn the least ``general`` is asked first.

    Equals see the same keys, and the cause that explains most of it is told first.
    """

    turn: Turn
    ask: Callable[[IncompatibleKeys], Iterator[Cause]]
    general: int = 0


def judges(turn: Turn, general: int = 0) -> Callable[[Callable[[IncompatibleKeys], Iterator[Cause]]], Judge]:
    """Mark a function of a rule's module as the one that judges what is left of an error at this turn."""

    def mark(ask: Callable[[IncompatibleKeys], Iterator[Cause]]) -> Judge:
        return Judge(turn, ask, general)

    return mark


def some_keys(keys: Collection[str]) -> str:
    """Return how many keys, and the first of them."""
    return f"{plural(len(keys), 'key')} ({and_so_on(keys, _SHOWN)})"


def both_shapes(pair: Pair) -> str:
    """Return a key with the shapes that it has."""
    sizes = [f"[{', '.join(map(str, shape))}]" for shape in (pair.here, pair.there)]
    return f"{pair.key}: {sizes[0]} in the file, {sizes[1]} in the model"
