"""What concerns the checkpoints of a run, from Python: ``latest`` and ``watch``, as the commands do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckptdoctor.api.arguments import Listener, Path, from_python, told
from ckptdoctor.runs.latest import Latest

if TYPE_CHECKING:
    from ckptdoctor.watching.judging import Watched


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

    watcher = Watcher(WatchRequest(os.fspath(run), interval, once, until, timeout, pid, fail_on, headers_only))
    return watcher.checkpoints()
