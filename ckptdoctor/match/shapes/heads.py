"""S501 and S502: the layers whose rows are classes, or the tokens of a vocabulary."""

from __future__ import annotations

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.layer_names import is_head, is_vocabulary
from ckptdoctor.match.shapes.pairs import Pair, model_order
from ckptdoctor.noun import noun


@noun
class Head:
    """A terminal layer with other outputs: its module, its keys of other shapes, and the outputs on both sides."""

    module: str
    pairs: tuple[Pair, ...]
    here: int
    there: int


@noun
class Vocabulary:
    """Tables with a row for each token: embeddings, and heads that have just as many outputs."""

    pairs: tuple[Pair, ...]
    here: int
    there: int


def vocabulary(pairs: list[Pair]) -> Vocabulary | None:
    """Return the tables of tokens, where all embeddings of tokens agree about both sizes, or None where they do not."""
    rows = {change[1:] for pair in pairs if (change := _embedding(pair)) is not None}
    if len(rows) != 1:
        return None
    ours, theirs = rows.pop()
    tables = [pair for pair in pairs if (change := pair.change) is not None and change[1:] == (ours, theirs)]
    tables = [pair for pair in tables if pair.here[0] == ours or pair.leaf.endswith("bias")]
    tables.sort(key=lambda pair: _embedding(pair) is None)
    return Vocabulary(tuple(tables), ours, theirs)


def heads(comparison: Comparison | None, pairs: list[Pair]) -> tuple[Head, ...]:
    """Return the layers that give the answers.

    They have other outputs, the same inputs, and nothing behind them that wants either.

    Terminal are layers that are called like heads, and those at the end of the model's own order, which an error does
    not tell (``comparison`` None).
    """
    by_module: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_module.setdefault(pair.module, []).append(pair)
    found = [head for module, each in by_module.items() if (head := _head(comparison, module, each)) is not None]
    last = _last(comparison, {head.module for head in found}) if comparison is not None else set()
    others = {pair.module for pair in pairs if len(pair.here) > 1}.difference([head.module for head in found])
    # a layer beside it that nothing explains may be one behind it
    terminal = [head for head in found if head.module in last or (is_head(head.pairs[0].key) and not others)]
    taken = {pair.key for head in terminal for pair in head.pairs}
    wanted = {change[1:] for pair in pairs if pair.key not in taken for change in _changes(pair)}
    return tuple([head for head in terminal if (head.here, head.there) not in wanted])


def _embedding(pair: Pair) -> tuple[int, int, int] | None:
    """Return the change of an embedding of tokens: its rows alone."""
    change = pair.change
    return change if len(pair.here) == 2 and change is not None and change[0] == 0 and is_vocabulary(pair.key) else None


def _head(comparison: Comparison | None, module: str, pairs: list[Pair]) -> Head | None:
    """Return the module as a head: all that differs is its rows, and its bias has as many as its weight."""
    changes = [pair.change for pair in pairs]
    rows = {change[1:] for change in changes if change is not None and change[0] == 0}
    if None in changes or len(rows) != 1 or any(change is not None and change[0] != 0 for change in changes):
        return None
    # a norm or a bias alone is no layer; but an error may name the bias and not the weight
    alone = comparison is None and all(pair.leaf == "bias" for pair in pairs)
    if not any(len(pair.here) >= 2 for pair in pairs) and not alone:
        return None
    bias = f"{module}.bias" if module else "bias"
    both = comparison is not None and bias in comparison.renamed.here and bias in comparison.reference.tensors
    if both and bias not in {p.key for p in pairs}:
        return None
    ours, theirs = rows.pop()
    return Head(module, _matrices_first(pairs), ours, theirs) if ours and theirs else None


def _matrices_first(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Return a layer's weight before its bias, wherever they are in the file."""
    return tuple(sorted(pairs, key=lambda pair: -len(pair.here)))


def _last(comparison: Comparison, candidates: set[str]) -> set[str]:
    """Return the candidates at the very end of the model, where the order of the keys is the model's."""
    there = comparison.reference.tensors
    found: set[str] = set()
    for key in reversed([key for key in model_order(comparison) if key in there]):
        module = key.rpartition(".")[0]
        if module in candidates:
            found.add(module)
        elif len(there[key].shape) >= 2:  # a layer that fits stands behind the rest
            break
    return found


def _changes(pair: Pair) -> list[tuple[int, int, int]]:
    """Return every side that differs; nothing where the ranks do."""
    if len(pair.here) != len(pair.there):
        return []
    return [(dim, a, b) for dim, (a, b) in enumerate(zip(pair.here, pair.there, strict=True)) if a != b]
