"""S510: the checkpoint is of a larger or smaller model than the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.layer_names import is_head, is_position, is_vocabulary
from ckptdoctor.match.shapes.pairs import Pair, Shape, block, same_but_for_ones
from ckptdoctor.noun import noun

_SHARE = Fraction(3, 10)  # of the keys that both sides have: so many differ where the whole model does
_SAME = Fraction(9, 10)  # of the names of layers on either side: so many are on both
_MODULES = 3  # a head and a neighbour are not the whole model
_AGREEING = Fraction(6, 10)  # of the sides that differ: so many in one and the same proportion
_ONE_WAY = Fraction(8, 10)  # or, where blocks show that it is one family: so many larger, or so many smaller
_COUNTER = "num_batches_tracked"


@noun
class Sized:
    """One side: its sizes, and the well-known model that has them."""

    sizes: _Profile
    known: Architecture | None


@noun
class WrongSize:
    """Both sides, and what follows from their sizes: keys of other shapes, and keys of blocks that one side lacks.

    ``ratio`` is the proportion (here : there) in which most layers differ, where there is one.
    """

    here: Sized
    there: Sized
    ratio: Fraction | None
    mismatched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def wrong_size(comparison: Comparison, pairs: list[Pair]) -> WrongSize | None:
    """Return what shows that the two models are of one kind and of different sizes, or None where nothing does."""
    renamed = comparison.renamed
    if not (pairs or renamed.missing or renamed.unexpected) or not (renamed.fits or pairs):
        return None
    here = {key: tensor.shape for key, tensor in renamed.here.items()}
    there = {key: expected.shape for key, expected in comparison.reference.tensors.items()}
    ours, theirs = _stacks(here), _stacks(there)
    shared = [stem for stem in theirs if stem in ours and _alike(ours[stem], theirs[stem])]
    one, other = _sized(here, ours, shared), _sized(there, theirs, shared)
    bulk = [pair for pair in pairs if _plain(pair)]
    ratio = _ratio(bulk)
    if (
        _named_apart(one, other)
        or _resized(comparison, bulk, ratio, one.sizes != other.sizes and bool(shared))
        or _deeper(comparison, [(ours[stem], theirs[stem]) for stem in shared])
    ):
        return WrongSize(
            one,
            other,
            ratio,
            tuple([pair.key for pair in pairs]),
            _inside(renamed.missing, shared, one, other),
            _inside(renamed.unexpected, shared, one, other),
        )
    return None


def _sized(shapes: Mapping[str, Shape], found: Mapping[str, _Stack], shared: list[str]) -> Sized:
    chosen = [found[stem] for stem in shared]
    sizes = _profile(shapes, chosen)
    return Sized(sizes, architecture(shapes, chosen, sizes))


def _alike(one: _Stack, other: _Stack) -> bool:
    """Return whether the first blocks have a key of a module in common."""
    return any("." in rest and rest in other.blocks[0] for rest in one.blocks[0])


def _named_apart(one: Sized, other: Sized) -> bool:
    """Return whether both sides are well-known models that differ in size alone."""
    return (
        one.known is not None
        and other.known is not None
        and one.known.family == other.known.family
        and one.known != other.known
    )


def _plain(pair: Pair) -> bool:
    """Return whether nothing narrower than the model's size would explain the pair."""
    if len(pair.here) != len(pair.there) or pair.reversed or same_but_for_ones(pair):
        return False
    change = pair.change
    if change is None:
        return True
    rows_only = change[0] == 0 and (is_head(pair.key) or is_vocabulary(pair.key))
    return not rows_only and not is_position(pair.key)


def _proportions(bulk: Iterable[Pair]) -> Counter[Fraction]:
    """Return how often each proportion occurs among the sides that differ: inputs and outputs, not kernels."""
    sides = [side for pair in bulk for side in list(zip(pair.here, pair.there, strict=True))[:2]]
    found: Counter[Fraction] = Counter()
    for (a, b), times in Counter(sides).items():  # few are different, and fractions take their time
        if a != b and a > 0 and b > 0:
            found[Fraction(a, b)] += times
    return found


def _ratio(bulk: list[Pair]) -> Fraction | None:
    """Return the proportion that most sides have."""
    found = _proportions(bulk)
    if not found:
        return None
    [(usual, times)] = found.most_common(1)
    return usual if times >= _AGREEING * sum(found.values()) else None


def _resized(comparison: Comparison, bulk: list[Pair], ratio: Fraction | None, blocks_differ: bool) -> bool:
    """Return whether a large part of the layers differs, in one proportion, or in one direction as the blocks do."""
    renamed = comparison.renamed
    shared = len(renamed.fits) + len(renamed.mismatched)
    if len(bulk) <= _SHARE * shared or len({pair.module for pair in bulk}) < _MODULES:
        return False
    if not _same_names(renamed.here, comparison.reference.tensors):
        return False
    found = _proportions(bulk)
    total = sum(found.values())
    larger = sum([times for each, times in found.items() if each > 1])
    one_way = max(larger, total - larger) >= _ONE_WAY * total > 0
    return ratio is not None or (blocks_differ and one_way)


