"""The same network in the layout of another code base: names differ, and so do the places of values.

What it means
    Llama of Meta, torchtune and transformers; Qwen2 and Phi-3 of torchtune and transformers, and Phi-3 as a Llama; CLIP
    of OpenAI or OpenCLIP and of transformers; OpenAI's Whisper and that of transformers; ViT and DeiT of timm, DINOv2,
    and those of transformers; the first ConvNeXt and timm's; GPT-2 of transformers, and with linear layers for queries,
    keys and values; layers of Keras or Flax and of torch; latent diffusion and diffusers; Megatron and GPT-2: both
    sides hold the same network, saved by code that calls and arranges its parts otherwise.

Why it matters
    Renaming the keys would load without an error, and the model would talk nonsense: rows are permuted, or matrices
    are split and fused.

What you see
    Missing key(s) in state_dict: "model.layers.0.self_attn.q_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.attention.wq.weight", …

How it is found
    Only with a reference: its keys hold the names of one code base, and those of the checkpoint the names of another
    one of the same network.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` where a published table (Llama, Qwen2, Phi-3, CLIP, Whisper, ViT,
    ConvNeXt, GPT-2, stacked experts) accounts for every key on both sides, and every shape is right afterwards: keys
    are renamed, and rows permuted, split, fused or transposed as the library's own converter does it. No value changes,
    and the reference confirms it.
    The permutation of rotary embeddings takes the number of heads: from ``--config`` or ``--model``, a ``config.json``
    beside either file, Meta's ``params.json`` beside ``consolidated.00.pth``, or ``--heads N``.
    A ``kernel`` of Keras or Flax has its outputs last, and becomes a ``weight`` with its dimensions in torch's order,
    also where all of them are equal; an LSTM of Keras gets a second bias of zeros, which torch adds, and the gates of a
    GRU are put in torch's order; what ``Bidirectional`` calls forward and backward becomes the two directions of one
    layer. Not so where no name tells how values lie: transposed convolutions, which Flax stores turned by 180°, and
    linear layers that may stand behind a flattened image, whose inputs come in another order; and for a GRU with
    ``reset_after=False``, or without the bias that would tell: torch's computes something else.
    Otherwise none by renaming: the converter of that code base is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.published.families import family_of, layout
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.layout_edits import commands_with_heads, conversion_title, lacking, layout_edits
from ckptdoctor.rules.messages import AUTO, COMPARE, Way, unknown_key

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
        "the file has the names of Meta's and Mistral's own programs ({key}), as consolidated.safetensors has, and the"
        " program wants those of transformers: where the folder has both, leave out the consolidated files",
        also=("C115", "R002"),
        general=2,
    ),
)
SICK = (
    Example("Meta's file for the model of transformers", _META, like=_HF),
    Example("and the other way round", _HF, like=_META),
    Example("OpenAI's CLIP for the model of transformers", _CLIP, like=_HF_CLIP),
    Example("a CLIP of transformers for OpenAI's code", _HF_CLIP, like=_CLIP),
    Example("kernels of Keras", _KERAS, like=_TORCH),
)
HEALTHY = (
    Example("one code base", _HF, like=_HF),
    Example("another network altogether", {"conv.weight": T((3, 3))}, like=_HF),
)


@rule("N426", "known-layout-family", Severity.ERROR)
def known_layout_family(comparison: Comparison) -> Iterator[Problem]:
    """Checkpoint and reference in two layouts of one network."""
    here, wanted = comparison.plain.here, comparison.reference.tensors
    if not comparison.plain.missing or not comparison.plain.unexpected:
        return
    found = comparison.conversion
    if found is not None:
        one, other = found.way.one, found.way.other
        said = lacking(comparison)
        advice = f"{said[:1].upper()}{said[1:]}{'. No command can finish.' if found.never else ''}"
        cause = f"The code bases name and arrange the same tensors differently; how is published: {found.way.source}."
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
