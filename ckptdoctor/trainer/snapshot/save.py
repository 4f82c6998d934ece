"""Saving a checkpoint: all ranks together, and whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import dcp, folders, training, truth
from ckptdoctor.trainer.snapshot.collect import collect
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.seeding import RandomState
from ckptdoctor.trainer.snapshot.styles import styles_of
from ckptdoctor.trainer.snapshot.training import saving_with_tag, tag_of
from ckptdoctor.trainer.snapshot.truth import CheckpointMaking
from ckptdoctor.trainer.strategies.strategy import Strategy
from ckptdoctor.trainer.team import Team

# what the archive writer of torch, which is C++, says in a RuntimeError when the disk is full (inline_container.cc)
_WRITER = ("PytorchStreamWriter", "inline_container", "write failed", "unexpected pos")


def save(config: RunConfig, strategy: Strategy, team: Team, position: Position, rng: RandomState | None = None) -> Path:
    """Write the checkpoint folder of ``position`` below ``config.out`` and return its path.

    Collective: every rank calls it, the first one writes, and all are back only when the folder is complete. Raises
    WriteError on every rank when it could not be written; nothing is left of it then, and older ones are untouched.
    """
    out = Path(config.out)
    partial = folders.partial_of(out, position)
    collected = collect(strategy, team, rng)
    making = CheckpointMaking(
        partial, config, strategy, position, collected, config.tag_device or tag_of(strategy.devices[0])
    )
    _together(team, partial, lambda: team.is_first and folders.begin(out, position))
    if dcp.FOLDER in config.save:
        _together(team, partial, lambda: dcp.write(partial / dcp.FOLDER, collected.weights, strategy, team))
    _together(team, partial, lambda: team.is_first and _finish(making))
    return partial.with_name(position.name)


def _finish(making: CheckpointMaking) -> Path:
    """Write the files of the first rank, the truth about them, and give the folder its name."""
    saved = training.contents(making.config, making.position, making.collected)
    training.write(making.folder / folders.TRAINING, saved, making.tag)
    for style in styles_of(making.config):
        with saving_with_tag(making.tag):
            style.write(making.folder / style.file, making.collected, making.strategy)
    truth.write(making)
    return folders.commit(making.folder)


def _together(team: Team, partial: Path, work: Callable[[], object]) -> None:
    """Do the work, and let all ranks know whether it went well on each: none waits for one that has given up."""
    failed: WriteError | None = None
    try:
        with _as_write_error(partial):
            work()
    except WriteError as error:
        failed = error
    if not team.any(failed is not None):
        return
    if team.is_first:
        shutil.rmtree(partial, ignore_errors=True)
    raise failed or WriteError(
        f"Another rank could not write the checkpoint {partial}; its own message gives the reason."
    )


@contextmanager
def _as_write_error(partial: Path) -> Iterator[None]:
    """Raise one sentence instead of what the system, or torch, says of a disk that takes no more."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise WriteError(
            f"The checkpoint {partial.with_suffix('')} could not be written: {reason}. Free some space there "
            "or choose another --out, then continue with --resume; earlier checkpoints are untouched."
        ) from error


def _reason(error: OSError | RuntimeError) -> str | None:
    """Return the reason why writing failed, or None for an error that has nothing to do with it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "the file could not be written to its end" if any(word in str(error) for word in _WRITER) else None
