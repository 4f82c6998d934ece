"""The same network in the layout of another code base: names differ, and so do the places of values.

What it means
    Meta's Llama and that of transformers, latent diffusion and diffusers, OpenAI's CLIP and that of transformers,
    Megatron and GPT-2: both sides hold the same network, saved by code that calls and arranges its parts otherwise.

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
    None by renaming. The converter of that code base is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.layouts import family_of, layout
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule

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
SICK = (
    Example("Meta's file for the model of transformers", _META, like=_HF),
    Example("and the other way round", _HF, like=_META),
)
HEALTHY = (
    Example("one code base", _HF, like=_HF),
    Example("another network altogether", {"conv.weight": T((3, 3))}, like=_HF),
)


@rule("N426", "known-layout-family", Severity.ERROR)
def known_layout_family(comparison: Comparison) -> Iterator[Problem]:
    """Checkpoint and reference in two layouts of one family."""
    here, wanted = comparison.plain.here, comparison.reference.tensors
    if not comparison.plain.missing or not comparison.plain.unexpected:
        return
    ours, theirs = layout(here), layout(wanted)
    family = family_of(ours, theirs)
    if family is None or ours is None or theirs is None:
        return
    yield Problem(
        message=f"the checkpoint has the layout of {ours.name}, {comparison.reference.source} that of {theirs.name}",
        cause=f"Renaming is not enough: {family.why}.",
        torch_says=(
            wording.missing_keys(comparison.plain.missing),
            wording.unexpected_keys(comparison.plain.unexpected),
        ),
        advice=f"Convert it with {family.converter}.",
        keys=tuple([here[key].path for key in comparison.plain.unexpected]),
        location=Location(path=comparison.path),
    )
