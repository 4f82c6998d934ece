"""Describes what is said when two checkpoints are compared: A is the first, B the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import inf, isfinite, nan, sqrt

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, Note, Role, Tensor
from ckptdoctor.checkpoint.checkpoint import doubled_keys, told_of, unread_files
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.noun import noun


class Verdict(str, Enum):
    """What comparing the values of one tensor gave, from the best to the worst."""

    EQUAL = "equal"  # bit for bit
    ROUNDED = "rounded"  # of another dtype, and exactly what converting gives
    CLOSE = "close"  # within the tolerances that were asked for
    CHANGED = "changed"  # other values
    OTHER_BYTES = "other bytes"  # of a kind whose values cannot be computed with, such as packed ones
    NOT_COMPARED = "not compared"  # the reason is told


@noun
class Numbers:
    """How far two runs of values are apart. Those of two parts of a tensor, or of two tensors, add up.

    ``changed`` counts values that differ, ``beyond`` those that differ by more than the tolerances allow, and
    ``odd`` those of which one alone is NaN. ``largest`` and ``total`` are the largest and the sum of all absolute
    differences; ``square``, ``square_a`` and ``square_b`` the sums of squares of the differences and of the values of
    either side, where all are finite. ``nan_a`` and ``nan_b`` count NaNs: those in equal places are not a difference.
    """

    elements: int = 0
    changed: int = 0
    beyond: int = 0
    odd: int = 0
    largest: float = 0.0
    total: float = 0.0
    square: float = 0.0
    square_a: float = 0.0
    square_b: float = 0.0
    nan_a: int = 0
    nan_b: int = 0
    rounded: bool = True

    def __add__(self, other: Numbers) -> Numbers:
        return Numbers(
            self.elements + other.elements,
            self.changed + other.changed,
            self.beyond + other.beyond,
            self.odd + other.odd,
            max(self.largest, other.largest),
            self.total + other.total,
            self.square + other.square,
            self.square_a + other.square_a,
            self.square_b + other.square_b,
            self.nan_a + other.nan_a,
            self.nan_b + other.nan_b,
            self.rounded and other.rounded,
        )

    @property
    def mean(self) -> float:
        """The mean absolute difference."""
        return self.total / self.elements if self.elements else 0.0

    @property
    def relative(self) -> float:
        """The norm of the difference by that of A; NaN where A is all zeros, infinite where a difference is."""
        if not isfinite(self.largest):
            return inf
        if self.square_a == 0.0:
            return 0.0 if self.square == 0.0 else nan
        return sqrt(self.square / self.square_a)

    @property
    def cosine(self) -> float:
        """The cosine of the angle between both; NaN where either is all zeros, or a difference infinite.

        Near 1 the difference tells it best.
        """
        if not isfinite(self.largest):
            return nan
        if self.square_a == 0.0 or self.square_b == 0.0:
            return nan
        inner = (self.square_a + self.square_b - self.square) / 2
        return max(-1.0, min(1.0, inner / (sqrt(self.square_a) * sqrt(self.square_b))))


@noun
class Values:
    """What comparing the values gave. ``numbers`` is None where nothing was computed; ``why`` says why."""

    verdict: Verdict
    numbers: Numbers | None = None
    why: str = ""


@noun
class Pair:
    """A tensor that both have. ``name`` and ``name_b`` are what it is called in each; ``weights``: a model's.

    ``sure`` is false where a renaming is a guess that names and shapes allow, but do not prove. ``by_content``:
    it was found because the values are the same. ``transposed``: the values of B are those of A with rows and columns
    exchanged, and ``values`` says how well they agree then.
    """

    name: str
    name_b: str
    a: Tensor
    b: Tensor
    weights: bool = True
    sure: bool = True
    by_content: bool = False
    values: Values | None = None
    transposed: bool = False

    @property
    def renamed(self) -> bool:
        """Whether it has another name."""
        return self.name != self.name_b

    @property
    def reshaped(self) -> bool:
        """Whether it has another shape."""
        return self.a.shape != self.b.shape

    @property
    def recast(self) -> bool:
        """Whether it has another dtype."""
        return self.a.dtype.name != self.b.dtype.name

    @property
    def retagged(self) -> bool:
        """Whether it would be loaded to another device."""
        return self.a.device != self.b.device

    @property
    def remade(self) -> bool:
        """Whether it is another kind of tensor: sparse instead of dense, or of another class."""
        return (self.a.layout, self.a.subclass) != (self.b.layout, self.b.subclass)

    @property
    def perhaps_transposed(self) -> bool:
        """Whether the shapes are those of a matrix and of the same one transposed, which only values can tell."""
        shape = self.a.shape
        return len(shape) == 2 and self.reshaped and 1 not in shape and self.b.shape == shape[::-1]

    @property
    def relaid(self) -> bool:
        """Whether the same elements have another order in memory, which changes nothing that is loaded."""
        one, other = self.a, self.b
        if one.stride == other.stride or one.shape != other.shape or not (_strided(one) and _strided(other)):
            return False
        plain = is_contiguous(one), is_contiguous(other)
        return plain[0] != plain[1] or (not plain[0] and _steps(one) != _steps(other))

    @property
    def changed(self) -> bool:
        """Whether its values are known to be others. Another shape, dtype or device has a word of its own."""
        return self.values is not None and self.values.verdict in (Verdict.CHANGED, Verdict.OTHER_BYTES)

    @property
    def settled(self) -> bool:
        """Whether its values are known to be the same, as far as dtypes and tolerances allow."""
        good = (Verdict.EQUAL, Verdict.ROUNDED, Verdict.CLOSE)
        return self.values is not None and self.values.verdict in good

    @property
    def alike(self) -> bool:
        """Whether nothing but its name and its device tag could be told apart, as far as was looked."""
        told = self.reshaped or self.recast or self.remade or self.transposed
        return not told and (self.values is None or self.settled)


def _strided(tensor: Tensor) -> bool:
    plain = tensor.layout == "strided" and not (tensor.parts or tensor.chunks)
    return plain and len(tensor.stride) == len(tensor.shape)


def _steps(tensor: Tensor) -> list[int]:
    """Return the strides that matter: an index that is always 0 takes no step."""
    return [step for step, size in zip(tensor.stride, tensor.shape, strict=True) if size != 1]


@noun
class Single:
    """A tensor that only one of them has. ``lost``: the other's index has it, in a file that is missing or damaged."""

    name: str
    tensor: Tensor
    weights: bool = True
    lost: bool = False


