"""The same network in the layout of another code base: names differ, and so does the order of values.

Meaning
    Llama of Meta, torchtune and transformers; Qwen2 and Phi-3 of torchtune and transformers, and Phi-3 as a Llama; CLIP
    of OpenAI or OpenCLIP and of transformers; OpenAI's Whisper and that of transformers; ViT and DeiT of timm, DINOv2,
    and those of transformers; the first ConvNeXt and timm's; GPT-2 of transformers, and with linear layers for queries,
    keys and values; layers of Keras or Flax and of torch; latent diffusion and diffusers; Megatron and GPT-2: both
    sides hold the same network, saved by code that names and arranges its parts differently.

Why it matters
    With renamed keys it would load without an error, and the model would produce nonsense: rows are permuted, or
    matrices are split and fused.

Symptoms
    Missing key(s) in state_dict: "model.layers.0.self_attn.q_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.attention.wq.weight", …

Detection
    Only with a reference: its keys have the names of one code base, and the checkpoint's keys those of another code
    base for the same network.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` where a published table (Llama, Qwen2, Phi-3, CLIP, Whisper, ViT,
    ConvNeXt, GPT-2, stacked experts) accounts for every key on both sides, and every shape is right afterwards: keys
    are renamed, and rows permuted, split, fused or transposed as the library's own converter does it. No value changes,
    and the reference confirms it. The permutation of rotary embeddings takes the number of heads: from ``--config`` or
    ``--model``, a ``config.json`` next to either file, Meta's ``params.json`` next to ``consolidated.00.pth``, or
    ``--heads N``. A ``kernel`` of Keras or Flax has its outputs last, and becomes a ``weight`` with its dimensions in
    torch's order, also where all of them are equal; an LSTM of Keras gets a second bias of zeros, which torch adds, and
    the gates of a GRU are put in torch's order; what ``Bidirectional`` calls forward and backward becomes the two
    directions of one layer. There is no repair where names do not show how values are arranged: transposed
    convolutions, which Flax stores rotated by 180°, and linear layers that may follow a flattened image, whose inputs
    come in another order; nor for a GRU with ``reset_after=False``, or without the bias that would show it, since
    torch's GRU computes something else. Where renaming is not enough, the converter of that code base is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from ckptdoctor.checkpoint import KeyPath, Tensor
from ckptdoctor.edits import Drop, Edit, Fill, Fix, Fuse, Rename, Reshape, Safety, Split, Tie, Transpose
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.published.families import family_of, layout
from ckptdoctor.match.published.matching import LayoutConversion, Piece
from ckptdoctor.match.published.table import (
    DEPTHWISE,
    GATE_BIASES,
    GATES,
    GROUPED,
    KERNEL,
    QUERIES,
    ROTARY,
    ROWS,
    STACKED,
    TURNED,
    TURNED_ROWS,
)
from ckptdoctor.match.shapes.projections import HEAD_SIZES
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.messages import AUTO, COMPARE, Way, unknown_key
from ckptdoctor.wording import plural

_META = {
    "tok_embeddings.weight": T((9, 4)),
    "layers.0.attention.wq.weight": T((4, 4)),
    "layers.0.feed_forward.w1.weight": T((6, 4)),
}
_HF = {
    "model.embed_tokens.weight": T((9, 4)),
    "model.layers.0.self_attn.q_proj.weight": T((4, 4)),
    "model.layers.0.mlp.gate_proj.weight": T((6, 4)),
}
_CLIP = {
    "token_embedding.weight": T((9, 4)),
    "text_projection": T((4, 4)),
    "transformer.resblocks.0.attn.in_proj_weight": T((12, 4)),
    "transformer.resblocks.0.ln_1.weight": T((4,)),
    "visual.proj": T((4, 4)),
}
_HF_CLIP: dict[str, object] = {
    "text_model.embeddings.token_embedding.weight": T((9, 4)),
    **{f"text_model.encoder.layers.0.self_attn.{part}_proj.weight": T((4, 4)) for part in "qkv"},
    "text_model.encoder.layers.0.layer_norm1.weight": T((4,)),
    "text_projection.weight": T((4, 4)),
    "visual_projection.weight": T((4, 4)),
}
_KERAS = {
    "conv.kernel": T((3, 3, 4, 4)),
    "conv.bias": T((4,)),
    "norm.gamma": T((4,)),
    "norm.beta": T((4,)),
    "norm.moving_mean": T((4,)),
    "norm.moving_variance": T((4,)),
    "fc.kernel": T((4, 4)),
}
_TORCH = {
    "conv.weight": T((4, 4, 3, 3)),
    "conv.bias": T((4,)),
    "norm.weight": T((4,)),
    "norm.bias": T((4,)),
    "norm.running_mean": T((4,)),
    "norm.running_var": T((4,)),
    "fc.weight": T((4, 4)),
}
MESSAGES = (
    *unknown_key(
        r"[\w.]{0,100}?layers\.\d{1,4}\.(?:attention\.w[qkvo]|feed_forward\.w[123]|attention_norm|ffn_norm)\.weight",
        "the file has the names of Meta's and Mistral's own programs ({key}), like consolidated.safetensors, "
        "and the program expects those of transformers: if the folder has both, leave out the consolidated "
        "files",
        also=("C115", "R002"),
        general=2,
    ),
)
SICK = (
    Example("Meta's file for transformers' model", _META, like=_HF),
    Example("and the reverse", _HF, like=_META),
    Example("OpenAI's CLIP for transformers' model", _CLIP, like=_HF_CLIP),
    Example("transformers' CLIP for OpenAI's code", _HF_CLIP, like=_CLIP),
    Example("kernels of Keras", _KERAS, like=_TORCH),
)
HEALTHY = (
    Example("one code base", _HF, like=_HF),
    Example("a completely different network", {"conv.weight": T((3, 3))}, like=_HF),
)


@rule("N426", "known-layout-family", Severity.ERROR)
def known_layout_family(comparison: Comparison) -> Iterator[Problem]:
    """Report checkpoint and reference in two layouts of one network."""
    here, wanted = comparison.plain.here, comparison.reference.tensors
    if not comparison.plain.missing or not comparison.plain.unexpected:
        return
    found = comparison.conversion
    if found is not None:
        one, other = found.way.one, found.way.other
        said = lacking(comparison)
        advice = f"{said[:1].upper()}{said[1:]}{'. No command can finish.' if found.never else ''}"
        cause = f"The code bases name and arrange the same tensors differently, as published in {found.way.source}."
    else:
        ours, theirs = layout(here), layout(wanted)
        family = family_of(ours, theirs)
        if family is None or ours is None or theirs is None:
            return
        one, other = ours.name, theirs.name
        cause, advice = f"Renaming is not enough: {family.why}.", f"Convert it with {family.converter}."
    yield Problem(
        message=_layouts(one, comparison.reference.source, other),
        cause=cause,
        torch_says=(
            wording.missing_line(comparison.plain.missing),
            wording.unexpected_line(comparison.plain.unexpected),
        ),
        advice=advice,
        keys=tuple([here[key].path for key in comparison.plain.unexpected]),
        location=Location(path=comparison.path),
        fix=_fix(comparison),
        commands=commands_with_heads(comparison),
    )


def _layouts(ours: str, target: str, theirs: str) -> str:
    return f"the checkpoint has the layout of {ours}, {target} that of {theirs}"


def _fix(comparison: Comparison) -> Fix | None:
    edits = layout_edits(comparison)
    if comparison.conversion is None or not edits:
        return None
    return Fix(conversion_title(comparison.conversion), edits, Safety.CONFIRMED, auto_option(comparison))


@judges(Turn.PREFIX, general=2)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What is missing has the names of one code base, and what is unexpected those of another."""
    ours, theirs = layout(rest.unexpected), layout(rest.missing)
    family = family_of(ours, theirs)
    if family is None or ours is None or theirs is None:
        return
    meaning = f"{_layouts(ours.name, 'the model', theirs.name)}: {family.why}"
    ways = (COMPARE, AUTO, Way("or convert it with", family.converter))
    yield Cause(meaning, Repair.BY_HAND, ways, missing=rest.missing, unexpected=rest.unexpected)


