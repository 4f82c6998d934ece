"""The file holds NumPy values, pickled under module names that differ between NumPy 1 and NumPy 2.

Meaning
    A number such as the best accuracy was a NumPy scalar when it was saved, or there are NumPy arrays. Their pickles
    name ``numpy.core.multiarray`` (NumPy 1) or ``numpy._core.multiarray`` (NumPy 2).

Why it matters
    torch has rejected them since 2.6, and with ``weights_only=False`` a file saved under NumPy 2 does not load under an
    early NumPy 1.

Symptoms
    Unsupported global: GLOBAL numpy._core.multiarray.scalar was not an allowed global by default.
    No module named 'numpy._core'

Detection
    NumPy's names in the pickle, together with the values that they make.

Repair
    ``ckptdoctor fix FILE --weights-only-safe`` converts NumPy numbers, booleans, strings and times to Python's, arrays
    to tensors with the same elements, and arrays without a torch dtype (strings, times, records, objects) to lists.
    Safe: the values are bit-identical; ``numpy.random.set_state`` still accepts its state. It refuses values that
    neither can express: durations, float128, objects such as a Generator. ``--select P202`` leaves those as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role
from ckptdoctor.edits import Fix, MakeTensors, Safety
from ckptdoctor.facts.globals import Blocked, BlockedCause, BlockedPlace, blocked_by
from ckptdoctor.facts.plain_data import PlainForms, plain_forms
from ckptdoctor.findings import Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.blocked import Objects, convertible
from ckptdoctor.rules.messages import CHECK, SAFE, Message, Way
from ckptdoctor.rules.when import unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("GLOBAL",),
        "the file holds a NumPy value besides the tensors ({global}; usually a metric or a counter), and "
        "torch 2.6 and later load only tensors and plain values",
        (SAFE,),
        then=r"(?P<global>numpy\.[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201",),
        general=1,
    ),
    Message(
        ("No module named 'numpy._core", "No module named numpy._core"),
        "the file holds NumPy values pickled by NumPy 2, and this is NumPy 1, where the module has another name",
        (SAFE, Way("or upgrade", 'pip install "numpy>=2"')),
        also=("P201", "P205"),
    ),
    Message(
        # numpy/random/_pickle.py: one argument up to 1.23, two in 1.24 to 1.26, a generator itself since 2.0
        (
            "__generator_ctor() takes",
            "__randomstate_ctor() takes",
            "__bit_generator_ctor() takes",
            "is not a known BitGenerator module",
        ),
        "the file holds a random generator that another version of NumPy pickled, and that this one cannot load",
        (Way("use the NumPy version that saved it, or", 'pip install --upgrade "numpy>=2"'), CHECK),
    ),
)
SICK = (
    Example(
        "NumPy numbers next to the weights",
        {
            "model": _WEIGHTS,
            "best": Obj("numpy.float64", arguments=(0.75,)),
            "step": Obj("numpy.int64", arguments=(-3,)),
            "single": Obj("numpy.float32", arguments=(0.1,)),
            "done": Obj("numpy.bool_", arguments=(True,)),
        },
    ),
    Example("a NumPy array", {"model": _WEIGHTS, "mean": Obj("numpy.array", arguments=([0.5, 0.25],))}),
    Example(
        "NumPy's random state",
        {"model": _WEIGHTS, "rng": ("MT19937", Obj("numpy.array", arguments=([1, 2], "uint32")), 624, 0, 0.0)},
    ),
    Example("names of classes", {"model": _WEIGHTS, "classes": Obj("numpy.array", arguments=(["cat", "dog"],))}),
)
HEALTHY = (Example("Python's own numbers", {"model": _WEIGHTS, "best": 0.75, "step": -3, "done": True}),)


# accelerate.checkpointing.load_accelerator_state and transformers.Trainer._load_rng_state allow what is in theirs
_FOLDERS = frozenset({"Hugging Face Trainer checkpoint", "Accelerate checkpoint"})
_STATES = regex(r"random_states_\d+\.pkl|rng_state(?:_\d+)?\.pth")


@rule("P202", "numpy-module-drift", Severity.ERROR, when=unusual_names)
def numpy_module_drift(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report NumPy scalars and arrays."""
    yield from _problems(checkpoint)


