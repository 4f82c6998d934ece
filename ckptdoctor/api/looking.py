"""Looks at checkpoints from Python: ``open``, ``diff``, ``report`` and ``explain``. And ``load_state_dict``."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from ckptdoctor.api.arguments import (
    WIDTH,
    Listener,
    Path,
    a_screen,
    from_python,
    in_a_screen,
    optional,
    target,
    told,
    told_as,
)
from ckptdoctor.checkpoint import Checkpoint, at, show_path
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.crash import asking_for_torch
from ckptdoctor.differences import Difference
from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.explaining.explanation import Explanation
from ckptdoctor.noun import noun, replace
from ckptdoctor.wording import plural

Framework = Literal["pt", "np"]


@noun(eq=False, slots=False)
class OpenCheckpoint(Checkpoint):
    """What ``open`` gives: the checkpoint as its headers describe it, and its values by key path, read when asked for.

    ``checkpoint["state_dict/fc.weight"]`` is a tensor on the CPU, or an array; a path to a dict, list or plain value
    gives that. Iterating gives the key path of every tensor, so that ``dict(checkpoint)`` has them all.
    """

    framework: Framework = "pt"

    def keys(self) -> tuple[str, ...]:
        """Return the key path of every tensor, in the order of the file."""
        return tuple([show_path(tensor.path) for tensor in self.tensors])

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.tensors)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        try:
            return isinstance(key, str) and find_root(self.tree, key) is not None
        except UsageError:
            return False

    @asking_for_torch()
    def __getitem__(self, key: str) -> Any:
        """Return the value at a key path.

        Raises KeyError for one that is not there, and what ``load`` raises for its values.

        Raises UnreadableError where the file has changed since it was opened.
        """
        from ckptdoctor.formats import opened
        from ckptdoctor.loading.load import load_part

        try:
            place = find_root(self.tree, key) if isinstance(key, str) else None
        except UsageError as error:
            raise KeyError(key) from error
        if place is None:
            raise KeyError(key)
        value = at(self.tree, place)
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        with opened(self.path) as (source, container):
            if container.identity != self.identity:
                raise UnreadableError(f"{self.path} has changed since it was opened: open it again.")
            return load_part(self._whole, source, place, self.framework)

    @cached_property
    def _whole(self) -> Checkpoint:
        """The same with what headers alone do not tell, such as the parts of a packed file."""
        from ckptdoctor.formats import opened, read

        with opened(self.path) as (source, container):
            return read(source, container)


@from_python
def open(path: Path, *, framework: Framework = "pt") -> OpenCheckpoint:
    """Return what a checkpoint holds, from its headers.

    Nothing in it is run, and values are read when they are asked for.

    ``framework`` is what makes its tensors: "pt" is torch, and "np" is NumPy. A large compressed safetensors file is
    unpacked no further than its header until then; a note says what is not known.
    Raises UnreadableError (a missing file is a FileNotFoundError, too), NotACheckpointError, or DamagedError.

    >>> import ckptdoctor
    >>> checkpoint = ckptdoctor.open("sample_ckpts/sick/N401-module-prefix.pt", framework="np")
    >>> checkpoint.keys()[0], checkpoint["module.fc.bias"].shape
    ('module.conv1.weight', (10,))
    """
    from ckptdoctor import formats
    from ckptdoctor.loading.load import require_framework

    require_framework(framework)
    read = formats.open_checkpoint(os.fsdecode(path), headers=True)
    fields: dict[str, Any] = {name: getattr(read, name) for name in Checkpoint.__match_args__}
    return OpenCheckpoint(**fields | {"framework": framework})


class Weights(OrderedDict[str, Any]):
    """What ``load_state_dict`` gives: a state dict whose ``repr`` names its tensors, instead of all their values.

    It is pickled and copied deeply as the OrderedDict that it is: no file that is saved with it needs ckptdoctor.
    """

    def __repr__(self) -> str:
        from ckptdoctor.rendering.numbers import shape, size

        width = max(map(len, self), default=0)
        rows = [
            f"{key:{width}}  {str(each.dtype).removeprefix('torch.')} {shape(each.shape)}" for key, each in self.items()
        ]
        total = size(sum(each.nbytes for each in self.values()))
        return a_screen("\n".join([f"{plural(len(self), 'tensor')}, {total}", *rows]), "list(weights)")

    def __reduce__(self) -> tuple[Any, ...]:
        return (OrderedDict, *super().__reduce__()[1:])


@from_python
def load_state_dict(model: Any, path: Any, root: str | None = None, *, strict: bool = True) -> Weights:
    """Load the weights of the checkpoint at ``path`` into ``model``, a torch.nn.Module; return tensors by key.

    ``model`` may be a mapping of keys to tensors or shapes, too: nothing is loaded then. The arguments may come in
    either order. Repairs happen in memory, and only where they lose nothing and the model confirms them: the state dict
    is found (``root`` chooses it), wrappers' prefixes go, keys get the names they have there. No code of the file runs,
    and device tags do not matter.

    Raises RefusedError, which says how much fits and what is in the way, where it does not fit completely, and the
    model is as it was. With ``strict=False`` what fits is loaded, with a UserWarning where files of the folder are
    missing or damaged. Raises UsageError for a model that is none and a root that is not there, UnreadableError,
    NotACheckpointError or DamagedError for the file, and MissingPackageError where torch is not installed.
    """
    from ckptdoctor.fit.state_dict import load_state_dict

    if isinstance(model, (str, os.PathLike)) and not isinstance(path, (str, os.PathLike)):
        model, path = path, model
    found = load_state_dict(path, model, root, strict=strict)
    weights = Weights(found)
    vars(weights).update(vars(found))  # ``_metadata``
    if callable(getattr(model, "load_state_dict", None)):
        model.load_state_dict(weights, strict=strict)
    return weights


@noun
class Compared(Difference):
    """What ``diff`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import diff_text

        return diff_text.render(self, width=WIDTH)

    __repr__ = in_a_screen


@from_python
def diff(
    a: Path,
    b: Path,
    *,
    values: bool = False,
    root: str | None = None,
    root_b: str | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    progress: Listener | None = None,
) -> Difference:
    """Return how two checkpoints differ, whatever their containers.

    Names, shapes, dtypes, device tags and everything that is not a tensor are compared.

    ``values`` compares the values too, and measures those that differ; so do the tolerances, below which a difference
    does not count. ``root`` is the part to compare ("state_dict"), ``root_b`` that of ``b`` if it is a different one.
    ``Difference.same`` is the answer in one word, ``Difference.summary`` in one sentence; ``Difference.unseen`` is what
    was not compared, such as files of a folder that are missing or damaged. Raises UsageError, UnreadableError,
    NotACheckpointError, or DamagedError.

    >>> import ckptdoctor
    >>> sick = "sample_ckpts/sick/N401-module-prefix.pt"
    >>> ckptdoctor.diff(sick, sick, values=True).same
    True
    """
    from ckptdoctor.diffing import diff as comparing
    from ckptdoctor.diffing.request import DiffRequest

    request = DiffRequest(os.fsdecode(a), os.fsdecode(b), root, root_b, rtol, atol)
    with told(progress):
        if not (values or rtol or atol):
            return told_as(Compared, comparing.diff(request))
        from ckptdoctor.values.differences import compare_values

        return told_as(Compared, comparing.diff(request, compare_values))


@from_python
def report(
    path: Path,
    other: Path | None = None,
    *,
    output: Path = "report.html",
    headers_only: bool = False,
    model: object = None,
    like: Path | None = None,
    config: Path | None = None,
    root: str | None = None,
    force: bool = False,
    progress: Listener | None = None,
) -> str:
    """Write one HTML page about a checkpoint, and return where it is; with ``other``, how that one differs.

    Every byte is read unless ``headers_only``. Of what ``audit`` wrote, the page shows the stores. Raises UsageError,
    UnreadableError or WriteError; then there is no page.

    >>> import ckptdoctor, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = ckptdoctor.report("sample_ckpts/healthy/state_dict.pt", output=f"{folder}/report.html")
    ...     pathlib.Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")
    True
    """
    from ckptdoctor.rendering.gathering import write_report, write_stores
    from ckptdoctor.stores.overview import is_inventory

    if is_inventory(os.fsdecode(path)):
        aims = {"model": model, "like": like, "config": config}
        write_stores(os.fsdecode(path), optional(other), os.fsdecode(output), aims, force=force)
        return os.fsdecode(output)
    if model is not None and not isinstance(model, str):
        raise UsageError('model= of report() is the name of your code, "nets:Net", which the page prints in commands.')
    _, settings = target(model, like, config, None)
    settings = replace(settings, deep=not headers_only, root=root)
    with told(progress):
        write_report(os.fsdecode(path), optional(other), os.fsdecode(output), settings, force=force)
    return os.fsdecode(output)


class Explained(Explanation):
    """What ``explain`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering.explain import as_text, nothing
        from ckptdoctor.rules.registry import all_rules

        if not self.hits:
            return nothing(self, "the text")
        return as_text(self, frozenset([rule.code for rule in all_rules()]))

    def __repr__(self) -> str:
        return a_screen(str(self), "print(explained)")


@from_python
def explain(error: str | BaseException, path: Path | None = None) -> Explained:
    """Return what an error means: its text, a traceback, a whole log, or the exception itself.

    ``path`` is the checkpoint that it is about, with which the explanation is compared; ``repair`` has the options of
    the one repair that makes it load, where several are needed. ``hits`` are the causes, the
    root first; none where nothing in the text is known.

    >>> import ckptdoctor
    >>> text = "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."
    >>> ckptdoctor.explain(text).hits[0].code
    'D601'
    """
    from traceback import format_exception

    from ckptdoctor.examine.explained import judged
    from ckptdoctor.explaining.explanation import explain

    if isinstance(error, BaseException):
        error = "".join(format_exception(type(error), error, error.__traceback__))
    found = explain(error, optional(path))
    if path is not None and found.hits:
        found = judged(found, error, os.fsdecode(path))
    return Explained(*[getattr(found, name) for name in Explanation.__match_args__])