# ---- from one published layout to another by edits


_NUMBERS = 3  # numbers of heads that are offered
# the two dimensions that come first afterwards, counted from the last
_DIMS = {TURNED: (-1, -2), KERNEL: (-1, -2), DEPTHWISE: (-2, -1), GATES: (-1, -2)}
_CUT = (ROWS, GROUPED, TURNED_ROWS, STACKED)
_GATED = (GATES, GATE_BIASES)
_SECOND_FIRST = (1, 0, 2)  # where z, r, h stand among r, z, n, and the other way round


def layout_edits(comparison: Comparison) -> tuple[Edit, ...]:
    """Return the edits of the published conversion; none where there is none, or it lacks something."""
    found = comparison.conversion
    if found is None or found.lacks:
        return ()
    gone = [comparison.before_prefix.here[key].path for key in found.dropped]
    gone += [each.drops.path for each in comparison.name_fixes if each.drops is not None]
    edits = tuple(_edits(found, comparison.before_prefix.here))
    return (Drop(tuple(gone)), *edits) if gone else edits


def lacking(comparison: Comparison) -> str:
    """Return what has to be said before the conversion can be made, or "" where nothing has.

    See ``commands_with_heads``.
    """
    found = comparison.conversion
    if found is None or not found.lacks:
        return ""
    if found.never:
        return found.lacks
    return (
        f"rows of queries and keys are permuted in each head, and {found.lacks}. Specify the number of heads, "
        "for example:"
    )