@noun
class Tie:
    """Tensors of one side ("a" or "b") that are one and the same: ``names``, and ``missing`` ones that the other lacks.

    ``apart``: the other side has several tensors under these names. That ``counts`` as a difference where its container
    could hold them as one.
    """

    side: str
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    apart: bool = True
    counts: bool = True


@noun
class Absent:
    """Stands for a value that is not there, which None is not."""


ABSENT = Absent()


@noun
class Other:
    """A value that differs and is not a tensor, such as an epoch. ``ABSENT`` stands for one that is not there."""

    name: str
    a: Node | Absent
    b: Node | Absent


@noun
class Side:
    """One of the two: ``path`` as it is shown, what it holds, and the part of it that was compared."""

    path: str
    checkpoint: Checkpoint
    root: KeyPath = ()

    @property
    def unread(self) -> tuple[Note, ...]:
        """The files of it that are missing or damaged: what belongs in them was not compared."""
        return unread_files(self.checkpoint, self.root)


@noun
class Section:
    """Two state dicts that were taken for the same."""

    role: Role
    a: KeyPath
    b: KeyPath


@noun
class Rank:
    """The difference of one matrix of ``shape`` has rank ``rank``, except for ``rest`` of its squared norm."""

    name: str
    shape: tuple[int, int]
    rank: int
    rest: float


@noun
class Ranks:
    """The ranks of the differences of the largest changed matrices.

    ``low`` are those with a low one, ``full`` the names of those without. ``directions`` is how many directions the
    sketch had: no rank above it can be told.
    """

    low: tuple[Rank, ...]
    full: tuple[str, ...]
    directions: int


@noun
class Difference:
    """How two checkpoints differ.

    ``steps`` are the titles of the renamings that lead from names of A to those of B. ``compared``: the values were
    compared, with tolerances ``rtol`` and ``atol``. ``summary`` is one sentence, without a full stop. ``interrupted``
    is how far that came where Ctrl-C ended it: some pairs have ``values`` then, and nothing is known of the others.
    """

    a: Side
    b: Side
    pairs: tuple[Pair, ...] = ()
    removed: tuple[Single, ...] = ()
    added: tuple[Single, ...] = ()
    ties: tuple[Tie, ...] = ()
    others: tuple[Other, ...] = ()
    sections: tuple[Section, ...] = ()
    steps: tuple[str, ...] = ()
    compared: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    ranks: Ranks | None = None
    summary: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    interrupted: Progress | None = None

    @property
    def unseen(self) -> tuple[str, ...]:
        """What of either was not looked at: the notes, missing or damaged files, and further values of a key."""
        sides = [("A", self.a), ("B", self.b)]
        return (
            *self.notes,
            *[f"{name}: {told_of(side.checkpoint, side.unread)}" for name, side in sides if side.unread],
            *[f"{name}: {note.message}" for name, side in sides for note in doubled_keys(side.checkpoint)],
        )

    @property
    def same(self) -> bool:
        """Whether nothing differs, as far as was asked for; never where that was interrupted."""
        other = any(pair.renamed or pair.retagged or not pair.alike for pair in self.pairs)
        other = other or any(tie.counts for tie in self.ties)
        return not (self.interrupted or other or self.moved or self.removed or self.added or self.others)

    @property
    def moved(self) -> tuple[Section, ...]:
        """The state dicts that are elsewhere in B."""
        skip = len(self.a.root), len(self.b.root)
        return tuple([each for each in self.sections if each.a[skip[0] :] != each.b[skip[1] :]])


# Hears what is known so far, and the numbers of the pairs that are new in it
SoFar = Callable[[Difference, Sequence[int]], None]
