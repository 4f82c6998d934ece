"""What proves bytes later, from Python: ``seal`` and ``verify``, as the commands do."""

from __future__ import annotations

import os
from typing import Literal

from ckptdoctor.api.arguments import Listener, Path, Words, from_python, optional, several, told
from ckptdoctor.sealing.seal import SealReport
from ckptdoctor.sealing.verify import VerifyReport


@from_python
def seal(
    path: Path,
    output: Path | None = None,
    *,
    format: Literal["ckptdoctor", "openssf"] = "ckptdoctor",
    force: bool = False,
    progress: Listener | None = None,
) -> SealReport:
    """Write the hashes of a file or folder next to it (None: ``PATH.seal.json``, or in a folder).

    ``format`` "openssf" writes the manifest that OpenSSF model signing signs instead.
    Raises UsageError, UnreadableError or WriteError.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = ckptdoctor.seal("sample_ckpts/healthy/state_dict.pt", f"{folder}/it.seal.json")
    ...     ckptdoctor.verify("sample_ckpts/healthy/state_dict.pt", seal=made.output).as_sealed
    True
    """
    from ckptdoctor.sealing.seal import seal

    with told(progress):
        return seal(os.fspath(path), optional(output), form=format, force=force)


@from_python
def verify(
    path: Path, seal: Path | None = None, *, tensor: Words = (), progress: Listener | None = None
) -> VerifyReport:
    """Compare a file or folder with its seal (None: the one next to it): ``as_sealed``, and what changed per file.

    With ``tensor``, one key or several, only their bytes are read; ``path`` may be an address then.
    Raises UsageError, UnreadableError, or DamagedError for a seal that is not intact.

    >>> import ckptdoctor, shutil, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = shutil.copy("sample_ckpts/healthy/state_dict.pt", folder)
    ...     sealed = ckptdoctor.seal(path)
    ...     ckptdoctor.verify(path, tensor="fc.bias").files[0].as_sealed
    True
    """
    from ckptdoctor.sealing.verify import verify

    with told(progress):
        return verify(os.fspath(path), optional(seal), tensors=several(tensor))
