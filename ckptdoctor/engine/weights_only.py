"""``--weights-only-safe``: what ``torch.load(weights_only=True)`` refuses becomes plain data, and all else stays.

Namespaces, paths, NumPy numbers and dates are what they say; any other object that is nothing but its attributes
becomes the dict of these. What cannot be said in plain data is refused, never dropped.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Opaque, Sequence, show_path
from ckptdoctor.edits import Edit, Replace
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.blocked_globals import Cause, Place, blocked_globals, outermost
from ckptdoctor.facts.gathering import gathered
from ckptdoctor.facts.globals import NEEDS_IMPORT
from ckptdoctor.facts.plain_data import NotPlainError, as_plain

_LISTED = 10

# what other options are for: whole models, tensors of devices without storages
_OTHERS = {Cause.MODULE: "ckptdoctor fix --select P204 --unsafe-fixes", Cause.DEVICE: "ckptdoctor fix --to-cpu"}


def weights_only_edits(checkpoint: Checkpoint) -> list[Edit]:
    """The edits after which torch refuses nothing in the file any more.

    Raises RefusedError, with the list of what stands in the way, where plain data cannot say something.
    """
    refused = [each for each in blocked_globals(checkpoint) if each.path not in NEEDS_IMPORT]
    if not refused:
        return []
    values: dict[tuple[object, ...], object] = {}
    trouble: list[str] = []
    for place in outermost(refused):
        try:
            values[place.path] = _plain(place)
        except NotPlainError as error:
            trouble.append(f"{show_path(place.path)} stays refused: {error}")
    trouble += [f"{each.path} is named, but no value of it is shown" for each in refused if not each.places]
    if trouble:
        ways = [_OTHERS[each.cause] for each in refused if each.cause in _OTHERS]
        raise _refusal(trouble, ways[0] if ways else "--drop KEY leaves one out")
    return [Replace(path, value) for path, value in gathered(checkpoint.tree, values).items()]  # type: ignore[arg-type]  # key paths


def _plain(place: Place) -> object:
    if not place.path:
        raise NotPlainError("it is the whole checkpoint")
    return as_plain(_bared(place.node))


def _bared(node: Node) -> Node:
    """The value with each object in it that is nothing but its attributes as the dict of these."""
    if isinstance(node, Opaque):
        if node.state is None or node.arguments or node.items or node.entries:
            return node
        return _bared(node.state) if isinstance(node.state, Mapping) else node
    if isinstance(node, Mapping):
        return Mapping(node.kind, tuple([(part, _bared(child)) for part, child in node.entries]), node.attributes)
    if isinstance(node, Sequence):
        return Sequence(node.kind, tuple([_bared(child) for child in node.items]))
    return node


def _refusal(trouble: list[str], way: str) -> RefusedError:
    more = [f"  … and {len(trouble) - _LISTED:,} more"] if len(trouble) > _LISTED else []
    lines = ["--weights-only-safe cannot say everything in plain data", *[f"  {each}" for each in trouble[:_LISTED]]]
    return RefusedError("\n".join([*lines, *more, f"  choose: {way}"]))
