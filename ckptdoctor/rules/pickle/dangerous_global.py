"""The file names functions that can run commands when it is loaded with ``weights_only=False``.

What it means
    A pickle is a program: loading it calls what it names. This one names something that starts processes, runs code,
    opens files or reaches any other function (``os.system``, ``builtins.eval``, ``builtins.getattr`` …). No checkpoint
    needs that.

Why it matters
    Whoever loads it with ``weights_only=False``, or with a torch before 2.6, runs what its author wanted to be run.

What you see
    Trying to load unsupported GLOBAL posix.system whose module posix is blocked.
    Unsupported global: GLOBAL getattr was not an allowed global by default.

How it is found
    Every name in the pickle, used or not, is compared with lists of exact modules and names; names with dots are
    followed part by part. Nothing is imported. That a file is not reported here does not prove it harmless: only
    ``weights_only=True`` keeps a pickle from calling other code. NumPy's arrays of objects are pickles as well, which
    ``numpy.load(allow_pickle=True)`` loads.

Repair
    None: do not load it. Get the weights from a source you trust, in safetensors if you can. ``builtins.getattr`` alone
    also comes from honest pickles of bound methods and nested classes; look at what stands at the named key.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.blocked_globals import Cause, blocked_by, of_numpy, outermost
from ckptdoctor.findings import Severity
from ckptdoctor.rules import blocked as refused
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
SICK = (
    Example("a shell command", {"model": _WEIGHTS, "extra": Obj("os.system", arguments=("echo hello",))}),
    Example("code as text", {"model": _WEIGHTS, "extra": Obj("builtins.eval", arguments=("1 + 1",))}),
)
HEALTHY = (Example("the names as text", {"model": _WEIGHTS, "extra": ["os.system", "builtins.eval"]}),)


@rule("P206", "dangerous-global", Severity.ERROR)
def dangerous_global(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Names that can run code."""
    found = blocked_by(checkpoint, Cause.DANGEROUS)
    if not found:
        return
    places = outermost(found)
    where = f" ({refused.places(places)})" if places else ""
    how = "allow_pickle=True" if of_numpy(checkpoint) else "weights_only=False"
    yield Problem(
        message=f"the file names {refused.classes(found)}{where}: with {how} it can run commands",
        cause=f"No checkpoint needs this. Loading it with {how} runs whatever its author put there.",
        torch_says=() if of_numpy(checkpoint) else refused.lines(found),
        advice=f"Do not load it with {how}. Get the weights from a source you trust, in safetensors.",
        keys=tuple([place.path for place in places]),
        location=refused.first_use(found),
    )
