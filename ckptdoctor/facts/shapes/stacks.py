"""Repeated blocks (``encoder.layer.0 … 11``), and the sizes of a model that they and its tables give away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ckptdoctor.facts.shapes.kinds import is_vocabulary
from ckptdoctor.facts.shapes.pairs import Shape, block
from ckptdoctor.noun import noun

Block = dict[str, Shape]


@noun
class Stack:
    """Blocks with the names 0, 1, … below ``stem``, all of which have at least one module's key in common."""

    stem: str
    blocks: tuple[Block, ...]

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return len(self.blocks)


@noun
class Profile:
    """The sizes of a model, where they can be told: ``depths`` of its stacks, in order; ``inner`` is the width of its
    feed-forward layers."""

    depths: tuple[int, ...]
    width: int | None
    inner: int | None
    vocabulary: int | None


def stacks(shapes: Mapping[str, Shape]) -> dict[str, Stack]:
    """The stacks among these keys by stem. ``features.0, features.3`` is none: those are layers, not blocks."""
    found: dict[str, dict[int, Block]] = {}
    for key, shape in shapes.items():
        parts = block(key)
        if parts is not None:
            stem, index, rest = parts
            found.setdefault(stem, {}).setdefault(index, {})[rest] = shape
    return {stem: Stack(stem, blocks) for stem, each in found.items() if (blocks := _in_a_row(each)) is not None}


def profile(shapes: Mapping[str, Shape], found: list[Stack]) -> Profile:
    """The sizes of a model with these keys and stacks."""
    widths = {_width(each) for each in found}
    width = widths.pop() if len(widths) == 1 else None
    rows = {shape[0] for key, shape in shapes.items() if len(shape) == 2 and shape[0] > 2 and is_vocabulary(key)}
    return Profile(
        depths=tuple([each.depth for each in found]),
        width=width,
        inner=_inner(found[0].blocks[0], width) if found and width is not None else None,
        vocabulary=rows.pop() if len(rows) == 1 else None,
    )


def _in_a_row(blocks: dict[int, Block]) -> tuple[Block, ...] | None:
    """The blocks in order, where they are numbered 0, 1, … and alike."""
    if set(blocks) != set(range(len(blocks))):
        return None
    common = set(blocks[0])
    for each in blocks.values():
        common.intersection_update(each)
    return tuple([blocks[index] for index in range(len(blocks))]) if any("." in rest for rest in common) else None


def _width(stack: Stack) -> int | None:
    """The size that most vectors of every block have: that of the norms and of most biases."""
    usual = set()
    for each in stack.blocks:
        sizes = Counter(shape[0] for shape in each.values() if len(shape) == 1)
        usual.add(sizes.most_common(1)[0][0] if sizes else None)
    return usual.pop() if len(usual) == 1 else None


def _inner(first: Block, width: int) -> int | None:
    """The largest side of a matrix that takes the width in or gives it out, but for fused projections of it."""
    sides = [max(shape) for rest, shape in first.items() if len(shape) == 2 and width in shape and "attn" not in rest]
    return max(sides, default=None)
