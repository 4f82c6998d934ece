"""Keys hold ``_orig_mod.``: saved from a model that went through torch.compile.

Meaning
    ``torch.compile(model)`` returns an ``OptimizedModule`` that holds the real model in an attribute called
    ``_orig_mod``, and so do parts of a model that were compiled on their own: ``_orig_mod.conv1.weight``,
    ``layers.0._orig_mod.weight``.

Why it matters
    The model that was not compiled does not know these names: ``load_state_dict`` fails, or with ``strict=False``
    silently loads nothing at all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "_orig_mod.conv1.weight", "_orig_mod.bn1.weight", …

Detection
    A key has the token ``_orig_mod`` anywhere before its last one. Only torch.compile uses it. With a reference whose
    own keys have it nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select N404`` drops the token, in the keys, in ``_metadata`` and in an optimizer's
    ``param_names``. Safe: no value changes. Where two keys would get one name (a module saved both compiled and
    plain), no repair is offered, and both are named.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts import names
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.renames import wrapper_tokens
from ckptdoctor.rules.messages import STRIP, unknown_key
from ckptdoctor.rules.naming.wrapped_keys import all_in_wrapper, parts_in_wrapper
from ckptdoctor.rules.when import keys_mention

MESSAGES = (
    *unknown_key(
        r"[\w.]{0,300}?_orig_mod[\w.]{0,300}",
        'the file was saved from a model inside torch.compile, which put "_orig_mod." into its keys',
        (STRIP,),
        general=1,
    ),
)
SICK = (
    Example(
        "a compiled model",
        Odict(
            {"_orig_mod.conv.weight": T((4, 3, 3, 3)), "_orig_mod.fc.weight": T((2, 4))},
            {"": {"version": 1}, "_orig_mod": {"version": 1}, "_orig_mod.conv": {"version": 1}},
        ),
    ),
    Example(
        "compiled layers in a training checkpoint",
        {"model": {"layers.0._orig_mod.weight": T((4, 4)), "layers.1._orig_mod.weight": T((4, 4)), "b": T((4,))}},
    ),
    Example(
        "a compiled model as safetensors",
        {"_orig_mod.weight": T((2, 2)), "_orig_mod.bias": T((2,))},
        container="safetensors",
        suffix=".safetensors",
        metadata={"format": "pt"},
    ),
)
HEALTHY = (
    Example("another word around the token", {"my_orig_mod.weight": T((2, 2)), "my_orig_mod.bias": T((2,))}),
    Example(
        "the target is compiled too",
        {"_orig_mod.fc.weight": T((2, 4)), "_orig_mod.fc.bias": T((2,))},
        like={"_orig_mod.fc.weight": T((2, 4)), "_orig_mod.fc.bias": T((2,))},
    ),
)


@rule("N404", "compile-prefix", Severity.ERROR, when=keys_mention("_orig_mod"))
def compile_prefix(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report keys with the token ``_orig_mod``."""
    yield from wrapper_tokens(
        subject,
        "N404",
        "Saved from a model that went through torch.compile, which holds the real one in an attribute called "
        "_orig_mod. Loading it into the model that was not compiled fails, and with strict=False loads none "
        "of it.",
    )


@judges(Turn.WRAPPER)
def of_all_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Unexpected keys have its token, and no missing one does."""
    yield from all_in_wrapper(rest, names.COMPILE, "torch.compile")


@judges(Turn.NAME)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are missing that are unexpected ones without its token."""
    yield from parts_in_wrapper(rest, names.COMPILE)
