"""What repairs and converts from Python: ``fix``, ``convert``, ``merge``, ``salvage``, ``graft`` and ``undo``.

Each output is verified before it gets its name, and whatever is raised, nothing has changed then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ckptdoctor.api.arguments import (
    WIDTH,
    Listener,
    Path,
    Words,
    from_python,
    in_a_screen,
    optional,
    paths_of,
    several,
    target,
    told,
    told_as,
)
from ckptdoctor.edits.grafts import FolderGraftReport, GraftReport
from ckptdoctor.errors import UsageError
from ckptdoctor.findings import ConvertReport, RepairReport, SalvageReport
from ckptdoctor.inplace.history import Entry, UndoReport
from ckptdoctor.noun import noun


@noun
class Repaired(RepairReport):
    """What ``fix`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import fix_text

        if self.proof is None and self.steps:
            return fix_text.difference(self)
        return fix_text.outcome(self, width=WIDTH)

    __repr__ = in_a_screen


@from_python
def fix(
    path: Path,
    output: Path | None = None,
    *,
    auto: bool = False,
    model: object = None,
    like: Path | None = None,
    config: Path | None = None,
    error: str | BaseException | None = None,
    root: str | None = None,
    drop: Words = (),
    keep: Words = (),
    slim: bool = False,
    strip_module: bool = False,
    strip_prefix: Words = (),
    rename: Words = (),
    add_prefix: str | None = None,
    merge_adapter: Path | str | None = None,
    to_cpu: bool = False,
    weights_only_safe: bool = False,
    clone_shared: bool = False,
    tie: bool = False,
    remap_optimizer: bool = False,
    dtype: str | None = None,
    qkv_layout: str | None = None,
    expert_layout: str | None = None,
    heads: int | None = None,
    orthogonal_map: str | None = None,
    map: Path | None = None,
    reverse: bool = False,
    write_map: Path | None = None,
    select: Words | None = None,
    unsafe_fixes: bool = False,
    diff: bool = False,
    force: bool = False,
    in_place: bool = False,
    progress: Listener | None = None,
) -> RepairReport:
    """Repair one checkpoint into a new, verified file (None: next to the original, ``name.fixed.ext``).

    Each argument does what the option of ``ckptdoctor fix`` with its name does; with none, the safe fixes of all
    findings are applied. ``drop``, ``keep``, ``strip_prefix`` and ``rename`` ("REGEX=REPL") take one text or several.
    A target, of which ``model`` may be a torch.nn.Module, implies ``auto``. ``diff`` writes nothing. ``in_place``
    changes the file itself, or all shards of a folder and their index together, which ``undo`` restores.
    Raises UsageError, UnreadableError, NotACheckpointError, DamagedError, RefusedError, UnprovenError or WriteError.

    >>> import ckptdoctor
    >>> repaired = ckptdoctor.fix("sample_ckpts/sick/N401-module-prefix.pt", strip_module=True, diff=True)
    >>> repaired.steps[0].label, repaired.proof is None
    ('--strip-module', True)
    """
    from ckptdoctor.converting import fixing
    from ckptdoctor.diagnose.selection import Selection
    from ckptdoctor.examine.targets import read_reference
    from ckptdoctor.repair.request import FixRequest, cast_target, substitution

    reference, settings = target(model, like, config, error)
    if reference is None:
        reference = read_reference(settings, os.fsdecode(path))
    request = FixRequest(
        path=os.fsdecode(path),
        output=optional(output),
        root=root,
        drop=several(drop),
        keep=several(keep),
        slim=slim,
        strip_module=strip_module,
        strip_prefixes=several(strip_prefix),
        renames=tuple([substitution(each) for each in several(rename)]),
        add_prefix=add_prefix,
        merge_adapter=optional(merge_adapter),
        to_cpu=to_cpu,
        weights_only_safe=weights_only_safe,
        clone_shared=clone_shared,
        tie=tie,
        remap_optimizer=remap_optimizer,
        dtype=None if dtype is None else cast_target(dtype),
        selection=Selection(None if select is None else several(select)),
        unsafe=unsafe_fixes,
        force=force,
        auto=auto or ((reference is not None or error is not None) and not remap_optimizer),
        reference=reference,
        error=settings.error,
        name_map=fixing.read_map(optional(map), reverse),
        write_map=optional(write_map),
        qkv_layout=qkv_layout,
        heads=heads,
        expert_layout=expert_layout,
        orthogonal_map=orthogonal_map,
        in_place=in_place,
    )
    with told(progress):
        return told_as(Repaired, fixing.fix(request, dry=diff).report)


@noun
class Converted(ConvertReport):
    """What ``convert`` and ``merge`` give: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import conversion

        return conversion.render(self, width=WIDTH)

    __repr__ = in_a_screen


@from_python
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
    progress: Listener | None = None,
) -> ConvertReport:
    """Write a checkpoint, or several files with keys of their own, in another container: what ``output`` is called.

    ``.pt``, ``.pth``, ``.ckpt`` and ``.bin`` are archives of torch; ``.safetensors`` is one file, and with
    ``shard_size`` ("5GB", or bytes) a folder of them. ``to`` ("torch", "safetensors", "dcp") says what to write where
    the name does not. The options do what those of ``ckptdoctor convert`` do.
    Raises UsageError, UnreadableError, NotACheckpointError, DamagedError, RefusedError, UnprovenError or WriteError;
    then nothing has changed.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = ckptdoctor.convert("sample_ckpts/healthy/state_dict.pt", f"{folder}/it.safetensors")
    ...     ckptdoctor.diff("sample_ckpts/healthy/state_dict.pt", made.output, values=True).same
    True
    """
    from ckptdoctor.converting import conversion as converting
    from ckptdoctor.converting.request import ConvertRequest, size_of

    size = size_of(shard_size) if isinstance(shard_size, str) else shard_size
    named = paths_of(path)
    if not named:
        raise UsageError("convert() needs a file to convert.")
    request = ConvertRequest(named, os.fsdecode(output), size, root, flatten, clone_ties, force, to)
    with told(progress):
        return told_as(Converted, converting.convert(request))


@from_python
def merge(
    paths: Path | Sequence[Path] = (),
    output: Path = "",
    *,
    part: Mapping[str, Path] | None = None,
    shard_size: str | int | None = None,
    force: bool = False,
    progress: Listener | None = None,
) -> ConvertReport:
    """Put the files of a checkpoint together: a folder of shards, or files with keys of their own.

    ``part`` names files that hold one part of a model each ({"encoder": "e.pt"}): their keys get the name before them.
    A key that is in two files must have the same values. Raises what ``convert`` raises.

    >>> import ckptdoctor, tempfile
    >>> parts = {"encoder": "sample_ckpts/healthy/layers.pt", "head": "sample_ckpts/healthy/head100.pt"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = ckptdoctor.merge(output=f"{folder}/both.safetensors", part=parts)
    ...     ckptdoctor.open(made.output).keys()[-1]
    'head.fc.weight'
    """
    from ckptdoctor.converting import conversion as converting
    from ckptdoctor.converting.request import ConvertRequest, size_of

    files = paths_of(paths)
    parts = {name: os.fsdecode(each) for name, each in dict(part or {}).items()}
    if not os.fsdecode(output) or not (files or parts):
        raise UsageError("merge() needs the files to put together, or part=, and the output.")
    for name in parts:
        if not isinstance(name, str) or not all(name.split(".")):
            raise UsageError(f'part=: {name!r} is not the name of a part, such as "encoder".')
    size = size_of(shard_size) if isinstance(shard_size, str) else shard_size
    names = ("",) * len(files) + tuple(parts)
    request = ConvertRequest((*files, *parts.values()), os.fsdecode(output), size, force=force, names=names)
    with told(progress):
        return told_as(Converted, converting.convert(request))


@noun
class Salvaged(SalvageReport):
    """What ``salvage`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import salvage

        return salvage.render(self)

    __repr__ = in_a_screen


