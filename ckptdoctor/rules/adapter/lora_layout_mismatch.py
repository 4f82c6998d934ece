"""An adapter in the layout of a different program from the one that will read it.

Meaning
    kohya's scripts, LyCORIS, diffusers and peft name the same tensors differently: ``lora_unet_….lora_down.weight``
    with ``.alpha``, ``….hada_w1_a``, ``….processor.to_q_lora.down.weight``, ``….lora_A.weight``. This file has the
    names of one of them, and the name of a file, or a reference, of another.

Why it matters
    Programs leave out the keys that they do not know. The adapter has no effect, often without a warning.

Symptoms
    lora key not loaded: …
    UserWarning: Found missing adapter keys while loading the checkpoint: …

Detection
    More than half of the keys have the form of one program. That alone is not a fault. The file is called
    ``adapter_model.safetensors`` or ``.bin``, in which peft looks for its own keys; or the reference has another
    layout.

Repair
    None by renaming: kohya's ``alpha`` has to be multiplied into the matrices, and its names do not show where the dots
    were. The converter is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts import names
from ckptdoctor.facts.adapters import is_adapter_file
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.adapter.layouts import PEFT, LoraLayout, lora_layout
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.messages import BASE_MODEL, CHECK, Message, Way
from ckptdoctor.rules.when import adapter_file

_K = "lora_unet_mid_block_attentions_0_proj_in"
_KOHYA = {f"{_K}.lora_down.weight": T((2, 4)), f"{_K}.lora_up.weight": T((4, 2)), f"{_K}.alpha": T(())}
_P = "base_model.model.mid_block.attentions.0.proj_in"
_PEFT = {f"{_P}.lora_A.weight": T((2, 4)), f"{_P}.lora_B.weight": T((4, 2))}
MESSAGES = (
    Message(
        ("Invalid LoRA checkpoint. Make sure all LoRA param names contain",),
        "the file has keys that are not LoRA keys: it is a complete model, or an adapter in the layout of "
        "another program",
        (CHECK,),
        also=("L906", "L902"),
    ),
    Message(
        ("lora key not loaded",),  # comfy/lora.py; before February 2024 printed without a colon
        "ComfyUI has no layer called {key} and leaves it out: the adapter is in a layout that ComfyUI does "
        "not read, or for another base model",
        (BASE_MODEL,),
        then=r":?(?P<key>[\w.\-/]{1,300}?)(?=lorakeynotloaded|$|[^\w.\-/])",
        also=("L909", "L902"),
    ),
    Message(
        (
            "Failed to match keys when loading Lora",
            "Failed to match keys when loading Lyco",
            "Failed to match keys when loading network",
        ),
        "the web UI has no layers with these names and leaves them out: the adapter is in a layout that it "
        "does not read, or for another base model",
        (BASE_MODEL,),
        also=("L909", "L902"),
    ),
    Message(
        # diffusers 0.30 to 0.35, loaders/lora_conversion_utils.py _convert_kohya_flux_lora_to_diffusers
        ("Incompatible keys detected:",),
        "the adapter has keys such as {key}, which diffusers' converter does not know: it was written by a program"
        " whose layout is not converted",
        (BASE_MODEL,),
        then=r"(?P<key>lora_[\w.\-/]{1,300})",
    ),
    Message(
        # AUTOMATIC1111 stable-diffusion-webui 1.5 to 1.10, extensions-builtin/Lora/networks.py
        ("that would accept those keys:",),
        "the web UI does not know any adapter with keys such as {key}: the file is in the layout of another program",
        (BASE_MODEL,),
        then=r"(?P<key>[\w.\-/]{1,300})",
        near=("Could not find a module type",),
    ),
    Message(
        ("Bad Lora layer name:",),
        "the file is an adapter in a different layout from kohya's (lora_up.weight, lora_down.weight, alpha)",
        (CHECK,),
    ),
)
SICK = (
    Example("kohya's keys where peft looks", _KOHYA, "safetensors", name="adapter_model.safetensors"),
    Example("kohya's keys for peft's", _KOHYA, like=_PEFT),
    Example("and the reverse", _PEFT, like=_KOHYA),
)
HEALTHY = (
    Example("kohya's own file", _KOHYA, "safetensors"),
    Example("peft's own file", _PEFT, "safetensors", metadata={"format": "pt"}, name="adapter_model.safetensors"),
    Example("the same layout", _KOHYA, like=_KOHYA),
)


@rule("L905", "lora-layout-mismatch", Severity.ERROR, when=adapter_file)
def lora_layout_mismatch(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report adapters of one program for another."""
    if isinstance(subject, Comparison):
        ours = _layout(subject.state_dict)
        theirs = lora_layout(subject.reference.tensors) if ours is not None else None
        if ours is not None and theirs is not None and ours is not theirs and subject.state_dict is not None:
            yield _problem(subject.state_dict, ours, f"{subject.reference.source} as {_by(theirs)}")
    elif is_adapter_file(subject.path):
        for state_dict in subject.state_dicts:
            ours = _layout(state_dict)
            if ours is not None and ours.name != PEFT:
                yield _problem(state_dict, ours, "and peft looks in a file of this name for its own keys")


def _layout(state_dict: StateDict | None) -> LoraLayout | None:
    if state_dict is None or state_dict.role not in WEIGHTS or not names.mentions(state_dict, ("lora", "lycoris")):
        return None
    return lora_layout(names.keys_of(state_dict))


def _message(ours: LoraLayout, theirs: str) -> str:
    return f"the adapter has the keys of {ours.name}, {theirs}"


def _by(layout: LoraLayout) -> str:
    return f"{layout.name} {'write' if layout.name.endswith('s') else 'writes'} it"


def _problem(state_dict: StateDict, ours: LoraLayout, theirs: str) -> Problem:
    return Problem(
        message=_message(ours, theirs),
        cause=f"Read by {ours.readers}. Others leave out keys that they do not know, and the adapter has no effect.",
        advice=f"Convert it with {ours.converter}.",
        keys=tuple([(*state_dict.path, key) for key in names.keys_of(state_dict)]),
        location=Location(path=state_dict.path),
    )


@judges(Turn.FILE, general=3)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What is unexpected is an adapter as one program writes it, and what is missing as another does."""
    ours, theirs = lora_layout(rest.unexpected), lora_layout(rest.missing)
    if ours is not None and theirs is not None and ours is not theirs:
        meaning = _message(ours, f"and the model expects it as {_by(theirs)}")
        ways = (Way("convert it with", ours.converter), CHECK)
        yield Cause(meaning, Repair.BY_HAND, ways, missing=rest.missing, unexpected=rest.unexpected)
