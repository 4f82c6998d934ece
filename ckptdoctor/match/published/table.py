"""Defines a published layout as data: the keys of one network in two code bases, and how their values differ."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.noun import noun

# what becomes of the elements from the first code base to the second; backwards from the second to the first
SAME = "same"  # as they are, but for dimensions of size 1
TURNED = "turned"  # a matrix is transposed
ROWS = "rows"  # one tensor is several, one after another along its first dimension
GROUPED = "grouped"  # the same of queries, keys and values, where several heads may share a key and a value
TURNED_ROWS = "permuted rows"  # a matrix of which the columns are several transposed ones, one after another
# rows of each head: (first half, second half) taken in turn become the first half and then the second one
QUERIES, KEYS = "queries", "keys"
STACKED = "stacked"  # an expert's tensors (numbered last) are slices; several of an expert follow along its rows
# (spatial sizes, inputs, outputs) becomes (outputs, inputs, spatial sizes); and (spatial sizes, channels, multiplier)
# becomes (channels × multiplier, 1, spatial sizes)
KERNEL, DEPTHWISE = "kernel", "depthwise"
# a GRU's kernel, transposed, and its two biases in one: the gates z, r, h become r, z, n
GATES, GATE_BIASES = "gates", "gate biases"

ROTARY = (QUERIES, KEYS)


@noun
class Row:
    """Tensors of one kind: their keys in the first code base and in the second, and what becomes of their elements.

    ``{}`` in a key stands for a number, which is the same on both sides; other numbers stand for themselves.
    """

    one: tuple[str, ...]
    other: tuple[str, ...]
    how: str = SAME


@noun
class Published:
    """A network in two code bases. ``source`` is the program that says so, with the version that was read.

    The key of the first row is one that every checkpoint of it has. ``left`` are keys of either that follow from sizes,
    and that neither asks of the other. ``tied`` are (key, owner) of the second code base where the first has one tensor
    for both. ``back``: the table is read from the second code base to the first, so that rows are put back.
    ``rest``: a key that is in no row stays as it is, where the target wants it so. ``shown``: names do not tell that
    matrices are turned, so that one of them must not be square.
    """

    one: str
    other: str
    source: str
    rows: tuple[Row, ...]
    left: tuple[str, ...] = ()
    tied: tuple[tuple[str, str], ...] = ()
    back: bool = False
    rest: bool = False
    shown: bool = False

    def backwards(self) -> Published:
        """Return the way from the second code base to the first."""
        rows = tuple([Row(row.other, row.one, row.how) for row in self.rows])
        back = not self.back
        return Published(self.other, self.one, self.source, rows, self.left, (), back, self.rest, self.shown)


def row(one: str | tuple[str, ...], other: str | tuple[str, ...], how: str = SAME) -> Row:
    """Return a row; a key alone is one."""
    return Row((one,) if isinstance(one, str) else one, (other,) if isinstance(other, str) else other, how)


def layer(one: str, other: str, leaves: Iterable[str] = ("weight", "bias"), how: str = SAME) -> tuple[Row, ...]:
    """Return a row for each tensor of a layer, which both call alike."""
    return tuple([row(f"{one}.{leaf}", f"{other}.{leaf}", how) for leaf in leaves])


def below(lead: str, rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the same rows with a prefix in the second code base."""
    return tuple([Row(each.one, tuple([lead + key for key in each.other]), each.how) for each in rows])
