"""Keys hold ``_fsdp_wrapped_module.`` or ``_fpw_module.``: saved from a model wrapped in FSDP.

Meaning
    ``FullyShardedDataParallel`` holds each module that it wraps in an attribute called ``_fsdp_wrapped_module``
    (``_fpw_module`` in early versions and in fairscale). Its ``state_dict()`` takes the token out of the keys, but
    parameters that were collected by name (``named_parameters()``), or outside of FSDP's hooks, keep it.

Why it matters
    The bare model does not know these names: ``load_state_dict`` fails, or with ``strict=False`` silently loads nothing
    at all.

Symptoms
    Missing key(s) in state_dict: "layers.0.weight", …
    Unexpected key(s) in state_dict: "_fsdp_wrapped_module.layers.0._fsdp_wrapped_module.weight", …

Detection
    A key has one of the two tokens anywhere before its last one. Only FSDP uses them. With a reference whose own keys
    have them nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select N405`` drops the token, in the keys, in ``_metadata`` and in an optimizer's
    ``param_names``. Safe: no value changes. Flat parameters (``_flat_param``, ``flat_param_0``) cannot be taken apart
    without the model; where there are some, no repair is offered: save a full state dict instead. Where two keys
    would get one name, no repair is offered either, and both are named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts import names
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.renames import wrapper_tokens
from ckptdoctor.rules.naming.wrapped_keys import all_in_wrapper, parts_in_wrapper
from ckptdoctor.rules.when import keys_mention

SICK = (
    Example(
        "parameters collected by name",
        {
            "_fsdp_wrapped_module.embed.weight": T((8, 4)),
            "_fsdp_wrapped_module.layers.0._fsdp_wrapped_module.weight": T((4, 4)),
            "_fsdp_wrapped_module.layers.1._fsdp_wrapped_module.weight": T((4, 4)),
        },
    ),
    Example(
        "the older token in a training checkpoint",
        {"step": 7, "model": {"_fpw_module.fc.weight": T((2, 4)), "_fpw_module.fc.bias": T((2,))}},
    ),
)
HEALTHY = (
    Example("a full state dict", {"embed.weight": T((8, 4)), "layers.0.weight": T((4, 4)), "fsdp.weight": T((4, 4))}),
)


@rule("N405", "fsdp-prefix", Severity.ERROR, when=keys_mention("_fsdp_wrapped_module", "_fpw_module"))
def fsdp_prefix(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report keys with the tokens ``_fsdp_wrapped_module`` or ``_fpw_module``."""
    problems = wrapper_tokens(
        subject,
        "N405",
        "Saved from a model wrapped in FullyShardedDataParallel, without the hooks that remove its names "
        "from the keys. Loading it into the bare model fails, and with strict=False loads none of it.",
    )
    for problem in problems:
        flat = names.flat_parameter([str(path[-1]) for path in problem.keys])
        yield problem if flat is None else replace(problem, fix=None, advice=_unflatten(flat))


def _unflatten(key: str) -> str:
    return (
        f'"{key}" holds many parameters in one flat tensor, which cannot be taken apart without the model: '
        "save again with StateDictType.FULL_STATE_DICT or torch.distributed.checkpoint.state_dict."
    )


@judges(Turn.WRAPPER)
def of_all_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Unexpected keys have its token, and no missing one does."""
    yield from all_in_wrapper(rest, names.FSDP, "FSDP")


@judges(Turn.NAME)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are missing that are unexpected ones without its token."""
    yield from parts_in_wrapper(rest, names.FSDP)
