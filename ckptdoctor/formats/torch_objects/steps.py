"""What was put into a container or object after it was made, gathered from its steps."""

from __future__ import annotations

from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Value

PAIR_STEPS = frozenset({op.SETITEM, op.SETITEMS})
ITEM_STEPS = frozenset({op.APPEND, op.APPENDS, op.ADDITEMS})


@noun(frozen=False)
class Filling:
    """Keys with their values, items, and states (of BUILD), each in the order in which they were given."""

    keys: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    items: list[Value] = field(default_factory=list)
    states: list[Value] = field(default_factory=list)


def filling(node: Made) -> Filling:
    """Everything that a container or object holds, besides the arguments of its call."""
    found = Filling()
    if node.op == op.DICT:
        found.keys += node.items[::2]
        found.values += node.items[1::2]
    elif node.op == op.LIST:
        found.items += node.items
    for step in node.steps or ():
        if step.op in PAIR_STEPS:
            found.keys += step.payload[::2]
            found.values += step.payload[1::2]
        elif step.op in ITEM_STEPS:
            found.items += step.payload
        elif step.op == op.BUILD:
            found.states += step.payload
    return found
