"""The keys of an adapter hold the name that it had in the model: ``lora_A.default.weight``.

Meaning
    In a model each tensor of an adapter is named after the adapter: ``…q_proj.lora_A.default.weight``. What
    ``save_pretrained`` writes leaves that name out, because another one may be chosen when it is loaded. This file was
    made from ``model.state_dict()``.

Why it matters
    peft looks for the keys without the name. Older versions find none of them; newer ones find them only if the adapter
    gets exactly the same name again. Otherwise the adapter stays as it was initialised, and has no effect.

Symptoms
    UserWarning: Found missing adapter keys while loading the checkpoint: …
    Unexpected key(s) in state_dict: "base_model.model.layers.0.q_proj.lora_A.default.weight", …

Detection
    There is a name between a parameter of one of peft's tuners (``lora_A``, ``ia3_l``, …) and the end of the key. Where
    the layers below are in the file as well, L906 reports it. A file that peft would not look for may be meant for
    ``load_state_dict`` of the model with the adapter: then this is only information.

Repair
    ``ckptdoctor fix FILE --select L901`` drops the name; no value changes. Safe where the file is called
    ``adapter_model.safetensors`` or ``.bin``; with a reference whose keys have no names it is confirmed; otherwise the
    purpose of the file is a guess. Where several adapters are in one file, drop all but one first; the finding gives
    the command.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Safety
from ckptdoctor.facts.adapters import Adapter, adapter_in, is_adapter_file, part_of
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.renames import how_many, rename_fix
from ckptdoctor.rules.messages import CHECK, Message
from ckptdoctor.rules.when import adapter_keys
from ckptdoctor.shell import word

_Q = "base_model.model.layers.0.q_proj"
_NAMED = {f"{_Q}.lora_A.default.weight": T((2, 4)), f"{_Q}.lora_B.default.weight": T((4, 2))}
_PLAIN = {f"{_Q}.lora_A.weight": T((2, 4)), f"{_Q}.lora_B.weight": T((4, 2))}
_SHOWN = 4  # adapters of which each gets its command
MESSAGES = (
    Message(
        ("Found missing adapter keys while loading the checkpoint",),
        "the adapter's file has none of these keys, so these layers stay as they were initialised: its keys carry the"
        " adapter's name or begin at another level, or it was made for another base model",
        (CHECK,),
        also=("L902", "L903", "L909"),
    ),
)
SICK = (
    Example("an adapter under its name", _NAMED, "safetensors", metadata={"format": "pt"},
            name="adapter_model.safetensors"),
    Example("a file for load_state_dict", _NAMED),
    Example("a target without names", _NAMED, like=_PLAIN),
    Example(
        "more than matrices", {
            **_NAMED,
            f"{_Q}.lora_magnitude_vector.default.weight": T((4,)),
            "base_model.model.emb.lora_embedding_A.default": T((2, 9)),
            "base_model.model.score.modules_to_save.default.weight": T((2, 4)),
        },
        name="adapter_model.bin",
    ),
    Example(
        "two adapters in one file",
        {**_NAMED, f"{_Q}.lora_A.other.weight": T((2, 4)), f"{_Q}.lora_B.other.weight": T((4, 2))},
        name="adapter_model.bin",
    ),
)  # fmt: skip
HEALTHY = (
    Example("an adapter as peft saves it", _PLAIN, "safetensors", metadata={"format": "pt"},
            name="adapter_model.safetensors"),
    Example("the target names it too", _NAMED, like=_NAMED),
    Example("a network that numbers its parts", {"x.lora_A.0.weight": T((2, 4)), "x.lora_B.0.weight": T((4, 2))}),
)  # fmt: skip


@rule("L901", "peft-adapter-name-token", Severity.WARNING, when=adapter_keys)
def peft_adapter_name_token(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report adapters under their names."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    if isinstance(subject, Comparison) and any(_is_named(key) for key in subject.reference.tensors):
        return
    for state_dict in checkpoint.state_dicts:
        adapter = adapter_in(state_dict) if state_dict.role in WEIGHTS else None
        if adapter is not None and adapter.names and not adapter.wrapped:
            yield _problem(subject, checkpoint, state_dict, adapter)


def _is_named(key: str) -> bool:
    part = part_of(key)
    return part is not None and part.adapter != ""


def _problem(
    subject: Checkpoint | Comparison, checkpoint: Checkpoint, state_dict: StateDict, adapter: Adapter
) -> Problem:
    known = {**adapter.parts, **adapter.copies}
    held = [key for key, part in known.items() if part.adapter]
    safety = _safety(subject, checkpoint, state_dict, [known[key].plain for key in held])
    quoted = wording.listed([f'"{name}"' for name in adapter.names[: wording.GROUPS]])
    fix, advice = rename_fix(
        state_dict,
        lambda key: known[key].plain if key in known else key,
        f"drop {quoted} from the keys",
        safety,
        "--select L901",
    )
    commands = _choice(adapter) if fix is None and len(held) == len(state_dict.tensors) else ()
    if commands:
        advice = f"One file holds one adapter. Choose, of {quoted}:"
    return Problem(
        message=f"{how_many(len(held), state_dict)} {'names' if len(held) == 1 else 'name'} the adapter {quoted}",
        cause="It was made from model.state_dict(); save_pretrained leaves the name out, and peft adds the name "
        "that is chosen when the adapter is loaded. Under a different name none of this is loaded, and the "
        "adapter has no effect.",
        torch_says=(wording.unexpected_line(held),),
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in held]),
        location=Location(path=state_dict.path),
        fix=fix,
        commands=commands,
        severity=Severity.INFO if safety is Safety.UNSAFE else None,
    )


def _choice(adapter: Adapter) -> tuple[str, ...]:
    """Return the command that keeps one of several adapters, for each of the first."""
    from glob import escape

    keys = (*adapter.parts, *adapter.copies)
    found = []
    for kept in adapter.names[:_SHOWN]:
        patterns = [f"*.{escape(kept)}.*"] if any(f".{kept}." in key for key in keys) else []
        patterns += [f"*.{escape(kept)}"] if any(key.endswith(f".{kept}") for key in keys) else []
        found.append(" ".join([f"--keep {word(pattern)}" for pattern in patterns]))
    return tuple([f"ckptdoctor fix FILE {options}" for options in found])


def _safety(
    subject: Checkpoint | Comparison, checkpoint: Checkpoint, state_dict: StateDict, plain: list[str]
) -> Safety:
    if not state_dict.path and is_adapter_file(checkpoint.path):
        return Safety.SAFE
    proved = isinstance(subject, Comparison) and all(key in subject.reference.tensors for key in plain)
    return Safety.CONFIRMED if proved else Safety.UNSAFE


@judges(Turn.NAME)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are missing that are unexpected ones with the name of an adapter."""
    missing = set(rest.missing)
    parts = {key: part for key in rest.unexpected if (part := part_of(key)) is not None and part.adapter}
    found = {part.plain: key for key, part in parts.items() if part.plain in missing}
    if found and len({parts[key].adapter for key in found.values()}) == 1:
        name = parts[next(iter(found.values()))].adapter
        meaning = (
            f"the file's keys name the adapter (\"{name}\"), as model.state_dict() gives them, and the model's do not"
        )
        yield Cause(meaning, Repair.SAFE, missing=found, unexpected=found.values())
