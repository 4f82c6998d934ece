"""S505: a whole family of matrices is stored transposed."""

from __future__ import annotations

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.layer_names import is_position, is_vocabulary
from ckptdoctor.match.shapes.pairs import Pair, block
from ckptdoctor.noun import noun

_WEIGHTS = ("weight", "kernel", "w")
_MANY = 3  # so many reversed matrices are no coincidence, even without a bias


@noun
class TransposedFamily:
    """Matrices that were saved by one piece of code: those of one stack of blocks, or those outside of all stacks.

    ``reversed`` are those whose shapes show it. ``squares`` are those whose shapes cannot. ``others`` have the
    target's shape as they are: where there are some, the family is not of one kind, and nothing is said of its squares.
    ``proven``: each of the reversed has a bias that shows the same outputs on both sides.
    """

    name: str
    reversed: tuple[str, ...]
    squares: tuple[str, ...]
    others: tuple[str, ...]
    proven: bool = False


def transposed(comparison: Comparison, pairs: list[Pair]) -> tuple[TransposedFamily, ...]:
    """Return the families of which many matrices are reversed, or a few whose biases prove it."""
    turned: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.reversed and _is_linear(pair.key):
            turned.setdefault(_family(pair.key), []).append(pair)
    if not turned:
        return ()
    there = comparison.reference.tensors
    squares: dict[str, list[str]] = {name: [] for name in turned}
    others: dict[str, list[str]] = {name: [] for name in turned}
    for key in comparison.renamed.fits:
        shape = there[key].shape
        if len(shape) == 2 and _is_linear(key) and (name := _family(key)) in turned:
            (squares if shape[0] == shape[1] else others)[name].append(key)
    return tuple(
        [
            TransposedFamily(
                name,
                tuple([pair.key for pair in each]),
                tuple(squares[name]),
                tuple(others[name]),
                all(_bias(comparison, pair) for pair in each),
            )
            for name, each in turned.items()
            if _believable(comparison, each, bool(others[name]))
        ]
    )


def _family(key: str) -> str:
    parts = block(key)
    return parts[0] if parts is not None else ""


def _is_linear(key: str) -> bool:
    """Return whether the key is called like the matrix of a linear layer: not like an embedding."""
    return key.rpartition(".")[2] in _WEIGHTS and not is_vocabulary(key) and not is_position(key)


def _believable(comparison: Comparison, turned: list[Pair], mixed: bool) -> bool:
    """Return whether the reversed shapes are more than a coincidence.

    No bias may contradict it, and in doubt one must prove it.
    """
    biases = [_bias(comparison, pair) for pair in turned]
    if any(bias is False for bias in biases):
        return False
    return all(biases) if mixed else any(biases) or len(turned) >= _MANY


def _bias(comparison: Comparison, pair: Pair) -> bool | None:
    """Return whether the layer's bias shows the same outputs on both sides, or None without one."""
    key = f"{pair.module}.bias" if pair.module else "bias"
    here, there = comparison.renamed.here.get(key), comparison.reference.tensors.get(key)
    if here is None or there is None:
        return None
    return here.shape == there.shape and here.shape in (pair.there[:1], pair.there[1:])