@from_python
def salvage(
    path: Path, output: Path | None = None, *, force: bool = False, progress: Listener | None = None
) -> SalvageReport:
    """Recover every intact tensor of a truncated or damaged checkpoint (None: next to it, ``name.salvaged.ext``).

    Every byte is read; what is lost is listed in ``SalvageReport.lost``, and nothing is ever filled in.
    Raises UsageError, UnreadableError, NotACheckpointError, DamagedError, RefusedError where no tensor is intact, or
    WriteError.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = ckptdoctor.salvage("sample_ckpts/sick/F005-truncated-zip.pt", f"{folder}/saved.pt")
    >>> saved.recovered, [tensor.path[-1] for tensor in saved.lost]
    (14, ['fc.weight', 'fc.bias'])
    """
    from ckptdoctor.salvaging.salvage import salvage

    with told(progress):
        return told_as(Salvaged, salvage(os.fsdecode(path), optional(output), force=force))


@noun
class Grafted(GraftReport):
    """What ``graft`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import graft

        return (graft.outcome if self.written else graft.planned)(self, width=WIDTH)

    __repr__ = in_a_screen


@noun
class GraftedFolder(FolderGraftReport):
    """What ``graft`` gives of a folder: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import graft_folder

        return (graft_folder.outcome if self.written else graft_folder.planned)(self, width=WIDTH)

    __repr__ = in_a_screen


