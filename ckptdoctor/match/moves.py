"""Describes one step of renaming towards the names of a target, and does the arithmetic of such steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.match.meanings import another_quantity, is_called_part, is_part
from ckptdoctor.noun import noun

# what quanto calls the parts of a weight, and what is beside it; HQQ calls its codes W_q
_CODES = frozenset({"_data", "_scale", "_shift", "W_q"})
_AROUND = frozenset({"input_scale", "output_scale"})

Here = Mapping[str, Tensor]
Wanted = Mapping[str, Expected]


@noun(eq=False)
class Move:
    """What the rule ``code`` does to keys: ``names`` are those that change, under the names that earlier steps gave.

    ``pattern`` is the change in a few words for people, such as ``gamma → weight``. ``sure`` is false where names and
    shapes would allow another assignment, too. ``kin`` is false where an old name and its new one differ in more than
    spelling, so that the only evidence is the number of keys that fit.
    """

    code: str
    pattern: str
    names: Mapping[str, str]
    sure: bool = True
    kin: bool = True

    def change(self, key: str) -> str:
        """Return the key's new name."""
        return self.names.get(key, key)


@noun
class Gap:
    """What does not fit yet: keys here that nobody wants, or not in this shape; keys wanted that are not here."""

    here: Here
    wanted: Wanted
    loose: tuple[str, ...]
    """Keys here without a counterpart of their name and shape, in file order."""
    open: tuple[str, ...]
    """Keys wanted without a counterpart of their name and shape, in the target's order."""


def gap(here: Here, wanted: Wanted) -> Gap:
    """Return the gap between what is here and what is wanted."""
    loose = tuple([key for key, tensor in here.items() if not _stays(key, tensor, wanted)])
    there = tuple([key for key in wanted if key not in here or not _stays(key, here[key], wanted)])
    return Gap(here, wanted, loose, there)


def move(code: str, pattern: str, gap: Gap, pairs: Iterable[tuple[str, str]], sure: bool = True) -> Move | None:
    """Return the move that gives these new names, of which the senseless ones are left out.

    It is None when nothing is left.

    A pair counts when the new name is wanted in the shape that the tensor has, and nothing that fits is in its place.
    A name that two keys would get goes to neither. What a norm computes a weight of never becomes the weight itself,
    and nothing becomes another quantity.
    """
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    twice: set[str] = set()
    for old, new in pairs:
        expected = gap.wanted.get(new)
        if old == new or expected is None or gap.here[old].shape != expected.shape or old in names:
            continue
        if is_part(old, gap.here) and not is_called_part(new):
            continue
        if _is_code(old, gap.here) and old.rpartition(".")[2] != new.rpartition(".")[2]:
            continue
        if another_quantity(old, new, expected.shape):
            continue
        if taken.setdefault(new, old) != old:
            twice.add(new)
        names[old] = new
    names = {old: new for old, new in names.items() if new not in twice}
    names = _without_collisions(names, gap.here)
    return Move(code, pattern, names, sure) if names else None


def _is_code(key: str, here: Here) -> bool:
    """Return whether a key is a part of a quantised weight of quanto or HQQ, which keeps what it is called."""
    module, _, leaf = key.rpartition(".")
    return leaf in _CODES or f"{module}.W_q" in here or (leaf in _AROUND and f"{module}.weight._scale" in here)


def joined(first: Move, second: Move) -> Move:
    """Return two steps of one kind as one."""
    names = {old: second.change(new) for old, new in first.names.items()}
    between = set(first.names.values())
    names |= {old: new for old, new in second.names.items() if old not in between}
    pattern = f"{first.pattern}, {second.pattern}"
    return Move(first.code, pattern, names, first.sure and second.sure, first.kin and second.kin)


def renamed(here: Here, step: Move) -> dict[str, Tensor]:
    """Return the tensors under their new names."""
    return {step.change(key): tensor for key, tensor in here.items()}


def _without_collisions(names: dict[str, str], here: Here) -> dict[str, str]:
    """Leave out the pairs whose new name is that of a key that stays; that may make another one stay."""
    while True:
        stay = {new for new in names.values() if new in here and new not in names}
        if not stay:
            return names
        names = {old: new for old, new in names.items() if new not in stay}


def _stays(key: str, tensor: Tensor, wanted: Wanted) -> bool:
    """Return whether the key has the name that it should have.

    Its shape is right, or differs only in the order of elements.

    A transposed matrix, or one with dimensions of size 1 too many, is still the tensor that its name says.
    """
    expected = wanted.get(key)
    if expected is None:
        return False
    ours, theirs = tensor.shape, expected.shape
    return ours == theirs or ours == theirs[::-1] or [n for n in ours if n != 1] == [n for n in theirs if n != 1]
