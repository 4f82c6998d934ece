"""Where a sparse tensor stands in the graph."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.slots import Slot
from ckptdoctor.formats.torch_objects.states import is_changed
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name
from ckptdoctor.formats.torch_objects.views_in_graph import PARAMETER_MAKERS
from ckptdoctor.pickles.graph import Made

_SPARSE = "torch._utils._rebuild_sparse_tensor"


def sparse_in(graph: GraphEdit, slot: Slot, path: KeyPath) -> Slot:
    """The place of the call that makes the sparse tensor, which belongs to ``path`` alone: a Parameter stays around it.

    Raises RefusedError where there is none.
    """
    while True:
        graph.own(slot)
        node = bare(slot.value)
        if not isinstance(node, Made) or node.op not in CALLS or len(node.items) < 2 or is_changed(node):
            break
        graph.own(Slot(node.items, 1))
        callee, arguments, _ = call(node)
        name = full_name(callee)
        if name == _SPARSE and len(arguments) == 2 and not node.steps:
            return slot
        if name not in PARAMETER_MAKERS or not arguments:
            break
        slot = Slot(arguments, 0)
    raise RefusedError(f"{show_path(path)} is not a sparse tensor that can be made dense.")
