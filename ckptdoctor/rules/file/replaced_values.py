"""The state of a tensor replaces its values: torch loads other values than the tensor was made from.

Meaning
    A pickle makes a tensor from a storage and then gives it a state: attributes, or a replacement for it. Hooks,
    ``requires_grad`` and attributes of your own change no value. This file's state does: it sets ``data``, ``real`` or
    ``imag``, a method that torch calls while it loads, another storage in a way that no version of torch writes, or it
    changes a storage or class that tensors are made of.

Why it matters
    ``torch.load`` applies it, with ``weights_only=True`` as well. A program that reads only storages shows, compares
    and converts other weights than those that are loaded: a file can pass every check and still load others.

Symptoms
    Nothing. The model does not behave as its weights suggest.

Detection
    Every call that makes a tensor is followed with its state, in Parameters, subclasses, buffers and attributes too.
    What old files of torch write is read (a storage for ``set_``, the five values of a Variable), and so is ``data``
    where it shows exactly the elements that the tensor has, as in files of bitsandbytes. Such a tensor is shown as the
    object that the file describes, never as a tensor.

Repair
    None: download the file from its source again. It is not rewritten, converted or merged, since no copy could be
    proven equal; ``ckptdoctor fix FILE --drop KEY`` leaves the key out.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.when import noticed

_STATED, _TYPED = "torch._utils._rebuild_parameter_with_state", "torch._tensor._rebuild_from_type_v2"
_OWN = T((3,), storage="own")


def _parameter(state: dict[str, object]) -> Obj:
    return Obj(_STATED, arguments=(_OWN, False, {}, state))


SICK = (
    Example("other values", {"w": _parameter({"data": T((3,), value=2.0)}), "b": T((3,))}),
    Example("a storage that is written to", {"w": _parameter({"real": T((3,), value=2.0)})}, "torch legacy"),
    Example("a meaningless state", {"w": Obj("torch._utils._rebuild_parameter", {"data": _OWN}, (_OWN, False, {}))}),
)
HEALTHY = (
    Example("an attribute of a library", {"w": _parameter({"tensor_model_parallel": True, "scale": T((3,))})}),
    Example("the values it already has", {"w": _parameter({"data": _OWN, "requires_grad": False})}),
)


@rule("F017", "replaced-values", Severity.ERROR, when=noticed)
def replaced_values(subject: Noted) -> Iterator[Problem]:
    """Report tensors that are given other values after they were made."""
    yield from problems(
        notes_of(subject, NoteKind.TENSOR_STATE),
        otherwise="the state of a tensor replaces its values",
        cause="torch does not write such files: this one was made or edited to load weights other than those it shows.",
        advice="Download the file from its source again, and do not use the weights. It is not rewritten or converted.",
    )
