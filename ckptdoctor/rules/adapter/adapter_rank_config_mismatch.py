"""``adapter_config.json`` describes a different adapter from the file next to it: a different rank, or other layers.

Meaning
    peft builds the adapter from its config, and then loads the tensors into it. The config has a different rank (``r``,
    ``rank_pattern``) from the matrices, or does not name layers (``target_modules``) that have some.

Why it matters
    A different rank fails to load. A layer that is not named is left out without an error, and the model is not the one
    that was trained.

Symptoms
    size mismatch for …q_proj.lora_A.default.weight: copying a param with shape torch.Size([8, 4096]) from checkpoint,
    the shape in current model is torch.Size([16, 4096]).

Detection
    The first dimension of each ``lora_A`` is compared with ``r`` and ``rank_pattern``, its module with
    ``target_modules``. Regular expressions are not run: a field with one of them is not examined.

Repair
    None: the finding gives the line of ``adapter_config.json``, and what to write there. ``lora_alpha`` stays: the
    trained product was scaled by ``lora_alpha / r`` with the rank of the matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import Config
from ckptdoctor.findings import Severity
from ckptdoctor.rules.adapter.config import AdapterConfigDisagreement, adapter_config_beside, config_disagreements
from ckptdoctor.rules.adapter.layouts import is_of_adapter, only_rank_differs
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SEE
from ckptdoctor.rules.when import file_beside

_NAME = "adapter_model.safetensors"
_LEAD = "base_model.model.layers"
_FITS = b'{\n  "peft_type": "LORA",\n  "r": 2,\n  "rank_pattern": {},\n  "target_modules": [\n    "q_proj"\n  ]\n}\n'
_ADAPTER = {
    f"{_LEAD}.{number}.q_proj.{each}.weight": T(shape)
    for number in (0, 1)
    for each, shape in (("lora_A", (2, 4)), ("lora_B", (4, 2)))
}
_MIXED = {**_ADAPTER, f"{_LEAD}.1.q_proj.lora_A.weight": T((3, 4)), f"{_LEAD}.1.q_proj.lora_B.weight": T((4, 3))}


def _example(title: str, contents: dict[str, T], config: bytes | None) -> Example:
    beside = {} if config is None else {"adapter_config.json": config}
    return Example(title, contents, "safetensors", metadata={"format": "pt"}, name=_NAME, beside=beside)


SICK = (
    _example("a different rank", _ADAPTER, _FITS.replace(b"2", b"8")),
    _example("a layer of a different rank", _MIXED, _FITS),
    _example("other layers", _ADAPTER, _FITS.replace(b"q_proj", b"v_proj")),
)
HEALTHY = (
    _example("a config that fits", _ADAPTER, _FITS),
    _example("a rank of its own", _MIXED, _FITS.replace(b"{},", b'{"layers.1.q_proj": 3},')),
    _example("no config", _ADAPTER, None),
    _example("a config that is not one", _ADAPTER, b"[]"),
)

_LONGEST = 300  # characters of a value that is written out


@rule("L908", "adapter-rank-config-mismatch", Severity.ERROR, when=file_beside("adapter_config.json"))
def adapter_rank_config_mismatch(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report configs of another adapter."""
    config = adapter_config_beside(checkpoint)
    for each in config_disagreements(checkpoint, config) if config is not None else ():
        assert config is not None
        yield Problem(
            message=f"adapter_config.json has {each.field} {_shown(each.said)}, but {_found(each)}",
            cause="peft builds the adapter from adapter_config.json, and these tensors do not fit it."
            if each.field != "target_modules"
            else "peft builds the adapter from adapter_config.json, and leaves these tensors out without an error.",
            torch_says=_line(each),
            advice=f"If the tensors are right, {_change(config, each)}; if not, use the config that belongs to them.",
            keys=tuple([tensor.path for tensor in each.tensors]),
        )


def _found(each: AdapterConfigDisagreement) -> str:
    first, others = each.modules[0], len(each.modules) - 1
    more = f" (and {wording.plural(others, 'other layer')})" if others else ""
    if each.field == "target_modules":
        return f"there is an adapter on {first}{more}"
    return f"{first} has rank {each.tensors[0].shape[0]:,}{more}"


def _change(config: Config, each: AdapterConfigDisagreement) -> str:
    """Return what to write where, for people."""
    line = config.lines.get(each.field)
    place = f"line {line} of {config.path}" if line is not None else config.path
    return f'write "{each.field}": {_shown(each.found)} in {place}'


def _shown(value: object) -> str:
    from json import dumps

    text = dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _line(each: AdapterConfigDisagreement) -> tuple[str, ...]:
    if each.field != "r" or type(each.said) is not int:
        return ()
    tensor = each.tensors[0]
    return (wording.mismatch_line(tensor.key, tensor.shape, (each.said, *tensor.shape[1:])),)


@judges(Turn.SHAPE, general=2)
def of_a_shape(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Matrices of an adapter differ in their rank alone."""
    pairs = [pair for pair in rest.mismatched if is_of_adapter(pair.key)]
    found = [pair for pair in pairs if only_rank_differs(pair)]
    if found:
        meaning = (
            f"an adapter's matrix has a different size ({both_shapes(found[0])}): the rank in "
            "adapter_config.json is not the file's, or the adapter is for another base model; no command "
            "changes it"
        )
        yield Cause(meaning, Repair.BY_HAND, (SEE,), mismatched=[pair.key for pair in found])