def _problems(checkpoint: Checkpoint) -> Iterator[Problem]:
    found = blocked_by(checkpoint, BlockedCause.NUMPY)
    if not found:
        return
    plain, values, rest = convertible(found)
    if plain.places:
        title = f"convert {wording.plural(len(plain.places), 'NumPy value')} to Python's own"
        yield Problem(
            message=f"{_values(len(plain.places))} ({refused.listed_places(plain.places)})",
            cause="The value was a NumPy scalar when it was saved; float(value) would have avoided it.",
            torch_says=_lines(plain),
            keys=tuple([place.path for place in plain.places]),
            location=refused.first_use(plain.blocked),
            fix=refused.plain_fix(checkpoint, plain, values, title, "P202"),
        )
    wanted = plain_forms(checkpoint.tree, rest.places)
    if wanted.tensors or wanted.plain:
        yield _of_arrays(checkpoint, wanted, rest)
    stuck = tuple([place for place, _ in wanted.stuck])
    if stuck or not (rest.places or plain.places):
        yield Problem(
            message=f"NumPy objects that torch.load rejects: {refused.listed_places(stuck) or refused.classes(found)}",
            cause="NumPy objects are not on torch's list, and their module names drift.",
            torch_says=_lines(rest),
            advice="Neither tensors nor plain data can express them. Next time save their state instead.",
            keys=tuple([place.path for place in stuck]),
            location=refused.first_use(rest.blocked),
        )


def arrays_of_repair(checkpoint: Checkpoint) -> MakeTensors | None:
    """Return what the repair makes tensors of, or None where it is not offered, or makes none."""
    fixes = [each.fix for each in _problems(checkpoint) if each.fix is not None]
    return next((edit for fix in fixes for edit in fix.edits if isinstance(edit, MakeTensors)), None)


def _of_arrays(checkpoint: Checkpoint, wanted: PlainForms, objects: Objects) -> Problem:
    found = (*wanted.tensors, *[place for place, _ in wanted.plain])
    into = [kind for kind, some in (("tensors", wanted.tensors), ("lists", wanted.plain)) if some]
    if _resumed(checkpoint, found):
        return Problem(
            message=f"{_arrays(len(found))} in random states ({refused.listed_places(found)})",
            cause="accelerate and transformers write them this way, and allow them when they resume; only "
            "torch.load rejects them.",
            torch_says=_lines(objects),
            advice="To resume with the library that wrote it, you need not do anything.",
            keys=tuple([place.path for place in found]),
            location=refused.first_use(objects.blocked),
            severity=Severity.INFO,
        )
    edits = tuple(refused.conversion_edits(checkpoint, wanted))
    return Problem(
        message=f"{_arrays(len(found))} ({refused.listed_places(found)})",
        cause="NumPy arrays, and so its random states, are not on torch's list, and their module names drift.",
        torch_says=_lines(objects),
        advice="Next time save torch.from_numpy(array) instead.",
        keys=tuple([place.path for place in found]),
        location=refused.first_use(objects.blocked),
        fix=Fix(
            f"convert {wording.plural(len(found), 'NumPy array')} to {' and '.join(into)}",
            edits,
            Safety.SAFE,
            refused.plain_option(checkpoint, "P202"),
        ),
    )


def _resumed(checkpoint: Checkpoint, found: Sequence[BlockedPlace]) -> bool:
    """Return whether a library that allows them wrote these arrays: random states, in files or folders of its own."""
    own = checkpoint.format in _FOLDERS or _STATES.fullmatch(os.path.basename(checkpoint.path)) is not None
    states = [each.path for each in checkpoint.state_dicts if each.role is Role.RNG]
    return own and all(any(each.path[: len(path)] == path for path in states) for each in found)


def _arrays(number: int) -> str:
    return "a NumPy array" if number == 1 else f"{number:,} NumPy arrays"


def _values(number: int) -> str:
    return "a NumPy scalar" if number == 1 else f"{number:,} NumPy scalars"


def _lines(objects: Objects) -> tuple[str, ...]:
    first = sorted(objects.blocked, key=lambda each: each.first.offset)[:1]
    drift = ("No module named 'numpy._core'",) if any(map(_is_new, objects.blocked)) else ()
    return (*refused.refusal_lines(first), *drift)


def _is_new(blocked: Blocked) -> bool:
    return blocked.path.startswith("numpy._core.")
