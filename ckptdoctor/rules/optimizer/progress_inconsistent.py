"""The counters of a Lightning checkpoint disagree on the progress of the training.

Meaning
    ``global_step`` and ``epoch`` at the top were changed, by hand or by a script, and the state of the loops was not.

Why it matters
    The trainer resumes from the state of the loops: changing the numbers at the top has no effect on it, while other
    programs, and file names, follow them. Setting ``epoch`` to 0 does not restart the training.

Symptoms
    A training that resumes at another epoch than the file says, or is finished at once.

Detection
    ``global_step`` is compared with the steps that the loops counted, ``epoch`` with the epochs that they completed; a
    difference of one is normal. The loops write all of them at once, so they agree in every file that Lightning wrote.

Repair
    None: change the loops' counters as well, or load only the weights and start at zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node
from ckptdoctor.facts.optimizers import LIGHTNING, is_count, top
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import more_than_weights

_AUTOMATIC = ("epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed")
_MANUAL = ("epoch_loop.manual_optimization.optim_step_progress", "total", "completed")
_EPOCHS = ("epoch_progress", "current", "completed")


def _saved(epoch: int, step: int, epochs: int, steps: int) -> dict[str, object]:
    loop = {
        "epoch_progress": {"current": {"ready": epochs, "completed": epochs}},
        _AUTOMATIC[0]: {"optimizer": {"step": {"total": {"ready": steps, "completed": steps}}}},
        _MANUAL[0]: {"total": {"ready": 0, "completed": 0}},
    }
    top = {"epoch": epoch, "global_step": step, LIGHTNING: "2.4.0", "optimizer_states": []}
    return {**top, "state_dict": {"fc.weight": T((2, 4)), "fc.bias": T((2,))}, "loops": {"fit_loop": loop}}


SICK = (
    Example("an epoch that was set to zero", _saved(0, 600, 6, 600)),
    Example("a step that was set to zero", _saved(6, 0, 6, 600)),
)
HEALTHY = (
    Example("the end of an epoch", _saved(6, 600, 6, 600)),
    Example("saved before the epoch was counted", _saved(6, 600, 7, 600)),
    Example("a file from another program", {"epoch": 0, "global_step": 600, "model": {"w": T((2, 2))}}),
)


@rule("O759", "progress-inconsistent", Severity.WARNING, when=more_than_weights)
def progress_inconsistent(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report counters at the top that are not those of the loops."""
    entries = top(checkpoint)
    if LIGHTNING not in entries:
        return
    loop = at_path(entries.get("loops"), "fit_loop")
    counted = [each for each in (at_path(loop, *_AUTOMATIC), at_path(loop, *_MANUAL)) if is_count(each)]
    step, epoch, epochs = entries.get("global_step"), entries.get("epoch"), at_path(loop, *_EPOCHS)
    differing = []
    if is_count(step) and counted and step not in (max(map(_number, counted)), sum(map(_number, counted))):
        differing.append(f"global_step {_number(step):,}, and the loops counted {max(map(_number, counted)):,} steps")
    if is_count(epoch) and is_count(epochs) and abs(_number(epoch) - _number(epochs)) > 1:
        differing.append(f"epoch {_number(epoch):,}, and the loops completed {_number(epochs):,} epochs")
    for words in differing:
        yield Problem(
            message=f"the file has {words}",
            cause="The trainer resumes from the loops' counters; the number at the top has no effect on it.",
            advice="To start at zero, load only the weights; otherwise change the state of the loops as well.",
            keys=(("loops",),),
        )


def _number(node: Node) -> int:
    return node if isinstance(node, int) else 0


def at_path(node: Node, *parts: str) -> Node:
    """Return what is below a node, or None where there is nothing."""
    for part in parts:
        if not isinstance(node, Mapping):
            return None
        node = next((child for each, child in node.entries if each == part), None)
    return node
