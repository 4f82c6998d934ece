"""What concerns runs and stores of them, from Python: ``latest`` and ``audit``, as the commands do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckptdoctor.api.arguments import Listener, Path, from_python, told
from ckptdoctor.runs.latest import Latest

if TYPE_CHECKING:  # a search for the latest needs no database
    from ckptdoctor.stores.audit import Audited


@from_python
def latest(
    run: Path, *, resumable: bool = False, verified: bool = False, progress: Listener | None = None
) -> Latest | None:
    """Return the newest valid checkpoint of a run, or None where there is none, as before the first save.

    It can be used as its path: ``os.fspath`` and ``str`` give it. ``step``, ``levels`` and ``passed_over`` say more.
    ``resumable`` asks for what a training needs to resume, ``verified`` reads every byte.
    Raises UnreadableError where the run cannot be listed, UsageError where the folder holds several runs.

    >>> import ckptdoctor
    >>> ckptdoctor.latest("sample_ckpts/healthy/state_dict.pt").level.value
    'V0'
    """
    from ckptdoctor.runs.latest import search

    with told(progress):
        return search(os.fspath(run), needs_resumable=resumable, verified=verified).found


@from_python
def audit(
    stores: Path | Sequence[Path],
    output: Path = "store.db",
    *,
    deep: str | None = None,
    shard: tuple[int, int] = (1, 1),
    merge: bool = False,
    engine: str = "local",
    jobs: int | None = None,
    progress: Listener | None = None,
) -> Audited:
    """Examine every checkpoint below one or several folders, and keep what is found in one SQLite database.

    What has not changed since the last time is not examined again. ``jobs`` is the number of processes (None: one for
    each processor). ``deep`` reads every byte of what has "changed" since it was read, of a "sample", or of "all".
    ``shard=(3, 8)`` examines the third of eight parts; with ``merge=True``, ``stores`` are databases that are put
    together. Raises UnreadableError where a store cannot be listed, or ``output`` is another file.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ckptdoctor.audit("sample_ckpts/healthy/state_dict.pt", f"{folder}/store.db", jobs=1).examined
    1
    """
    from ckptdoctor.stores.audit import AuditRequest, audit
    from ckptdoctor.stores.audit import merge as put_together

    several = (stores,) if isinstance(stores, (str, os.PathLike)) else stores
    names = tuple([os.fspath(each) for each in several])
    with told(progress):
        if merge:
            return put_together(names, os.fspath(output))
        return audit(AuditRequest(names, os.fspath(output), engine, jobs, shard, deep or ""))