@from_python
def graft(
    path: Path,
    donor: Path | None = None,
    output: Path | None = None,
    *,
    key: Words = (),
    root: str | None = None,
    from_root: str | None = None,
    unsafe_fixes: bool = False,
    force: bool = False,
    diff: bool = False,
    progress: Listener | None = None,
) -> GraftReport | FolderGraftReport:
    """Take the damaged tensors of ``path`` from another copy, ``donor``, into a new, verified file.

    Single flipped bits that the checksum locates, and the donor does not heal, are flipped back
    (``GraftReport.healed``); ``donor`` None does only that. ``output`` None is next to it (``name.grafted.ext``).
    ``donor`` may be an address, of which only headers and damaged tensors are fetched (``GraftReport.fetched``);
    ``GraftReport.published`` names the published hash that the whole output has.
    ``key`` takes patterns of tensors to replace whether or not they are known to be damaged. ``root`` and ``from_root``
    are the corresponding parts of both files. ``unsafe_fixes`` consents to a mixture of two saves, and ``diff`` writes
    nothing. ``GraftReport.left`` is what stays damaged.
    A folder is healed file by file with another copy of it, ``donor``: ``FolderGraftReport.shards`` says what became of
    each. Raises UsageError, UnreadableError, NotACheckpointError,
    DamagedError, RefusedError or WriteError; then nothing has changed.

    >>> import ckptdoctor
    >>> damaged, copy = "sample_ckpts/sick/F009-crc-mismatch.pt", "sample_ckpts/healthy/state_dict.pt"
    >>> planned = ckptdoctor.graft(damaged, copy, diff=True)
    >>> [(each.path[-1], each.trouble) for each in planned.grafted]
    [('fc.weight', 'does not match its checksum')]
    """
    from ckptdoctor.grafting import heal as grafting
    from ckptdoctor.grafting.folders import graft_folder
    from ckptdoctor.grafting.request import GraftRequest

    named = os.fsdecode(path), optional(donor), optional(output)
    request = GraftRequest(*named, several(key), root, from_root, unsafe_fixes, force, diff)
    with told(progress):
        if os.path.isdir(named[0]):
            return told_as(GraftedFolder, graft_folder(request))
        return told_as(Grafted, grafting.graft(request))


@noun
class Undone(UndoReport):
    """What ``undo`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import undo

        return undo.undone(self)

    __repr__ = in_a_screen


@from_python
def undo(path: Path, *, list: bool = False) -> UndoReport | tuple[Entry, ...]:
    """Restore a file or folder that ``fix(in_place=True)`` changed: a change each call, an interrupted one first.

    ``UndoReport.journal`` is the change that was undone, None where there was none. ``list`` returns the changes that
    can be undone, the latest first, and changes nothing.
    Raises UnreadableError, RefusedError where the file is not what the change left, DamagedError for a damaged journal,
    or WriteError.

    >>> import ckptdoctor
    >>> ckptdoctor.undo("sample_ckpts/healthy/state_dict.pt").journal is None  # nothing was fixed in place there
    True
    """
    from ckptdoctor.inplace import history
    from ckptdoctor.inplace.disk import SystemDisk

    history.require_there(os.fsdecode(path))
    if list:
        return tuple(history.history(SystemDisk(), os.fsdecode(path)))
    return told_as(Undone, history.undo(SystemDisk(), os.fsdecode(path)))
