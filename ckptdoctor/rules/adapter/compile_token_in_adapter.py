"""The names of an adapter's layers hold ``_orig_mod``: trained on a model that went through torch.compile.

Meaning
    ``torch.compile`` puts the model into an attribute called ``_orig_mod``. Scripts such as kohya's sd-scripts make the
    name of an adapter's layer from the path of the module, with underscores for dots, and so this word ended up in it:
    ``lora_unet__orig_mod_mid_block_attentions_0_proj_in``.

Why it matters
    No model has a layer of this name: programs skip the keys, and the adapter has no effect.

Symptoms
    lora key not loaded: lora_unet__orig_mod_mid_block_attentions_0_proj_in.lora_down.weight

Detection
    The first token of a key begins with ``lora_`` or ``lycoris_`` and holds ``__orig_mod_``. Keys with the token
    between dots are N404's.

Repair
    ``ckptdoctor fix FILE --select L910`` removes the word. Safe: no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Safety
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.renames import how_many, rename_fix
from ckptdoctor.rules.when import keys_mention

_MARK = "__orig_mod_"
_WORD = regex(r"(?:__orig_mod)+_(?=[^.])")
_LAYER = "mid_block_attentions_0_proj_in"
_SICK = {
    f"lora_unet__orig_mod_{_LAYER}.lora_down.weight": T((2, 4)),
    f"lora_unet__orig_mod_{_LAYER}.lora_up.weight": T((4, 2)),
    f"lora_unet__orig_mod_{_LAYER}.alpha": T(()),
}
SICK = (
    Example("trained on a compiled model", _SICK, "safetensors", metadata={"ss_network_dim": "2"}),
    Example(
        "a compiled layer within a LyCORIS",
        {f"lycoris_blocks_0__orig_mod_attn.{each}": T((4, 2)) for each in ("hada_w1_a", "hada_w2_a")},
    ),
)
HEALTHY = (
    Example("trained on the plain model", {key.replace("__orig_mod", ""): value for key, value in _SICK.items()}),
    Example("no adapter", {"net__orig_mod_x.weight": T((2, 4))}),
)


@rule("L910", "compile-token-in-adapter", Severity.ERROR, when=keys_mention("_orig_mod"))
def compile_token_in_adapter(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report layers whose names hold the word."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in WEIGHTS and names.mentions(state_dict, (_MARK,)):
            held = [key for key in names.keys_of(state_dict) if _without(key) != key]
            if held:
                yield _problem(state_dict, held)


def _without(key: str) -> str:
    layer, dot, rest = key.partition(".")
    if not dot or _MARK not in layer or not layer.startswith(("lora_", "lycoris_")):
        return key
    return f"{_WORD.sub('_', layer)}.{rest}"


def _problem(state_dict: StateDict, held: list[str]) -> Problem:
    fix, advice = rename_fix(state_dict, _without, 'drop "_orig_mod" from the keys', Safety.SAFE, "--select L910")
    return Problem(
        message=f'{how_many(len(held), state_dict)} {"holds" if len(held) == 1 else "hold"} "_orig_mod"',
        cause="Trained on a model that went through torch.compile, which holds the real one in an attribute of "
        "this name. Programs find no layer with that name, and leave these keys out.",
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in held]),
        location=Location(path=state_dict.path),
        fix=fix,
    )
