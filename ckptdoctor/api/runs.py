"""What concerns runs and stores, from Python: ``latest``, ``audit``, ``prune`` and ``watch``, as the commands do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckptdoctor.api.arguments import Listener, Path, from_python, paths_of, require_possible, told
from ckptdoctor.noun import replace
from ckptdoctor.runs.latest import Latest

if TYPE_CHECKING:  # a search for the latest needs no database
    from ckptdoctor.pruning.prune import Pruned
    from ckptdoctor.stores.audit import Audited
    from ckptdoctor.watching.judging import Watched


@from_python
def latest(
    run: Path, *, resumable: bool = False, verified: bool = False, progress: Listener | None = None
) -> Latest | None:
    """Return the newest valid checkpoint of a run, or None where there is none, as before the first save.

    It can be used as its path: ``os.fspath`` and ``str`` give it. ``step``, ``levels`` and ``passed_over`` say more.
    ``resumable`` asks for what training needs to resume, ``verified`` reads every byte.
    Raises UnreadableError where the run cannot be listed, UsageError where the folder holds several runs.

    >>> import ckptdoctor
    >>> ckptdoctor.latest("sample_ckpts/healthy/state_dict.pt").level.value
    'V0'
    """
    from ckptdoctor.runs.latest import search

    with told(progress):
        return search(os.fsdecode(run), needs_resumable=resumable, verified=verified).found


@from_python
def audit(
    stores: Path | Sequence[Path],
    output: Path = "store.db",
    *,
    deep: str | None = None,
    shard: tuple[int, int] = (1, 1),
    from_inventory: bool = False,
    limit_rate: str | float | None = None,
    merge: bool = False,
    export: str | None = None,
    engine: str = "local",
    jobs: int | None = None,
    progress: Listener | None = None,
) -> Audited:
    """Examine every checkpoint below one or several folders, and keep what is found in one SQLite database.

    What has not changed since the last time is not examined again. ``jobs`` is the number of processes (None: one for
    each processor). ``deep`` reads every byte of what has "changed" since it was read, of a "sample", or of "all".
    ``shard=(3, 8)`` examines the third of eight parts. With ``merge=True``, ``stores`` are databases that are put
    together, and with ``from_inventory=True`` manifests that an object store wrote. Raises UnreadableError where a
    store cannot be listed, or ``output`` is another file. ``limit_rate`` is how much is read a second, at most:
    "500MB/s". ``export="parquet"`` (or "parquet=FOLDER") also writes the tables as Parquet; without ``stores``, those
    of a database that is there. Raises MissingPackageError where pyarrow is not installed.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ckptdoctor.audit("sample_ckpts/healthy/state_dict.pt", f"{folder}/store.db", jobs=1).examined
    1
    """
    from ckptdoctor.converting.request import size_of
    from ckptdoctor.stores.audit import Audited, AuditRequest, audit
    from ckptdoctor.stores.audit import merge as put_together
    from ckptdoctor.stores.parquet import export as written
    from ckptdoctor.stores.parquet import folder_of

    database = os.fsdecode(output)
    folder = folder_of(export, database) if export is not None else ""
    rate = size_of(limit_rate.removesuffix("/s"), "--limit-rate") if isinstance(limit_rate, str) else limit_rate or 0
    names = paths_of(stores)
    with told(progress):
        if not names and folder:
            return Audited(database, (), 0, 0, 0, 0, 0, (), 0, 0.0, exported=written(database, folder))
        request = AuditRequest(names, database, engine, jobs, shard, deep or "", from_inventory, rate)
        found = put_together(names, database) if merge else audit(request)
        return replace(found, exported=written(database, folder)) if folder and not found.interrupted else found


@from_python
def prune(
    inventory: Path | None = None,
    *,
    keep_last: int = 0,
    keep_every: int = 0,
    keep_best: bool = False,
    metric: str = "",
    broken: bool = False,
    apply: bool = False,
    restore: Path | None = None,
    progress: Listener | None = None,
) -> Pruned:
    """Return what of the stores of an inventory may go; with ``apply`` it is moved into a trash folder.

    ``plan.going`` and ``plan.verdicts`` say what and why; ``restore`` is a trash folder that is brought back instead.
    Raises UsageError where nothing says what is to stay, RefusedError for an inventory that is not complete, and
    UnreadableError.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ckptdoctor.audit("sample_ckpts/healthy/state_dict.pt", f"{folder}/store.db", jobs=1)
    ...     ckptdoctor.prune(f"{folder}/store.db", keep_last=1).plan.going
    ()
    """
    from time import time

    from ckptdoctor.pruning.inventory import holdings, require_one
    from ckptdoctor.pruning.plan import Policy, plan
    from ckptdoctor.pruning.prune import Pruned, carry_out
    from ckptdoctor.pruning.trash import restored

    require_one(inventory, restore)
    if restore is not None:
        return Pruned(restored=tuple(restored(os.fsdecode(restore))))
    assert inventory is not None
    found = holdings(os.fsdecode(inventory), time())
    made = plan(found.checkpoints, Policy(keep_last, keep_every, keep_best, metric, broken), found.pins)
    with told(progress):
        return Pruned(made, tuple(carry_out(found, made)) if apply else ())


@from_python
def watch(
    run: Path,
    *,
    once: bool = False,
    until: int | None = None,
    timeout: float | None = None,
    pid: int | None = None,
    fail_on: str = "never",
    headers_only: bool = False,
    interval: float | None = None,
) -> Iterator[Watched]:
    """Yield each new checkpoint of a run when it is complete, with what was proven and how far its weights moved.

    ``once`` yields what is there now. It ends after a checkpoint of the step ``until`` or later, after ``timeout``
    seconds without a new one, when the process ``pid`` has ended, or with the first checkpoint that is "invalid" or
    "unresumable" (``fail_on``). Every byte is read, except with ``headers_only``.
    Raises UnreadableError where the run cannot be listed, UsageError where the folder holds several runs.

    >>> import ckptdoctor
    >>> [each.levels[0].value for each in ckptdoctor.watch("sample_ckpts/healthy/state_dict.pt", once=True, interval=0)]
    ['V0']
    """
    from ckptdoctor.watching.watch import Watcher, WatchRequest

    require_possible(run)  # what is wrong with it is raised here, and not with the first checkpoint
    watcher = Watcher(WatchRequest(os.fsdecode(run), interval, once, until, timeout, pid, fail_on, headers_only))
    return watcher.checkpoints()
