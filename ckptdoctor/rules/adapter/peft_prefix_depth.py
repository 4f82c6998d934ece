"""An adapter names the layers of the model one level too deep, or not deep enough.

Meaning
    peft puts ``base_model.model.`` before the name that a layer has in the model. The adapter was trained on the same
    network inside a different wrapper: ``base_model.model.layers.0.q_proj`` was trained on the decoder alone, and the
    model with its head calls the layer ``model.layers.0.q_proj``.

Why it matters
    None of the keys is found. The adapter has no effect, and there is only a warning.

Symptoms
    UserWarning: Found missing adapter keys while loading the checkpoint: …
    Unexpected key(s) in state_dict: "base_model.model.layers.0.q_proj.lora_A.weight", …

Detection
    Only with the model as a reference: at least half of the adapted layers are layers of it only with one prefix
    stripped or added.

Repair
    ``ckptdoctor fix FILE --strip-prefix OLD --add-prefix NEW``, with the two that the finding names. Confirmed: the
    model's own names prove it, and no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import StateDict
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.facts.adapters import LEAD, is_adapter_file
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.adapter.on_base_model import OnBase, on_base
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.names_in_errors import lead_cause
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.rules.messages import BASE_MODEL, Message
from ckptdoctor.shell import word

_BASE = {
    "model.embed_tokens.weight": T((9, 4)),
    "model.layers.0.q_proj.weight": T((4, 4)),
    "model.layers.1.q_proj.weight": T((4, 4)),
    "lm_head.weight": T((9, 4)),
}
_SIZES = {"lora_A": (2, 4), "lora_B": (4, 2)}


def _adapter(lead: str) -> dict[str, T]:
    return {f"{lead}layers.{i}.q_proj.{each}.weight": T(size) for i in (0, 1) for each, size in _SIZES.items()}


MESSAGES = (
    Message(
        ("led to unexpected keys not found in the model:", "led to unexpected keys found in the model:"),
        "the adapter has keys that the model does not: they begin at another level, or it was made for "
        "another model. Keys that do not match have no effect",
        (BASE_MODEL,),
        near=("adapter", "LoRA", "lora"),
        also=("L905", "L909", "L901"),
    ),
    Message(
        ("led to missing keys in the model:",),
        "the adapter lacks keys for layers that the model adapts: its keys begin at another level, or it was made with"
        " other target modules",
        (BASE_MODEL,),
        near=("adapter", "LoRA", "lora"),
        also=("L901", "L909"),
    ),
    Message(
        ("No LoRA keys associated to",),
        "none of the adapter's keys begin as diffusers expects for {part}: it adapts another part of the pipeline, or"
        " its keys lack the prefix",
        (BASE_MODEL,),
        then=r"(?P<part>\w{1,200}?)foundwiththe",
        also=("L905", "L909"),
    ),
)
SICK = (
    Example("trained on the decoder alone", _adapter("base_model.model."), like=_BASE),
    Example("one level too many", _adapter("base_model.model.model.model."), like=_BASE),
)
HEALTHY = (
    Example("the names of the model", _adapter("base_model.model.model."), like=_BASE),
    Example("an adapter of another model", _adapter("base_model.model.decoder."), like={"conv.weight": T((4, 4))}),
    Example("against another adapter", _adapter("base_model.model."), like=_adapter("base_model.model.")),
)


@rule("L902", "peft-prefix-depth", Severity.ERROR)
def peft_prefix_depth(comparison: Comparison) -> Iterator[Problem]:
    """Report adapters in another frame."""
    found, state_dict = on_base(comparison), comparison.state_dict
    if found is None or state_dict is None or found.lead == found.wanted or 2 * len(found.found) < len(found.modules):
        return
    # diffusers' own prefixes ("unet."), and names without any in other files, are meant for other loaders
    if found.lead.startswith(LEAD) or (is_adapter_file(comparison.checkpoint.path) and found.wanted != LEAD):
        yield _problem(comparison, state_dict, found)


def _problem(comparison: Comparison, state_dict: StateDict, found: OnBase) -> Problem:
    here = f'"{found.lead}"' if found.lead else "nothing"
    held = [key for key in state_dict.keys if key.startswith(found.lead)]
    fix = _fix(state_dict, found) if len(held) == len(state_dict.tensors) else None
    return Problem(
        message=f"{len(found.found):,} of {wording.plural(len(found.modules), 'layer')} of the adapter are layers of "
        f'{comparison.reference.source} with "{found.wanted}" before their names, which begin with {here}',
        cause="The adapter was trained on the same network inside a different wrapper. peft finds none of these "
        "keys, and the adapter has no effect.",
        torch_says=(wording.unexpected_line(held),),
        advice="" if fix else "Not every key begins like that: no repair is offered.",
        keys=tuple([(*state_dict.path, key) for key in held]),
        location=Location(path=state_dict.path),
        fix=fix,
    )


def _fix(state_dict: StateDict, found: OnBase) -> Fix | None:
    edits, collision = rename_edits(state_dict, lambda key: found.wanted + key.removeprefix(found.lead))
    if collision is not None:
        return None
    strip = f"--strip-prefix {word(found.lead)} " if found.lead else ""
    return Fix(
        f'replace "{found.lead}" with "{found.wanted}"',
        edits,
        Safety.CONFIRMED,
        f"{strip}--add-prefix {word(found.wanted)}",
    )


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys of one side begin with it."""
    yield from lead_cause(rest, "L902", "the adapter's keys begin at a different level from the model's")
