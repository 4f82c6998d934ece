"""Norm layers have running stats but no ``num_batches_tracked``, which torch expects.

Meaning
    Since version 2 of its norm layers (torch 0.4.1) torch saves a counter with ``running_mean`` and ``running_var``.
    Converters, and code that deletes keys from a state dict, leave it out and keep ``_metadata``, which still has
    version 2.

Why it matters
    ``load_state_dict`` fails. In a plain dict, without ``_metadata``, the same keys load: then torch sets the counter
    to 0 by itself.

Symptoms
    Missing key(s) in state_dict: "bn1.num_batches_tracked", "layer1.0.bn1.num_batches_tracked", …

Detection
    Modules with both running stats and no counter, for which ``_metadata`` has version 2; with a reference, only where
    it has the counter. R001 reports layers whose running stats are missing too.

Repair
    ``ckptdoctor fix FILE --select N416 --unsafe-fixes`` adds the counters, with the value 0 that torch uses for older
    files: it is read only where a BatchNorm's momentum is None. Confirmed where a reference expects them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Fill, Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.match.norms import COUNTER, final_versions, inside, module_of, without_counter
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import uncounted_statistics

_NET: dict[str, object] = {
    "conv.weight": T((4, 3, 3, 3)),
    "bn.weight": T((4,)),
    "bn.bias": T((4,)),
    "bn.running_mean": T((4,)),
    "bn.running_var": T((4,)),
}
_COUNTED: dict[str, object] = {**_NET, "bn.num_batches_tracked": T((), "int64")}
_VERSIONS = {"": {"version": 1}, "conv": {"version": 1}, "bn": {"version": 2}}
_WRAPPED = {f"module.{key}".rstrip("."): value for key, value in _VERSIONS.items()}
SIGNS = (
    Sign(
        "the file lacks num_batches_tracked, a counter that BatchNorm has had since torch 0.4.1 and that "
        "inference does not need",
        Repair.SAFE,
        missing=leaf_among("num_batches_tracked"),
        lonely=True,
        general=1,
    ),
)
SICK = (
    Example("the keys were removed and the versions kept", Odict(_NET, _VERSIONS)),
    Example("a target that expects them", Odict(_NET, _VERSIONS), like=_COUNTED),
    Example(
        "behind a wrapper",
        {"model": Odict({f"module.{key}": value for key, value in _NET.items()}, _WRAPPED)},
        like=_COUNTED,
    ),
)
HEALTHY = (
    Example("counters where the versions require them", Odict(_COUNTED, _VERSIONS)),
    Example("a plain dict", _NET, like=_COUNTED),
    Example("norm layers of torch 0.4.0", Odict(_NET, {**_VERSIONS, "bn": {"version": 1}}), like=_COUNTED),
    Example("a frozen batch norm of another version", Odict(_NET, {**_VERSIONS, "bn": {"version": 3}})),
    Example("a target that does not count", Odict(_NET, _VERSIONS), like=_NET),
    Example(
        "a norm layer without running stats",
        Odict({**_COUNTED, "norm.weight": T((4,)), "norm.bias": T((4,))}, {**_VERSIONS, "norm": {"version": 2}}),
    ),
)


@rule("N416", "num-batches-tracked-missing", Severity.WARNING, when=uncounted_statistics)
def num_batches_tracked_missing(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report norm layers whose counter torch would ask for."""
    if isinstance(subject, Comparison):
        missing = leftovers(subject).uncounted
        if missing and subject.state_dict is not None:
            versions = final_versions(subject)
            modules = tuple([versions[module_of(key)][0] for key in missing])
            yield _problem(subject.state_dict, modules, missing, f"that {subject.reference.source} has", True)
        return
    for state_dict in subject.state_dicts:
        modules = without_counter(state_dict) if state_dict.role in WEIGHTS else ()
        if modules:
            keys = tuple([inside(module, COUNTER) for module in modules])
            yield _problem(state_dict, modules, keys, "that torch expects", False)


def _problem(
    state_dict: StateDict, modules: tuple[str, ...], missing: tuple[str, ...], that: str, confirmed: bool
) -> Problem:
    """Return the problem; ``modules`` are called as in the file, ``missing`` as torch says it."""
    layers = wording.plural(len(modules), "norm layer")
    return Problem(
        message=f"{layers}{wording.of_place(state_dict.path)} {'lacks' if len(modules) == 1 else 'lack'} the batch "
        f"counter {that}",
        cause="The running stats are here without num_batches_tracked, and _metadata gives the layers version 2, "
        "which has it. Without _metadata torch would set it to 0 by itself.",
        torch_says=(wording.missing_line(missing),),
        keys=tuple([(*state_dict.path, inside(module, COUNTER)) for module in modules]),
        location=Location(path=state_dict.path),
        fix=Fix(
            f"add {wording.plural(len(modules), 'counter')} of 0",
            _fills(state_dict, modules),
            Safety.CONFIRMED if confirmed else Safety.UNSAFE,
            "--select N416",
        ),
    )


def _fills(state_dict: StateDict, modules: tuple[str, ...]) -> tuple[Fill, ...]:
    """Return a counter for each module, on the device of its running stats."""
    devices = {tensor.key: tensor.storage.device for tensor in state_dict.tensors if tensor.storage is not None}
    return tuple(
        [
            Fill(
                (*state_dict.path, inside(module, COUNTER)),
                "int64",
                (),
                0,
                devices.get(inside(module, "running_var"), "cpu"),
            )
            for module in modules
        ]
    )
