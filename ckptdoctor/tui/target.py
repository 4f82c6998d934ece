"""What the file should fit, for all screens: read once, since a model of somebody's own code may take long to build."""

from __future__ import annotations

from threading import Lock

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.targets import read_reference

_NAMES = ("like", "model", "config")  # the fields of Settings that name it


class Target:
    """What ``settings`` name, if they name anything, for the file at ``path``."""

    def __init__(self, settings: Settings, path: str | None = None) -> None:
        self.settings = settings
        self._path = path
        self.is_named = any(getattr(settings, name) is not None for name in _NAMES)
        self._reading = Lock()
        self._reference: Reference | None = None

    def read(self) -> Reference | None:
        """What it expects, None where none is named; for a thread, since only the first call reads and others wait.

        Raises what ``examine.targets.read_reference`` does; then the next call tries again.
        """
        with self._reading:
            if self._reference is None and self.is_named:
                self._reference = read_reference(self.settings, self._path)
            return self._reference
