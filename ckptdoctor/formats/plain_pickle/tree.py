"""The tree of a plain pickle, in which long bytes are counted instead of shown."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, Node
from ckptdoctor.formats.plain_pickle.held import Held
from ckptdoctor.formats.torch_objects.tree import TreeBuilder, _Frame
from ckptdoctor.pickles.graph import Value

_LONGEST_SHOWN = 1 << 16


class PickleTree(TreeBuilder):
    """Builds the tree of a pickle whose bytes stay in the file."""

    def _visit(self, value: Value, path: KeyPath) -> Node | _Frame:
        if type(value) is Held and value.length > _LONGEST_SHOWN:
            return self._elide(f"bytes that are longer than {_LONGEST_SHOWN:,}", path)
        return super()._visit(value, path)