def _same_names(here: Iterable[str], there: Iterable[str]) -> bool:
    """Return whether both sides have nearly the same layers, however often each is repeated.

    Else it is another model.
    """
    ours, theirs = ({_anywhere(key) for key in keys} for keys in (here, there))
    return len(ours & theirs) >= _SAME * len(ours | theirs)


def _anywhere(key: str) -> str:
    """Return the key without the index of its block."""
    parts = block(key)
    return key if parts is None else f"{parts[0]}.*.{parts[2]}"


def _deeper(comparison: Comparison, shared: list[tuple[_Stack, _Stack]]) -> bool:
    """Return whether one side has nothing more than the other but further blocks of the same form."""
    renamed = comparison.renamed
    apart = [key for key in (*renamed.missing, *renamed.unexpected) if not key.endswith(_COUNTER)]
    if renamed.mismatched or not apart or (renamed.missing and renamed.unexpected):
        return False
    if not any(min(ours.depth, theirs.depth) >= 2 for ours, theirs in shared):
        return False
    extra: set[str] = set()
    for ours, theirs in shared:
        long, short = (ours, theirs) if ours.depth > theirs.depth else (theirs, ours)
        known: dict[str, set[Shape]] = {}
        for each in short.blocks:
            for rest, shape in each.items():
                known.setdefault(rest, set()).add(shape)
        for index in range(short.depth, long.depth):
            if any(shape not in known.get(rest, ()) for rest, shape in long.blocks[index].items()):
                return False
            extra.update(
                [f"{long.stem}.{index}.{rest}" if long.stem else f"{index}.{rest}" for rest in long.blocks[index]]
            )
    return all(key in extra for key in apart)


def _inside(keys: Iterable[str], shared: list[str], one: Sized, other: Sized) -> tuple[str, ...]:
    """Return the keys that are in the stacks, or all of a VGG, whose layers are numbered one after another."""
    if one.known is not None and other.known is not None and one.known.family == other.known.family == "VGG":
        return tuple([key for key in keys if key.startswith("features.")])
    stems = set(shared)
    return tuple([key for key in keys if (parts := block(key)) is not None and parts[0] in stems])


# ---- well-known models by the sizes that their weights give away: facts from their published configurations


# blocks in the four stages of torchvision's ResNets → the name with basic blocks, and with bottlenecks
_RESNETS = {
    (2, 2, 2, 2): ("resnet18", None),
    (3, 4, 6, 3): ("resnet34", "resnet50"),
    (3, 4, 23, 3): (None, "resnet101"),
    (3, 8, 36, 3): (None, "resnet152"),
}
# what the first block of a family has → (depth, width) → name
_BY_WIDTH: Mapping[str, Mapping[tuple[int, int], str]] = {
    "attention.self.query.weight": {
        (2, 128): "BERT tiny",
        (4, 512): "BERT small",
        (12, 768): "BERT base",
        (24, 1024): "BERT large",
    },
    "attention.q_lin.weight": {(6, 768): "DistilBERT"},
    "attn.c_attn.weight": {
        (6, 768): "DistilGPT-2",
        (12, 768): "GPT-2",
        (24, 1024): "GPT-2 medium",
        (36, 1280): "GPT-2 large",
        (48, 1600): "GPT-2 XL",
    },
    "layer.0.SelfAttention.q.weight": {(6, 512): "T5 small", (12, 768): "T5 base", (24, 1024): "T5 large"},
    "attn.qkv.weight": {
        (12, 192): "ViT-Ti",
        (12, 384): "ViT-S",
        (12, 768): "ViT-B",
        (24, 1024): "ViT-L",
        (32, 1280): "ViT-H",
    },
}
# (depth, width, width of the feed-forward layers) of decoders with gated feed-forward layers
_GATED = {
    (16, 2048, 8192): "Llama 3.2 1B",
    (28, 3072, 8192): "Llama 3.2 3B",
    (22, 2048, 5632): "TinyLlama 1.1B",
    (32, 4096, 11008): "Llama 7B",
    (32, 4096, 14336): "Llama 3 8B or Mistral 7B",
    (40, 5120, 13824): "Llama 13B",
    (60, 6656, 17920): "Llama 30B",
    (80, 8192, 22016): "Llama 65B",
    (80, 8192, 28672): "Llama 70B",
    (126, 16384, 53248): "Llama 3.1 405B",
    (24, 896, 4864): "Qwen2.5 0.5B",
    (28, 1536, 8960): "Qwen2.5 1.5B",
    (36, 2048, 11008): "Qwen2.5 3B",
    (28, 3584, 18944): "Qwen2.5 7B",
    (64, 5120, 27648): "Qwen2.5 32B",
}
_GATES = ("mlp.gate_proj.weight", "feed_forward.w1.weight")
_VGGS = {8: "vgg11", 10: "vgg13", 13: "vgg16", 16: "vgg19"}
_VGG_WIDTHS = {64, 128, 256, 512}


@noun
class Architecture:
    """A well-known model: its ``family`` (models that differ in size alone), and its name."""

    family: str
    name: str


