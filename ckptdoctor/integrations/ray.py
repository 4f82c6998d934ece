"""Offers Ray Train the function that validates a checkpoint in a task of its own, while the training goes on.

from ckptdoctor.integrations.ray import validate
from ray.train import ValidationConfig, report

trainer = TorchTrainer(train, validation_config=ValidationConfig(fn=validate), ...)
report(metrics, checkpoint=checkpoint, validation=True)             # in the training function
"""

from __future__ import annotations

from typing import Any

from ckptdoctor.errors import DamagedError
from ckptdoctor.integrations.saved import SavedCheckpoints
from ckptdoctor.runs.grouping import candidates
from ckptdoctor.watching.judging import Watched, require_fail_on

_NO_WEIGHTS = "(W310 "  # a file next to the weights, such as Ray's own extra_state.pt


def validate(checkpoint: Any, *, fail_on: str = "never", headers_only: bool = False) -> dict[str, Any]:
    """Return what is found of a ``ray.train.Checkpoint`` as metrics, whose names begin with ``ckptdoctor_``.

    ``ckptdoctor_valid`` is whether everything in it that is a checkpoint is intact and has no NaN. The others are
    ``ckptdoctor_levels``, such as "V0 V1 V2 V3", ``ckptdoctor_trouble``, ``ckptdoctor_unresumable`` and
    ``ckptdoctor_step``. Raises DamagedError where ``fail_on`` is "invalid" or "unresumable" and it is.
    """
    require_fail_on(fail_on)
    with checkpoint.as_directory() as folder:
        found = [SavedCheckpoints(headers_only=headers_only).judged(each) for each in candidates(folder)]
    weights = [each for each in found if _NO_WEIGHTS not in each.trouble] or found
    if not weights:
        weights = [Watched(*(checkpoint.path, checkpoint.path, "", None, None, "", 0, 0.0), trouble="it is empty")]
    failed = next((each for each in weights if each.fails(fail_on)), None)
    if failed is not None:
        why = failed.trouble or failed.unresumable
        raise DamagedError(f"{failed.name or checkpoint.path} {failed.fails(fail_on)}: {why.rstrip('.')}.")
    worst = next((each for each in weights if each.trouble), weights[0])
    return {
        "ckptdoctor_valid": worst.valid,
        "ckptdoctor_levels": " ".join([each.value for each in worst.levels]),
        "ckptdoctor_trouble": worst.trouble,
        "ckptdoctor_unresumable": worst.unresumable,
        "ckptdoctor_step": worst.step,
    }
