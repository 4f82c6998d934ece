"""Shows from Python what is in a file: ``show``, as the command prints it."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from ckptdoctor.api.arguments import Listener, Path, Words, a_screen, from_python, several
from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.errors import UsageError
from ckptdoctor.look.contents import Excerpt, read_part
from ckptdoctor.noun import noun
from ckptdoctor.values.statistics import TensorValues, Values

Sort = Literal["nan", "absmax", "norm", "mean", "std", "zeros", "size"]


@noun
class Shown:
    """What ``show`` gives. Its ``repr`` is what the command prints, cut to a screen."""

    part: Excerpt
    what: Literal["", "keys", "devices", "stats"] = ""
    values: Values | None = None
    sort: Sort | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are shown, in the order of the file: ``key``, ``shape``, ``dtype``, ``device``."""
        return self.part.checkpoint.tensors

    @property
    def stats(self) -> dict[str, TensorValues]:
        """The statistics by key path, where values were read: ``min``, ``max``, ``mean``, ``std``, ``nan`` and more."""
        if self.values is None:
            return {}
        found = {show_path(tensor.path): self.values.of(tensor) for tensor in self.tensors}
        return {key: values for key, values in found.items() if values is not None}

    def to_json(self) -> str:
        """Return the document that ``ckptdoctor show --format json`` prints."""
        from ckptdoctor import __version__
        from ckptdoctor.rendering import show_json

        part = self.part
        asked = None if part.asked is None else (part.asked.text, part.asked.tensors)
        if self.values is not None:
            return show_json.render_values(self.values, __version__, part.root, asked)
        return show_json.render(part.checkpoint, __version__, part.root, part.node, asked)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as Python objects."""
        return dict(json.loads(self.to_json()))

    def __str__(self) -> str:
        from ckptdoctor.rendering import devices, tree
        from ckptdoctor.rendering.contents import heading
        from ckptdoctor.rendering.paint import Paint
        from ckptdoctor.rendering.value_table import table

        part = self.part
        if self.what == "keys":
            return tree.keys(part.checkpoint.tensors)
        if self.what == "devices":
            return devices.devices(part.checkpoint)
        title = heading(part.checkpoint, 80, part.asked.tensors if part.asked is not None else None)
        if self.values is not None:
            return "\n".join([*title, table(self.values, self.sort, 80, Paint())])
        return "\n".join([*title, tree.tree(part.checkpoint, part.root, part.node, Paint())])

    def __repr__(self) -> str:
        return a_screen(str(self), "print(shown)")


@from_python
def show(
    path: Path,
    *,
    keys: bool = False,
    devices: bool = False,
    stats: bool = False,
    root: str | None = None,
    filter: Words = (),
    only: Words = (),
    sort: Sort | None = None,
    progress: Listener | None = None,
) -> Shown:
    """Return the contents of a checkpoint as ``ckptdoctor show`` prints them: modules, shapes, dtypes, device tags.

    ``keys`` lists the tensors, ``devices`` lists them by device tag, and ``stats`` reads every value: the result has
    ``stats`` by key path. ``root`` is the part to show ("state_dict"), ``filter`` keeps the tensors that match
    ("conv* >1kB"). ``only`` (patterns of keys) and ``sort`` go with ``stats``.
    Raises UsageError, UnreadableError, NotACheckpointError or DamagedError.

    >>> import ckptdoctor
    >>> shown = ckptdoctor.show("sample_ckpts/sick/N401-module-prefix.pt", stats=True, filter="fc")
    >>> [(tensor.key, tensor.shape) for tensor in shown.tensors][:1], shown.stats["module.fc.bias"].nan
    ([('module.fc.weight', (10, 256))], 0)
    """
    from ckptdoctor.rendering.value_table import ORDERS

    asked = {"keys": keys, "devices": devices, "stats": stats}
    chosen = [name for name, value in asked.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(f'{name}=True' for name in chosen)} are different views: give one.")
    if not stats and (only or sort):
        raise UsageError("only= and sort= need stats=True.")
    if sort is not None and sort not in ORDERS:
        raise UsageError(f"sort={sort!r} is not one of {', '.join(ORDERS)}.")
    text = " ".join(several(filter))
    if stats:
        return _measured(path, root, several(only), text, sort, progress)
    what: Literal["", "keys", "devices"] = "keys" if keys else "devices" if devices else ""
    if not text:
        return Shown(read_part(os.fsdecode(path), root), what)
    from ckptdoctor.look.filtered import read_filtered

    return Shown(read_filtered(os.fsdecode(path), text, root), what)


def _measured(
    path: Path, root: str | None, only: tuple[str, ...], text: str, sort: Sort | None, progress: Listener | None
) -> Shown:
    from ckptdoctor.look.measuring import measured

    found = measured(os.fsdecode(path), root, only, progress or (lambda progress: None), text)
    if found.interrupted:
        raise KeyboardInterrupt
    return Shown(found.part, "stats", found.values, sort)