def architecture(shapes: Mapping[str, Shape], found: Iterable[_Stack], sizes: _Profile) -> Architecture | None:
    """Return which well-known model has these keys, stacks and sizes, or None where none has."""
    by_stem = {each.stem.rpartition(".")[2]: each for each in found}
    return _resnet(by_stem) or _transformer(by_stem, sizes) or _vgg(shapes)


def _resnet(by_stem: Mapping[str, _Stack]) -> Architecture | None:
    stages = [by_stem.get(f"layer{number}") for number in (1, 2, 3, 4)]
    depths = tuple([stage.depth for stage in stages if stage is not None])
    if depths not in _RESNETS or stages[0] is None:
        return None
    first = stages[0].blocks[0]
    basic, bottleneck = _RESNETS[depths]
    if first.get("conv2.weight") != (64, 64, 3, 3):  # wide and grouped ones have names of their own
        return None
    name = bottleneck if "conv3.weight" in first else basic
    return Architecture("ResNet", name) if name is not None else None


def _transformer(by_stem: Mapping[str, _Stack], sizes: _Profile) -> Architecture | None:
    depths = set(sizes.depths)
    if not by_stem or len(depths) != 1 or sizes.width is None:
        return None
    depth, first = depths.pop(), next(iter(by_stem.values())).blocks[0]
    if any(gate in first for gate in _GATES):
        name = _GATED.get((depth, sizes.width, sizes.inner or 0))
        return Architecture("gated decoder", name) if name is not None else None
    for marker, names in _BY_WIDTH.items():
        name = names.get((depth, sizes.width)) if marker in first else None
        if name is not None:
            return Architecture(marker, name)
    return None


def _vgg(shapes: Mapping[str, Shape]) -> Architecture | None:
    features = [shape for key, shape in shapes.items() if key.startswith("features.") and len(shape) == 4]
    if {shape[0] for shape in features} != _VGG_WIDTHS or {shape[2:] for shape in features} != {(3, 3)}:
        return None
    name = _VGGS.get(len(features)) if "classifier.6.weight" in shapes else None
    return Architecture("VGG", name) if name is not None else None


# Repeated blocks (``encoder.layer.0 … 11``), and the sizes of a model that they and its tables give away

_Block = dict[str, Shape]


@noun
class _Stack:
    """Blocks with the names 0, 1, … below ``stem``, all of which have at least one module's key in common."""

    stem: str
    blocks: tuple[_Block, ...]

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return len(self.blocks)


@noun
class _Profile:
    """The sizes of a model, where they can be told: ``depths`` of its stacks, in order; ``inner`` is the width of its
    feed-forward layers."""

    depths: tuple[int, ...]
    width: int | None
    inner: int | None
    vocabulary: int | None


def _stacks(shapes: Mapping[str, Shape]) -> dict[str, _Stack]:
    """Return the stacks among these keys by stem. ``features.0, features.3`` is none: those are layers, not blocks."""
    found: dict[str, dict[int, _Block]] = {}
    for key, shape in shapes.items():
        parts = block(key)
        if parts is not None:
            stem, index, rest = parts
            found.setdefault(stem, {}).setdefault(index, {})[rest] = shape
    return {stem: _Stack(stem, blocks) for stem, each in found.items() if (blocks := _in_a_row(each)) is not None}


def _profile(shapes: Mapping[str, Shape], found: list[_Stack]) -> _Profile:
    """Return the sizes of a model with these keys and stacks."""
    widths = {_width(each) for each in found}
    width = widths.pop() if len(widths) == 1 else None
    rows = {shape[0] for key, shape in shapes.items() if len(shape) == 2 and shape[0] > 2 and is_vocabulary(key)}
    return _Profile(
        depths=tuple([each.depth for each in found]),
        width=width,
        inner=_inner(found[0].blocks[0], width) if found and width is not None else None,
        vocabulary=rows.pop() if len(rows) == 1 else None,
    )


def _in_a_row(blocks: dict[int, _Block]) -> tuple[_Block, ...] | None:
    """Return the blocks in order, where they are numbered 0, 1, … and alike."""
    if set(blocks) != set(range(len(blocks))):
        return None
    common = set(blocks[0])
    for each in blocks.values():
        common.intersection_update(each)
    return tuple([blocks[index] for index in range(len(blocks))]) if any("." in rest for rest in common) else None


def _width(stack: _Stack) -> int | None:
    """Return the size that most vectors of every block have: that of the norms and of most biases."""
    usual = set()
    for each in stack.blocks:
        sizes = Counter(shape[0] for shape in each.values() if len(shape) == 1)
        usual.add(sizes.most_common(1)[0][0] if sizes else None)
    return usual.pop() if len(usual) == 1 else None


def _inner(first: _Block, width: int) -> int | None:
    """Return the largest side of a matrix with the width as inputs or outputs, except for fused projections of it."""
    sides = [max(shape) for rest, shape in first.items() if len(shape) == 2 and width in shape and "attn" not in rest]
    return max(sides, default=None)
