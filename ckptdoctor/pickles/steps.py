"""Recording what is done to an object after it was made: items, keys, state."""

from __future__ import annotations

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Popped, Revisit, Step, Value
from ckptdoctor.pickles.machine import Machine


def step(m: Machine, code: int, payload: list[Value], offset: int) -> None:
    """Record a step on the object on top of the stack. Raises LookupError when the stack is empty."""
    target = m.stack[-1]
    if type(target) is not Made or (m.borrowed and m.is_borrowed(target)):
        _step_elsewhere(m, Step(code, payload, late=True), offset)
    elif target.steps is None:
        target.steps = [Step(code, payload)]
    else:
        target.steps.append(Step(code, payload))


def _step_elsewhere(m: Machine, step: Step, offset: int) -> None:
    """A step on an object that was not made at this place of the stack.

    A pickler writes it after an object whose arguments lead back to itself: the object was finished within them, is
    fetched from the memo, and then receives its state.
    """
    top = m.stack[-1]
    holder: Popped | None = None
    while type(top) is Popped:
        holder, top = top, top.result
    if type(top) is Revisit:
        top.steps.append(step)
        target = top.result
    elif type(top) is Made:
        target, revisit = top, Revisit(op.POP, top, [step])
        if holder is None:
            m.stack[-1] = revisit
        else:
            holder.result = revisit
    else:
        m.discarded = True
        m.ambiguous("step-target", f"{op.name_of(step.op)} changes something that is no object made here", offset)
        return
    assert isinstance(target, Made)  # a Revisit is only ever made of one
    if target.steps is None:
        target.steps = []
    target.steps.append(step)
