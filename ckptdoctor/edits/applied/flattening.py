"""Turns objects into state dicts of the tensors inside them."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Tensor, at, show_part, show_path
from ckptdoctor.checkpoint.changed_trees import changed_at, missing, move_tensor, storages_of, tensors_in, with_tree
from ckptdoctor.edits import Flatten
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.whole_modules import UnknownStateError, detached
from ckptdoctor.noun import replace

ORDERED_DICT = "collections.OrderedDict"


def flatten(checkpoint: Checkpoint, edit: Flatten) -> Checkpoint:
    """Return the checkpoint with the object at ``edit.path`` as the state dict of its tensors.

    Raises RefusedError for tensors that are not there, or of a kind that cannot be in a state dict.
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
        raise RefusedError(f"{show_path(old)} cannot be in a state dict: {error}.") from error


def _told(checkpoint: Checkpoint, edit: Flatten, after: Checkpoint) -> Iterator[Change]:
    """Yield each tensor's place in the object, and its key.

    At last comes how many the object has that are in none of those places.
    """
    inside = list(tensors_in(at(checkpoint.tree, edit.path)))
    taken = {(*edit.path, *place) for _, place in edit.tensors}
    views = {tensor.place_id or tensor.path for tensor in inside if tensor.path in taken}
    others = {tensor.place_id or tensor.path for tensor in inside} - views
    counts = [(len(edit.tensors), "tensor")]
    if others:
        counts.append((len(others), "tensor left out"))
    pairs = tuple([("/".join(map(show_part, place)), key) for key, place in edit.tensors])
    yield Change("flatten", pairs, tuple(counts), edit.path)


FLATTEN = Act(flatten, _told)
