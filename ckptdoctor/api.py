"""What ``import ckptdoctor`` offers: one function for each thing that people do from Python.

Each raises MissingPackageError, with the command that installs it, where what it is asked for is done with torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Union

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.crash import asking_for_torch
from ckptdoctor.differences import Difference
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.edits.grafts import GraftReport
from ckptdoctor.findings import FileReport, RepairReport

Path = Union[str, "os.PathLike[str]"]


def open(path: Path) -> Checkpoint:
    """What a checkpoint holds, from its headers; nothing in it is run and no tensor value is read.

    A large compressed safetensors file is unpacked no further than its header; a note says what is not known then.
    Raises UnreadableError, NotACheckpointError, or DamagedError.
    """
    from ckptdoctor import formats

    return formats.open_checkpoint(os.fspath(path), headers=True)


@asking_for_torch()
def check(
    path: Path,
    *,
    like: Path | None = None,
    reference: object = None,
    root: str | None = None,
    deep: bool = False,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
) -> FileReport:
    """What is wrong with one checkpoint, worst finding first, and what was not examined.

    ``target`` is what it should fit: a torch.nn.Module, a mapping of keys to tensors or shapes, or a ``Reference``;
    ``like`` is another checkpoint instead. ``root`` is the state dict that matters ("state_dict"); ``deep`` reads
    every byte. ``select`` and ``ignore`` are rule codes, names or prefixes.
    Damage is a finding; ``FileReport.error`` is set for what could not be examined at all.
    Raises UsageError for a bad rule code or reference, and what is wrong with the file ``like``.
    """
    from ckptdoctor.diagnose.selection import Selection
    from ckptdoctor.diagnose.settings import Settings
    from ckptdoctor.errors import UsageError
    from ckptdoctor.examine import file as diagnose
    from ckptdoctor.target.mapping import as_reference

    if like is not None and reference is not None:
        raise UsageError("like= and reference= are different targets: give one.")
    selection = Selection(None if select is None else tuple(select), tuple(ignore))
    wanted = os.fspath(like) if like is not None else None
    settings = Settings(selection, deep=deep, like=wanted, root=root, unpack=False)
    report = diagnose.check(os.fspath(path), settings, None if reference is None else as_reference(reference))
    if report.interrupted:
        raise KeyboardInterrupt
    return report


@asking_for_torch()
def fix(
    path: Path,
    output: Path | None = None,
    *,
    root: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    slim: bool = False,
    strip_module: bool = False,
    strip_prefixes: Sequence[str] = (),
    renames: Sequence[str] = (),
    add_prefix: str | None = None,
    to_cpu: bool = False,
    weights_only_safe: bool = False,
    clone_shared: bool = False,
    tie: bool = False,
    remap_optimizer: bool = False,
    dtype: str | None = None,
    select: Sequence[str] | None = None,
    unsafe: bool = False,
    force: bool = False,
) -> RepairReport:
    """Repair one checkpoint into a new, verified file (None: beside the original, ``name.fixed.ext``).

    Each option does what the option of ``ckptdoctor fix`` with its name does; with none, the safe fixes of all
    findings are applied. ``renames`` are written ``REGEX=REPL``. Raises UsageError, UnreadableError,
    NotACheckpointError, DamagedError, RefusedError, UnprovenError or WriteError; then nothing has changed.
    """
    from ckptdoctor.converting.repaired import carry_out
    from ckptdoctor.diagnose.selection import Selection
    from ckptdoctor.repair.plan import plan
    from ckptdoctor.repair.request import FixRequest, cast_target, substitution

    request = FixRequest(
        path=os.fspath(path),
        output=os.fspath(output) if output is not None else None,
        root=root,
        drop=tuple(drop),
        keep=tuple(keep),
        slim=slim,
        strip_module=strip_module,
        strip_prefixes=tuple(strip_prefixes),
        renames=tuple(map(substitution, renames)),
        add_prefix=add_prefix,
        to_cpu=to_cpu,
        weights_only_safe=weights_only_safe,
        clone_shared=clone_shared,
        tie=tie,
        remap_optimizer=remap_optimizer,
        dtype=None if dtype is None else cast_target(dtype),
        selection=Selection(None if select is None else tuple(select)),
        unsafe=unsafe,
        force=force,
    )
    return carry_out(plan(request)).report


@asking_for_torch()
def convert(
    path: Path | Sequence[Path],
    output: Path,
    *,
    shard_size: str | int | None = None,
    root: str | None = None,
    flatten: bool = False,
    clone_ties: bool = False,
    force: bool = False,
    to: str | None = None,
) -> ConvertReport:
    """Write a checkpoint, or several files with keys of their own, in another container: what ``output`` is called.

    ``.pt``, ``.pth``, ``.ckpt`` and ``.bin`` are archives of torch; ``.safetensors`` is one file, and with
    ``shard_size`` ("5GB", or bytes) a folder of them. ``to`` ("torch", "safetensors", "dcp") says what to write where
    the name does not. The options do what those of ``ckptdoctor convert`` do.
    Raises UsageError, UnreadableError, NotACheckpointError, DamagedError, RefusedError, UnprovenError or WriteError;
    then nothing has changed.
    """
    from ckptdoctor.converting import conversion as converting
    from ckptdoctor.converting.request import ConvertRequest, size_of

    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    size = size_of(shard_size) if isinstance(shard_size, str) else shard_size
    named = tuple([os.fspath(each) for each in paths])
    request = ConvertRequest(named, os.fspath(output), size, root, flatten, clone_ties, force, to)
    return converting.convert(request)


@asking_for_torch()
def graft(
    path: Path,
    donor: Path,
    output: Path | None = None,
    *,
    keys: Sequence[str] = (),
    root: str | None = None,
    from_root: str | None = None,
    unsafe: bool = False,
    force: bool = False,
    dry: bool = False,
) -> GraftReport:
    """Take the damaged tensors of ``path`` from another copy, ``donor``, into a new, verified file.

    ``output`` None is beside it (``name.grafted.ext``). ``keys`` are patterns of tensors to take even where nothing is
    known to be wrong with them. ``root`` and ``from_root`` are the parts of both that belong together. ``unsafe``
    consents to a mixture of two saves, and ``dry`` writes nothing. ``GraftReport.left`` is what stays damaged.
    Raises UsageError, UnreadableError, NotACheckpointError, DamagedError, RefusedError or WriteError; then nothing has
    changed.
    """
    from ckptdoctor.grafting import heal as grafting
    from ckptdoctor.grafting.request import GraftRequest

    named = os.fspath(path), os.fspath(donor), None if output is None else os.fspath(output)
    return grafting.graft(GraftRequest(*named, tuple(keys), root, from_root, unsafe, force, dry))


@asking_for_torch()
def diff(
    a: Path,
    b: Path,
    *,
    values: bool = False,
    root: str | None = None,
    root_b: str | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Difference:
    """How two checkpoints differ, in any containers: names, shapes, dtypes, device tags, and what is beside tensors.

    ``values`` compares the values too, and measures those that differ; so do the tolerances, which say what does not
    count. ``root`` is the part that matters ("state_dict"), ``root_b`` that of ``b`` where it is another.
    ``Difference.same`` is the answer in one word, ``Difference.summary`` in one sentence; ``Difference.unseen`` is what
    was not compared, such as files of a folder that are missing or damaged.
    Raises UsageError, UnreadableError, NotACheckpointError, or DamagedError.
    """
    from ckptdoctor.diffing import diff as comparing
    from ckptdoctor.diffing.request import DiffRequest

    request = DiffRequest(os.fspath(a), os.fspath(b), root, root_b, rtol, atol)
    if not (values or rtol or atol):
        return comparing.diff(request)
    from ckptdoctor.values.differences import compare_values

    return comparing.diff(request, compare_values)
