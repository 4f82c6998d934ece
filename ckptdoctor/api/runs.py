"""What concerns the checkpoints of a run, from Python: ``latest``, as the command does."""

from __future__ import annotations

import os

from ckptdoctor.api.arguments import Listener, Path, from_python, told
from ckptdoctor.runs.latest import Latest


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
