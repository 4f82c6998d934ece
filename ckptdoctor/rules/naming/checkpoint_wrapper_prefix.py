"""Keys hold ``_checkpoint_wrapped_module.``: saved from a model with activation checkpointing.

Meaning
    ``checkpoint_wrapper`` and ``apply_activation_checkpointing`` hold each module that they wrap in an attribute
    called ``_checkpoint_wrapped_module``. Their ``state_dict()`` takes the token out of the keys, but parameters that
    were collected by name (``named_parameters()``), or by older versions, keep it.

Why it matters
    The bare model does not know these names: ``load_state_dict`` fails, or with ``strict=False`` silently loads nothing
    at all.

Symptoms
    Missing key(s) in state_dict: "layers.0.weight", …
    Unexpected key(s) in state_dict: "layers.0._checkpoint_wrapped_module.weight", …

Detection
    A key has the token ``_checkpoint_wrapped_module`` anywhere before its last one. Only activation checkpointing
    uses it. With a reference whose own keys have it nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select N407`` drops the token, in the keys, in ``_metadata`` and in an optimizer's
    ``param_names``. Safe: no value changes. Where two keys would get one name, no repair is offered, and both are
    named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts import names
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.renames import wrapper_tokens
from ckptdoctor.rules.naming.wrapped_keys import all_in_wrapper, parts_in_wrapper
from ckptdoctor.rules.when import keys_mention

SICK = (
    Example(
        "two of three layers are wrapped",
        {
            "embed.weight": T((8, 4)),
            "layers.0._checkpoint_wrapped_module.weight": T((4, 4)),
            "layers.1._checkpoint_wrapped_module.weight": T((4, 4)),
        },
    ),
)
HEALTHY = (
    Example("a plain model", {"embed.weight": T((8, 4)), "layers.0.weight": T((4, 4))}),
    Example("another word around the token", {"my_checkpoint_wrapped_module.weight": T((4, 4))}),
)


@rule("N407", "checkpoint-wrapper-prefix", Severity.ERROR, when=keys_mention("_checkpoint_wrapped_module"))
def checkpoint_wrapper_prefix(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report keys with the token ``_checkpoint_wrapped_module``."""
    yield from wrapper_tokens(
        subject,
        "N407",
        "Saved from a model with activation checkpointing, whose wrapper holds the real module in an "
        "attribute called _checkpoint_wrapped_module. Loading it into the bare model fails, and with "
        "strict=False loads none of it.",
    )


@judges(Turn.WRAPPER)
def of_all_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Unexpected keys have its token, and no missing one does."""
    yield from all_in_wrapper(rest, names.ACTIVATION_CHECKPOINT, "activation checkpointing")


@judges(Turn.NAME)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are missing that are unexpected ones without its token."""
    yield from parts_in_wrapper(rest, names.ACTIVATION_CHECKPOINT)
