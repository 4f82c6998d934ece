"""What the file should fit, for all screens: read once, since a model of somebody's own code may take long to build."""

from __future__ import annotations

from threading import Lock

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.engine.diagnose import read_reference
from ckptdoctor.engine.settings import Settings

_NAMES = ("like", "model", "config")  # the fields of Settings that name it


class Target:
    """What ``settings`` name, if they name anything."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_named = any(getattr(settings, name) is not None for name in _NAMES)
        self._reading = Lock()
        self._reference: Reference | None = None

    def read(self) -> Reference | None:
        """What it expects, None where none is named; for a thread, since only the first call reads and others wait.

        Raises what ``engine.diagnose.read_reference`` does; then the next call tries again.
        """
        with self._reading:
            if self._reference is None and self.is_named:
                self._reference = read_reference(self.settings)
            return self._reference
