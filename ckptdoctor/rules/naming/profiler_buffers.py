"""Modules have ``total_ops`` and ``total_params`` buffers: the model was saved after thop.profile() had measured it.

Meaning
    ``thop.profile(model, …)`` registers two buffers of one float64, ``total_ops`` and ``total_params``, on the
    modules that it counts, and older versions leave them there. Saved afterwards, they are in the state dict.

Why it matters
    A model that was not profiled does not have them: ``load_state_dict`` fails.

Symptoms
    Unexpected key(s) in state_dict: "total_ops", "total_params", "conv1.total_ops", …

Detection
    Keys whose last token is exactly ``total_ops`` or ``total_params``, with one float64 element each, on at least
    half as many modules as have tensors of their own. With a reference that has such keys nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select N420`` drops them. Safe: they are counts that the model never reads, and
    ``thop.profile`` makes them again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.buffers import profiler_counters
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.renames import how_many, weights
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import keys_mention

_COUNT = T((1,), "float64", value=12)
SIGNS = (
    Sign(
        "a profiler (thop) has left its counters in the model before it was saved",
        Repair.LOSS,
        unexpected=leaf_among("total_ops|total_params"),
    ),
)
SICK = (
    Example(
        "a profiled model",
        {
            "total_ops": _COUNT,
            "total_params": _COUNT,
            "conv.weight": T((4, 3, 3, 3)),
            "conv.total_ops": _COUNT,
            "conv.total_params": _COUNT,
            "fc.weight": T((2, 4)),
            "fc.total_ops": _COUNT,
            "fc.total_params": _COUNT,
        },
    ),
)
HEALTHY = (
    Example("a buffer of the model's own", {"total_ops": T((1,)), "conv.weight": T((4, 3, 3, 3))}),
    Example(
        "one module that counts its own operations",
        {"a.weight": T((2, 2)), "b.weight": T((2, 2)), "c.weight": T((2, 2)), "meter.total_ops": _COUNT},
    ),
)


@rule("N420", "profiler-buffers", Severity.WARNING, when=keys_mention("total_ops", "total_params"))
def profiler_buffers(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report state dicts with the counters of a profiler."""
    for state_dict in weights(subject, "N420"):
        yield from _judged(state_dict)


def _judged(state_dict: StateDict) -> Iterator[Problem]:
    found = profiler_counters(state_dict)
    if not found:
        return
    paths = tuple([tensor.path for tensor in found])
    yield Problem(
        message=f"{how_many(len(found), state_dict)} are counters of a profiler (total_ops, total_params)",
        cause="thop.profile() left its counters in the model before it was saved; a model that was not profiled "
        "does not have them.",
        torch_says=(wording.unexpected_line([tensor.key for tensor in found]),),
        keys=paths,
        location=Location(path=state_dict.path),
        fix=Fix(f"drop {wording.plural(len(found), 'counter')}", (Drop(paths),), Safety.SAFE, "--select N420"),
    )
