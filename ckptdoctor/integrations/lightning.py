"""Offers Lightning's Trainer a callback that checks each checkpoint when it has been saved.

from ckptdoctor.integrations.lightning import CheckCheckpoints

trainer = Trainer(..., callbacks=[CheckCheckpoints()])
"""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:  # its other name, which is a package of its own
    from pytorch_lightning import Callback  # type: ignore[assignment, unused-ignore]

from ckptdoctor.integrations.saved import SavedCheckpoints, Tell, to_stderr


class CheckCheckpoints(Callback):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
    """Checks each checkpoint on rank 0 when it has been saved, and prints one line, as ``ckptdoctor watch`` does.

    Whoever saves it: ModelCheckpoint, or a call of ``trainer.save_checkpoint`` during the fit. It raises nothing into
    the training, except with ``fail_on``: "invalid" raises DamagedError for a checkpoint that is broken or has NaN,
    "unresumable" also for one that training cannot resume from. Every byte is read, and that of the checkpoint
    before; with ``headers_only`` only headers are. ``tell`` takes the line in place of stderr.
    """

    def __init__(self, *, fail_on: str = "never", headers_only: bool = False, tell: Tell | None = None) -> None:
        self._saved = SavedCheckpoints(fail_on, headers_only, tell)
        self._tell = to_stderr if tell is None else tell

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Have every save of this fit followed by a check: no hook of Lightning comes after a save."""
        if stage != "fit" or "save_checkpoint" in vars(trainer):
            return
        if "Async" in type(trainer.strategy.checkpoint_io).__name__:
            self._tell(
                "AsyncCheckpointIO writes checkpoints later, so that they are not checked here: ckptdoctor watch"
            )
            return
        save = trainer.save_checkpoint  # its last step is a barrier: every rank has written its part

        def save_and_check(filepath: Any, *args: Any, **more: Any) -> None:
            save(filepath, *args, **more)
            if trainer.is_global_zero:
                self._saved.check(os.fspath(filepath))

        trainer.save_checkpoint = save_and_check

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the trainer as it was."""
        vars(trainer).pop("save_checkpoint", None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave it as it was: nothing is torn down after an error."""
        self.teardown(trainer, pl_module, "fit")
