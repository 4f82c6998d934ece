"""Finds what the files of a request should fit: where the request names it, and in a file that tells more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.diagnose.settings import SOURCES, Settings
from ckptdoctor.errors import DamagedError, NotACheckpointError, UsageError
from ckptdoctor.target import Reference

if TYPE_CHECKING:
    from ckptdoctor.target.saved import Saved


def read_reference(settings: Settings, path: str | None = None) -> Reference | None:
    """Return what the target that ``settings`` names expects to load, or None when none is named.

    ``settings.model`` runs the user's own code. ``path`` is the file that should fit: where the target leaves something
    open, such as the arguments of a class, what is in or next to the file may say it (``Reference.told``).
    Raises UsageError for more than one, and whatever is wrong with it.
    """
    named = [f"--{name}" for name in SOURCES if getattr(settings, name) is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are different targets: give one.")
    if settings.like is not None:
        from ckptdoctor.target.like import from_checkpoint

        return from_checkpoint(settings.like, settings.root)
    if settings.model is not None:
        from ckptdoctor.target.model import from_model

        return from_model(settings.model, path, lambda: _saved(path))
    if settings.config is not None:
        from ckptdoctor.target.config import from_config

        return from_config(settings.config)
    return None


def _saved(path: str | None) -> Saved | None:
    """Return the arguments that the file keeps, or None where it keeps none, or is damaged: its examination says so."""
    from ckptdoctor.target.hyper_parameters import saved_arguments

    if path is None:
        return None
    try:
        return saved_arguments(formats.open_checkpoint(path, headers=True))
    except (DamagedError, NotACheckpointError):
        return None


class Targets:
    """The target of several files: read once, or again for each file where it depends on what the file says."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: Reference | None = None

    @property
    def is_known(self) -> bool:
        """Whether it was read for some file already."""
        return self._known is not None

    def of(self, path: str) -> Reference | None:
        """Return what the file at ``path`` should fit. Raises what ``read_reference`` does."""
        if self._known is None or self._known.by_file:
            self._known = read_reference(self._settings, path)
        return self._known
