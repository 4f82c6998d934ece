"""A call of ``torch._utils._rebuild_tensor_v2``, kept as its numbers until someone needs it as nodes.

A tensor is ten nodes, and a checkpoint has up to hundreds of thousands of tensors; reading needs their numbers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptdoctor.pickles.graph import Value


class FoldedTensor:
    """The call whose arguments begin at byte ``at`` of ``data``: ('storage', class, key, location, numel) and the rest.

    ``first`` and ``last`` are the memo indices of the first and the last of its inner nodes. ``tag``, ``kind``,
    ``place`` and ``hooks`` are values that the stream fetches from the memo (``place`` is None where the location is
    written out); ``location`` is the device tag as text, None where the memo holds something else. ``shape`` and
    ``stride`` count elements, as do ``numel`` and ``offset``.
    """

    __slots__ = (
        "_inner", "_items", "at", "callee", "data", "first", "hooks", "key", "kind", "last", "location", "numel",
        "offset", "place", "requires_grad", "shape", "stride", "tag",
    )  # fmt: skip

    def __init__(
        self,
        data: bytes,
        at: int,
        first: int,
        last: int,
        callee: Value,
        fetched: tuple[Value, Value, Value, Value],
        key: str,
        location: str | None,
        numbers: tuple[int, int, tuple[int, ...], tuple[int, ...], bool],
    ) -> None:
        self.data = data
        self.at = at
        self.first = first
        self.last = last
        self.callee = callee
        self.tag, self.kind, self.place, self.hooks = fetched
        self.key = key
        self.location = location
        self.numel, self.offset, self.shape, self.stride, self.requires_grad = numbers
        self._items: list[Value] | None = None
        self._inner: dict[int, Value] | None = None

    @property
    def fetched(self) -> tuple[Value, ...]:
        """The values that it fetches from the memo."""
        return self.tag, self.kind, self.place, self.hooks

    @property
    def opened(self) -> bool:
        """Whether its nodes have been made: they may be referred to, or changed, from elsewhere."""
        return self._items is not None

    def open(self) -> list[Value]:
        """Callee and arguments as nodes: the same ones each time."""
        if self._items is None:
            from ckptdoctor.pickles.tensors import unfolded

            self._items, self._inner = unfolded(self)
        return self._items

    def node(self, index: int) -> Value:
        """The inner node that the stream stores in its memo under ``index``."""
        self.open()
        assert self._inner is not None
        return self._inner[index]
