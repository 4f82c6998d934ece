"""The checkpoint belongs to a larger or smaller model of the target's family.

Meaning
    Names agree but sizes do not, throughout the model: a ResNet-50 for a ResNet-18, BERT large for BERT base, 7 billion
    parameters for 13.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too. If only the depth differs, ``strict=False`` silently loads a
    part of the model.

Symptoms
    size mismatch for encoder.layer.0.attention.self.query.weight: copying a param with shape torch.Size([1024, 1024])
    from checkpoint, the shape in current model is torch.Size([768, 768]).

Detection
    Only with a reference, in one of three ways. Both have the same layers, except for how often they are repeated, and
    more than 30 % of the keys that both have differ, in three modules or more; most dimensions by one ratio, or in one
    direction, and the repeated blocks differ too. Or only the number of repeated blocks differs, and the additional
    blocks are just like the others. Or both are well-known models of one family (ResNet, VGG, BERT, GPT-2, T5, ViT,
    Llama and its relatives), recognised by depth and width.

Repair
    None: build the model in the checkpoint's size, or use the checkpoint of the model's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.pairs import Pair, block
from ckptdoctor.match.shapes.size import Sized, WrongSize
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import key_places, mismatch_lines
from ckptdoctor.rules.messages import Way
from ckptdoctor.wording import span


def _encoder(depth: int, width: int) -> dict[str, object]:
    found: dict[str, object] = {"embeddings.word_embeddings.weight": T((11, width))}
    for index in range(depth):
        for name, shape in (("query", (width, width)), ("output", (width, 2 * width)), ("input", (2 * width, width))):
            found[f"encoder.layer.{index}.{name}.weight"] = T(shape)
            found[f"encoder.layer.{index}.{name}.bias"] = T(shape[:1])
        found[f"encoder.layer.{index}.norm.weight"] = T((width,))
    return found


SICK = (
    Example("twice as wide and one block deeper", _encoder(3, 8), like=_encoder(2, 4)),
    Example("only two blocks deeper", _encoder(4, 4), like=_encoder(2, 4)),
)
HEALTHY = (
    Example("the same size", _encoder(2, 4), like=_encoder(2, 4)),
    Example(
        "another head",
        {**_encoder(2, 4), "classifier.weight": T((5, 4)), "classifier.bias": T((5,))},
        like={**_encoder(2, 4), "classifier.weight": T((2, 4)), "classifier.bias": T((2,))},
    ),
    Example(
        "another vocabulary", {**_encoder(2, 4), "embeddings.word_embeddings.weight": T((12, 4))}, like=_encoder(2, 4)
    ),
    Example(
        "another model with a few names in common",
        {"conv1.weight": T((6, 1, 5, 5)), "conv2.weight": T((16, 6, 5, 5)), "fc.weight": T((10, 400))},
        like={
            "conv1.weight": T((64, 3, 7, 7)),
            "bn1.weight": T((64,)),
            "layer1.0.conv1.weight": T((64, 64, 3, 3)),
            "layer1.0.bn1.weight": T((64,)),
            "layer1.1.conv1.weight": T((64, 64, 3, 3)),
            "layer1.1.bn1.weight": T((64,)),
            "fc.weight": T((1000, 512)),
        },
    ),
)


@rule("S510", "wrong-model-size", Severity.ERROR)
def wrong_model_size(comparison: Comparison) -> Iterator[Problem]:
    """Report two models of one kind and of different sizes."""
    found = shapes(comparison).size
    if found is None:
        return
    here, there = comparison.renamed.here, comparison.reference.tensors
    pairs = [Pair(key, here[key].shape, there[key].shape) for key in found.mismatched]
    lines = mismatch_lines(pairs)
    if not lines:
        lines = tuple(
            [
                say(keys)
                for say, keys in (
                    (wording.missing_line, found.missing),
                    (wording.unexpected_line, found.unexpected),
                )
                if keys
            ]
        )
    yield Problem(
        message=_message(found),
        cause=_cause(comparison, found),
        torch_says=lines,
        advice="Build the model in the checkpoint's size, or use the checkpoint of the model's size.",
        keys=key_places(comparison, (*found.mismatched, *found.unexpected, *found.missing)),
        location=Location(path=comparison.path),
    )


def _message(found: WrongSize) -> str:
    ours, theirs = _side(found.here, found.there), _side(found.there, found.here)
    if not ours or ours == theirs:
        text = (
            f"most layers are {_times(found.ratio)} as in the model" if found.ratio else "the sizes differ throughout"
        )
    else:
        text = f"the checkpoint has {ours}, the model {theirs}"
    known, wanted = found.here.known, found.there.known
    if known is not None and wanted is not None and known != wanted:
        text += f": {known.name} for {wanted.name}?"
    return text


def _side(side: Sized, other: Sized) -> str:
    """Return the sizes of one side in words, as far as they are known and differ."""
    sizes, others = side.sizes, other.sizes
    words = []
    if sizes.depths != others.depths or sizes.width != others.width:
        words.append(_blocks(sizes.depths))
        if sizes.width is not None and others.width not in (None, sizes.width):
            words.append(f"of width {sizes.width:,}")
    if sizes.inner is not None and others.inner is not None and sizes.inner != others.inner and not words:
        words.append(f"feed-forward layers of width {sizes.inner:,}")
    if sizes.vocabulary is not None and others.vocabulary not in (None, sizes.vocabulary):
        words.append(f"{'and ' if words else ''}{sizes.vocabulary:,} tokens")
    return " ".join(words)


def _blocks(depths: tuple[int, ...]) -> str:
    if len(depths) == 1:
        return wording.plural(depths[0], "block")
    return f"stages of {wording.listed([f'{depth:,}' for depth in depths])} blocks" if depths else ""


def _times(ratio: Fraction) -> str:
    """Return ``4 times as wide``, ``half as wide``."""
    if ratio == Fraction(1, 2):
        return "half as wide"
    number = f"{ratio.numerator:,}" if ratio.denominator == 1 else f"{ratio.numerator:,}/{ratio.denominator:,}"
    return f"{number} times as wide"


def _cause(comparison: Comparison, found: WrongSize) -> str:
    if not found.mismatched:
        number = len(found.missing) + len(found.unexpected)
        side = "the checkpoint" if found.unexpected else "the model"
        verb = "is" if number == 1 else "are"
        return f"Everything else fits: {wording.plural(number, 'key')} of additional blocks {verb} only in {side}."
    both = len(comparison.renamed.fits) + len(found.mismatched)
    differ = "differs" if len(found.mismatched) == 1 else "differ"
    text = f"{len(found.mismatched):,} of {wording.plural(both, 'key')} that both have {differ} in shape"
    known = found.here.known
    if known is not None and found.there.known is None:
        return f"{text}; by its sizes the checkpoint is {known.name}."
    return f"{text}."


_SIZES = Way("build the model as it was for the file; its sizes", "ckptdoctor show FILE")
_FEWEST = 2  # blocks that both have: one alone need not be one of several
_STACKS = 3  # stacks of blocks that a sentence names


@judges(Turn.SIZE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Sizes differ in a way that no single layer explains."""
    found = pairs_for(rest, "S510")
    if found:
        count = f"{len(found):,} tensors have other sizes" if len(found) > 1 else "a tensor has other sizes"
        more = ", …" * (len(found) > 1)
        meaning = (
            f"{count} ({both_shapes(found[0])}{more}): the model was built larger or smaller, or is a "
            "different one; no command changes it"
        )
        yield Cause(meaning, Repair.BY_HAND, (_SIZES,), mismatched=[pair.key for pair in found])


