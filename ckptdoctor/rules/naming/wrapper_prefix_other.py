"""Keys begin with the name of the attribute in which another wrapper holds the model.

Meaning
    Opacus puts ``_module.`` before every key, Lightning Fabric ``_forward_module.``; other wrappers hold the model in
    ``_original_module``, ``wrapped`` or ``inner``. The wrapper was saved, not the model in it.

Why it matters
    ``load_state_dict`` of the bare model fails, or with ``strict=False`` silently loads nothing at all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", …
    Unexpected key(s) in state_dict: "_module.conv1.weight", …

Detection
    All keys begin with ``_module.`` or ``_forward_module.``. The other names count only with a reference that fits
    without them: a model may have such an attribute itself.

Repair
    ``ckptdoctor fix FILE --strip-prefix _module.``: in the keys, in ``_metadata`` and in an optimizer's
    ``param_names``; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Safety
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.names_in_errors import lead_cause
from ckptdoctor.rules.kit.renames import rename_fix, wrapped_lines
from ckptdoctor.rules.naming.prefixing import prefix_problem
from ckptdoctor.rules.when import keys_mention

_BARE = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _under(prefix: str) -> dict[str, T]:
    return {prefix + key: value for key, value in _BARE.items()}


ALSO = ("N409",)
SICK = (
    Example("saved through Opacus", _under("_module.")),
    Example("saved through Fabric, for the bare model", _under("_forward_module."), like=_BARE),
    Example("a custom wrapper, for the bare model", _under("wrapped."), like=_BARE),
)
HEALTHY = (
    Example("a model with such an attribute", _under("wrapped.")),
    Example("the target is wrapped as well", _under("_module."), like=_under("_module.")),
    Example("only some keys", {"_module.conv.weight": T((4, 3, 3, 3)), **_BARE}),
)


@rule("N408", "wrapper-prefix-other", Severity.ERROR, when=keys_mention("_module.", "_forward_module."))
def wrapper_prefix_other(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report a prefix that all keys have; with a reference, one that makes it fit."""
    if isinstance(subject, Comparison):
        prefix, state_dict = subject.prefix, subject.state_dict
        if prefix is not None and state_dict is not None and prefix_code(prefix) == "N408":
            yield prefix_problem(subject, state_dict, prefix, _cause(prefix.text))
        return
    for state_dict in subject.state_dicts:
        if state_dict.role in WEIGHTS:
            yield from _wrapped(state_dict)


def _wrapped(state_dict: StateDict) -> Iterator[Problem]:
    keys = names.keys_of(state_dict)
    token = keys[0].partition(".")[0] if keys else ""
    prefix = f"{token}."
    if token not in names.SURE_WRAPPERS or not all(key.startswith(prefix) for key in keys):
        return
    fix, advice = rename_fix(
        state_dict,
        lambda key: key.removeprefix(prefix),
        f'strip "{prefix}"',
        Safety.SAFE,
        f"--strip-prefix {prefix}",
    )
    missing, *rest = wrapped_lines(list(keys))
    yield Problem(
        message=f'all {len(keys):,} keys begin with "{prefix}"',
        cause=_cause(prefix),
        torch_says=(missing.replace(prefix, ""), *rest),
        advice=advice,
        keys=tuple([tensor.path for tensor in state_dict.tensors]),
        location=Location(path=state_dict.path),
        fix=fix,
    )


def _cause(prefix: str) -> str:
    makers = {"_module.": "Opacus", "_forward_module.": "Lightning Fabric"}
    maker = makers.get(prefix, "A wrapper")
    return f"{maker} holds the model in an attribute called {prefix[:-1]}; the wrapper was saved, not the model in it."


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys of one side begin with it."""
    yield from lead_cause(rest, "N408", "the same network, held by a wrapper (Fabric's, Opacus's, or a custom one)")
