"""``dcp``: torch.distributed.checkpoint, a folder that all ranks write together, each the parts that it holds.

It can be loaded on another number of ranks; ``python -m torch.distributed.checkpoint.format_utils dcp_to_torch`` makes
an ordinary file of it.
"""

from __future__ import annotations

import io
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ckptdoctor.trainer.strategies.strategy import StateTensors, Strategy
from ckptdoctor.trainer.team import Team

FOLDER = "dcp"


def write(path: Path, weights: StateTensors, strategy: Strategy, team: Team) -> None:
    """Write the folder. Collective. Sharded parameters (DTensors) stay as they are: nobody holds a whole tensor."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict  # half a second, which few runs need
    from torch.distributed.checkpoint.state_dict_saver import save

    state: dict[str, Any] = dict(weights) if strategy.model is None else get_model_state_dict(strategy.model)
    with _own_errors():
        if team.control is None:
            save(state, checkpoint_id=path, no_dist=True)
        else:
            save(state, checkpoint_id=path, process_group=team.control)


def read(path: Path, like: StateTensors) -> StateTensors:
    """Return the tensors of the folder under the keys of ``like``, in this process alone.

    What is missing is an error.
    """
    from torch.distributed.checkpoint.state_dict_loader import load

    state: dict[str, Any] = {key: value.clone() for key, value in like.items()}
    with _own_errors():
        load(state, checkpoint_id=path, no_dist=True)
    return state


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise a rank's error itself, not inside the one that torch makes of the errors of all ranks; no idle warning."""
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        try:
            yield
        except CheckpointException as error:
            own = next(iter(error.failures.values()))[0]
            _let_go_of_the_file(own)
            raise own from error


def _let_go_of_the_file(error: BaseException) -> None:
    """Give torch's writer, which the frames of the error or of one before it keep, another file.

    When it is freed it flushes its own, which is closed by then; since Python 3.13 that is printed, as
    “Exception ignored in: <… NoCloseWriter …>”.
    """
    told: BaseException | None = error
    while told is not None:
        for frame, _ in traceback.walk_tb(told.__traceback__):
            for each in frame.f_locals.values():
                if type(each).__name__ == "NoCloseWriter":
                    each.raw = io.BytesIO()
        told = told.__context__
