"""What targets expect, asked as every command asks it."""

from __future__ import annotations

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.targets import read_reference


def of_model(model: str, path: str | None = None) -> Reference:
    """The target of ``--model``; ``path`` is the file that should fit."""
    return _asked(Settings(model=model), path)


def of_config(config: str) -> Reference:
    """The target of ``--config``."""
    return _asked(Settings(config=config))


def of_checkpoint(like: str, root: str | None = None) -> Reference:
    """The target of ``--like``, with ``--root``."""
    return _asked(Settings(like=like, root=root))


def _asked(settings: Settings, path: str | None = None) -> Reference:
    found = read_reference(settings, path)
    assert found is not None
    return found
