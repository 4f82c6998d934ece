"""Offers transformers' Trainer a callback that checks each checkpoint when it has been saved.

from ckptdoctor.integrations.transformers import CheckCheckpoints

trainer = Trainer(..., callbacks=[CheckCheckpoints()])
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ckptdoctor.integrations.saved import SavedCheckpoints, Tell


class CheckCheckpoints(TrainerCallback):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
    """Checks each checkpoint on rank 0 when it has been saved, and prints one line, as ``ckptdoctor watch`` does.

    It raises nothing into the training, except with ``fail_on``: "invalid" raises DamagedError for a checkpoint that is
    broken or has NaN, "unresumable" also for one that training cannot resume from. Every byte is read, and that of
    the checkpoint before; with ``headers_only`` only headers are. ``tell`` takes the line in place of stderr, such as
    ``logger.info``.
    """

    def __init__(self, *, fail_on: str = "never", headers_only: bool = False, tell: Tell | None = None) -> None:
        self._saved = SavedCheckpoints(fail_on, headers_only, tell)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Check the checkpoint of this step, when every rank has written its files."""
        if args.distributed_state is not None:
            args.distributed_state.wait_for_everyone()
        if state.is_world_process_zero:
            self._saved.check(os.path.join(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"))
