"""Objects that become state dicts of the tensors inside them."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Tensor, show_path
from ckptdoctor.checkpoint.rebuilding import storages_of, with_tree
from ckptdoctor.checkpoint.reshaping import changed_at, missing, move_tensor, tensors_in
from ckptdoctor.edits import Flatten
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.whole_modules import UnknownStateError, detached

ORDERED_DICT = "collections.OrderedDict"


def flatten(checkpoint: Checkpoint, edit: Flatten) -> Checkpoint:
    """The checkpoint with the object at ``edit.path`` as the state dict of its tensors.

    Raises RefusedError for tensors that are not there, or of a kind that cannot stand in a state dict.
    """
    made = with_tree(checkpoint, changed_at(checkpoint.tree, edit.path, lambda node: _state_dict(node, edit)))
    if edit.path:
        return made
    # where everything was the object, what the tree did not show went with it
    used = {storage.key for storage in storages_of(made.tensors)}
    return replace(made, storages=tuple([storage for storage in made.storages if storage.key in used]))


def _state_dict(node: Node, edit: Flatten) -> Mapping:
    inside = {tensor.path: tensor for tensor in tensors_in(node)}
    entries = [(key, _moved(inside, (*edit.path, *place), (*edit.path, key))) for key, place in edit.tensors]
    return Mapping(ORDERED_DICT, tuple(entries))


def _moved(inside: dict[KeyPath, Tensor], old: KeyPath, new: KeyPath) -> Tensor:
    tensor = inside.get(old)
    if tensor is None:
        raise missing(old)
    try:
        return move_tensor(detached(tensor), old, new)
    except UnknownStateError as error:
        raise RefusedError(f"{show_path(old)} cannot stand in a state dict: {error}.") from error
