"""Whether a training checkpoint says where it comes from: how far the training was, and of what."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Mapping, Role
from ckptdoctor.checkpoint.weights import WEIGHTS


def tells_its_origin(checkpoint: Checkpoint) -> bool:
    """Whether there is more at the top of the file than states; true as well where the file is not to resume from.

    Any other value there tells something of the run: its names are those of the person who wrote the script.
    """
    roles = {each.role for each in checkpoint.state_dicts}
    if Role.OPTIMIZER not in roles or not roles & set(WEIGHTS) or not isinstance(checkpoint.tree, Mapping):
        return True
    if checkpoint.metadata or Role.SCHEDULER in roles:  # a scheduler knows its last epoch
        return True
    paths = [each.path for each in checkpoint.state_dicts]
    inner = {path[0] for path in paths if path}
    return any(part not in inner for part, _ in checkpoint.tree.entries)