@judges(Turn.SIZE)
def of_further_blocks(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Nothing but further blocks is unexpected: those that have the numbers before them fit, or they would be named."""
    blocks: dict[str, dict[int, set[str]]] = {}
    for key in rest.unexpected:
        parts = block(key)
        if parts is None:
            return
        stem, index, name = parts
        blocks.setdefault(stem, {}).setdefault(index, set()).add(name)
    if not blocks or rest.missing or rest.mismatched or not rest.error.complete or rest.error.first_only:
        return
    if all(_are_further(each) for each in blocks.values()):
        named = wording.listed([f"{stem}.{span(min(found), max(found))}" for stem, found in blocks.items()], _STACKS)
        meaning = (
            f"the file has additional blocks ({named}), and everything else fits: the model was built with fewer "
            "of them"
        )
        yield Cause(meaning, Repair.BY_HAND, (_SIZES,), unexpected=rest.unexpected)


def _are_further(blocks: Mapping[int, set[str]]) -> bool:
    """Return whether these are whole blocks that follow two or more others, and are all alike."""
    first, last = min(blocks), max(blocks)
    names = blocks[first]
    alike = len(blocks) == last - first + 1 and all(each == names for each in blocks.values())
    return alike and first >= _FEWEST and any("." in name for name in names)