def commands_with_heads(comparison: Comparison) -> tuple[str, ...]:
    """Return the commands that say how many heads there are, for the sizes that are most frequent; see ``lacking``."""
    found = comparison.conversion
    if found is None or not found.lacks:
        return ()
    rows = [comparison.before_prefix.here[piece.old[0]].shape[0] for piece in found.pieces if piece.how == QUERIES]
    most = min(rows, default=0)
    heads = [most // size for size in HEAD_SIZES if most > size and most % size == 0][:_NUMBERS]
    return tuple([f"ckptdoctor fix FILE {auto_option(comparison)} --heads {number}" for number in heads])


def conversion_title(found: LayoutConversion) -> str:
    """Return what the edits do, in a few words."""
    said = []
    for how, what in (
        (ROTARY, "rows of {} permuted in each head"),
        ((ROWS, GROUPED, TURNED_ROWS), "{} split or fused"),
        ((TURNED, TURNED_ROWS, KERNEL, DEPTHWISE, GATES), "{} transposed"),
        ((GATES, GATE_BIASES), "gates of {} in another order"),
        ((STACKED,), "{} of experts"),
    ):
        number = sum(piece.how in how for piece in found.pieces)
        said += [what.format(plural(number, "tensor"))] if number else []
    more = f": {', '.join(said)}" if said else ""
    return f"from {found.way.one} to {found.way.other}{more}"


def _edits(found: LayoutConversion, here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """Yield one kind of edit after another: those of one kind are carried out together."""
    queries = [piece for piece in found.pieces if piece.how == QUERIES]
    size = here[queries[0].old[0]].shape[0] // found.heads if found.rotary else 0
    rotary = [here[piece.old[0]] for piece in found.rotary]
    flat = [piece for piece in found.pieces if piece.renamed and here[piece.old[0]].shape != piece.shapes[0]]
    for tensor in rotary:
        rows, width = tensor.shape
        inner = (2, size // 2) if found.way.back else (size // 2, 2)
        yield Reshape(tensor.path, (rows // size, *inner, width))
    for piece in flat:
        yield Reshape(here[piece.old[0]].path, piece.shapes[0])
    for tensor in rotary:
        yield Transpose(tensor.path, (0, 2, 1, 3))
    for piece in found.pieces:
        if piece.how in _DIMS:
            rank = len(here[piece.old[0]].shape)
            yield Transpose(here[piece.old[0]].path, (*[rank + dim for dim in _DIMS[piece.how]], *range(rank - 2)))
    for tensor in rotary:
        yield Reshape(tensor.path, tensor.shape)
    for piece in found.pieces:
        if piece.how == DEPTHWISE:
            yield Reshape(here[piece.old[0]].path, piece.shapes[0])
    single = [piece for piece in found.pieces if piece.how not in (*_CUT, *_GATED)]
    pairs = [(here[piece.old[0]].key, piece.new[0]) for piece in single]
    place = next(iter(here.values())).path[:-1]
    renames = tuple([(old, new) for old, new in pairs if old != new])
    if renames:
        yield Rename(place, renames)
    yield from _cut(place, sorted([piece for piece in found.pieces if piece.how in _CUT], key=_kind), here)
    yield from _gates([piece for piece in found.pieces if piece.how in _GATED], here)
    for key, owner in found.tied:
        yield Tie((*place, owner), key)
    sources = {piece.new[0]: here[piece.old[0]] for piece in found.pieces}
    for key, owner in found.zeros:
        yield Fill((*place, key), sources[owner].dtype.name, sources[owner].shape, 0.0)


def _gates(pieces: Sequence[Piece], here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """Yield the gates in their new order; two biases that are rows of one tensor laid flat before."""
    for piece in pieces:
        if piece.how == GATE_BIASES:
            yield Reshape(here[piece.old[0]].path, (2 * piece.shapes[0][0],))
    for piece in pieces:
        rows = piece.shapes[0][0]
        width = rows // len(_SECOND_FIRST)
        starts = [(key, at * rows + gate * width) for at, key in enumerate(piece.new) for gate in _SECOND_FIRST]
        yield Split(here[piece.old[0]].path, tuple([(key, start, start + width) for key, start in starts]))


def _cut(place: KeyPath, pieces: Sequence[Piece], here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """Yield what is split, and what is fused; the stacks of experts laid flat before, or set up afterwards."""
    apart = [piece for piece in pieces if len(piece.old) == 1]
    for piece in apart:
        if piece.how == STACKED:
            experts, rows, *rest = here[piece.old[0]].shape
            yield Reshape(here[piece.old[0]].path, (experts * rows, *rest))
    for piece in apart:
        ends = list(accumulate([shape[0] for shape in piece.shapes]))
        parts = tuple(zip(piece.new, [0, *ends[:-1]], ends, strict=True))
        yield Split(here[piece.old[0]].path, parts, 1 if piece.how == TURNED_ROWS else 0)
    whole = [piece for piece in pieces if len(piece.old) > 1]
    for piece in whole:
        yield Fuse(tuple([here[key].path for key in piece.old]), piece.new[0])
    for piece in whole:
        if piece.how == STACKED:
            yield Reshape((*place, piece.new[0]), piece.shapes[0])
    for piece in pieces:
        if piece.how == TURNED_ROWS:
            yield from (Transpose((*place, key)) for key in piece.new)


def _kind(piece: Piece) -> int:
    return _CUT.index(piece.how)
