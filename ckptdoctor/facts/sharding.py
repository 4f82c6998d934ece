"""Checkpoints that lie in several files: what DeepSpeed saved, which tensors are in pieces, which layers are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, NoteKind, Opaque, Sequence, StateDict, Storage, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.checkpoint import UNREAD
from ckptdoctor.facts.names import forms, keys_of
from ckptdoctor.facts.notes import Noted
from ckptdoctor.facts.siblings import SHARD, folder_of
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

DTENSOR = "torch.distributed.tensor.DTensor"
# the module that torch before 2.5 had it in
_DTENSORS = frozenset({DTENSOR, "torch.distributed._tensor.api.DTensor", "torch.distributed._tensor.DTensor"})
_TYPED = "torch._tensor._rebuild_from_type"
_SHARDED_TENSORS = "torch.distributed._shard.sharded_tensor"
_PARTIAL = regex(r"Partial$")  # _NormPartial and such among them
_MESHES = frozenset({"int32", "int64"})  # what the ranks of a mesh are saved as

_OPTIM = regex(r"(\w*)zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states")
_MODEL = regex(r"mp_rank_(\d+)_model_states")
_ZERO = regex(r"zero_pp_rank_\d+_mp_rank_\d+_model_states")


# ---- DeepSpeed


@noun
class DeepSpeed:
    """What a DeepSpeed checkpoint is. ``stage`` and ``ranks`` (who saved partitions) are None where it does not say.

    ``partitions`` are the data-parallel ranks whose partition is there, ``parallel`` how many model-parallel ranks.
    """

    stage: int | None
    ranks: int | None
    partitions: tuple[int, ...]
    parallel: int

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose partition is not there."""
        return tuple(sorted(set(range(min(self.ranks or 0, 1 << 16))) - set(self.partitions)))


def deepspeed(tree: Node) -> DeepSpeed | None:
    """What the branches of a DeepSpeed folder, or the contents of one of its files, say of the whole."""
    top = _entries(tree)
    states = {name: _entries(node) for name, node in top.items() if isinstance(node, Mapping)}  # few, tensors are not
    optimizers = {name: each for name, each in states.items() if _OPTIM.fullmatch(name)}
    models = [each for name, each in states.items() if _MODEL.fullmatch(name) or _ZERO.fullmatch(name)]
    if "module" in top and ("ds_config" in top or "ds_version" in top or "dp_world_size" in top):
        models.append(top)
    if not optimizers and not models:
        return None
    stages = [_entries(each.get("optimizer_state_dict")) for each in optimizers.values()]
    stage = next((found for each in stages if (found := _number(each.get("zero_stage"))) is not None), None)
    if stage is None:
        stage = next((found for each in models if (found := _configured(each)) is not None), None)
    ranks = max((found for each in stages if (found := _count(each.get("partition_count")))), default=None)
    if ranks is None:
        ranks = next((found for each in models if (found := _number(each.get("dp_world_size"))) is not None), None)
    places = {match for name in optimizers if (match := _OPTIM.fullmatch(name)) is not None}
    partitions = tuple(sorted({int(match[2]) for match in places}))
    parallel = len({match[1] for name in states if (match := _MODEL.fullmatch(name)) is not None}) or 1
    return DeepSpeed(3 if any(map(_ZERO.fullmatch, states)) else stage, ranks, partitions, parallel)


def _entries(node: Node) -> dict[str, Node]:
    return {part: child for part, child in node.entries if isinstance(part, str)} if isinstance(node, Mapping) else {}


def _number(node: Node) -> int | None:
    """A whole number, or that of a member of an enum."""
    if isinstance(node, Opaque) and len(node.arguments) == 1:
        node = node.arguments[0]
    return node if type(node) is int else None


def _count(node: Node) -> int:
    """How many partitions: one number, or one for each group of parameters."""
    if isinstance(node, Sequence):
        return max([number for item in node.items if (number := _number(item)) is not None], default=0)
    return _number(node) or 0


def _configured(states: dict[str, Node]) -> int | None:
    """The stage in the configuration that the model's states carry."""
    config = _entries(states.get("ds_config"))
    return _number(_entries(config.get("zero_optimization")).get("stage", 0 if config else None))


# ---- tensors in pieces


@noun
class Pieces:
    """DTensors of a file: ``whole`` are those whose local part is all of the tensor."""

    whole: tuple[Tensor, ...]
    partial: tuple[Tensor, ...]


def dtensors(checkpoint: Checkpoint) -> Pieces:
    """The DTensors, and which of them have all their elements here."""
    found = [tensor for tensor in checkpoint.tensors if tensor.subclass in _DTENSORS]
    if not found:
        return Pieces((), ())
    summed = any(_PARTIAL.search(each.full) for each in checkpoint.globals)  # each rank holds a summand
    whole = [each for each in found if not summed and len(each.parts) == 1 and each.parts[0].shape == each.shape]
    known = {id(each) for each in whole}
    return Pieces(tuple(whole), tuple([each for each in found if id(each) not in known]))


@noun
class Wrappers:
    """The classes of DTensors that are whole, and the storages of their meshes, which no tensor shows."""

    classes: tuple[str, ...]
    storages: tuple[str, ...]


def whole_dtensors(checkpoint: Checkpoint) -> Wrappers | None:
    """The DTensors, where all of them are nothing but what they wrap; None where one is not, or there are none."""
    found = dtensors(checkpoint)
    if found.partial or not found.whole or any(each.is_parameter or each.requires_grad for each in _inner(found)):
        return None
    if any(not each.rebuild.startswith(_TYPED) for each in found.whole):
        return None
    shown = {each.key for each in storages_in(checkpoint.tensors)}
    hidden = [each for each in checkpoint.storages if each.key not in shown]
    meshes = [each.key for each in hidden if each.dtype is not None and each.dtype.name in _MESHES]
    return Wrappers(tuple(sorted({each.subclass for each in found.whole if each.subclass})), tuple(meshes))


def _inner(pieces: Pieces) -> Iterator[Tensor]:
    return (part for tensor in pieces.whole for part in tensor.parts)


def storages_in(tensors: Iterable[Tensor]) -> Iterator[Storage]:
    """The storages of tensors and of what they are made of."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor.storage
        yield from storages_in(tensor.parts)


def sharded_tensors(checkpoint: Checkpoint) -> tuple[Tensor, ...]:
    """The ShardedTensors of a file."""
    return tuple([each for each in checkpoint.tensors if (each.subclass or "").startswith(_SHARDED_TENSORS)])


# ---- indexes

_OF_INDEX = frozenset({NoteKind.INDEX_STALE, NoteKind.INDEX_WRONG, NoteKind.INDEX_OMITS, NoteKind.INDEX_SIZE})
_IN_THE_WAY = UNREAD | {NoteKind.INDEX_LACKS, NoteKind.KEY_IN_TWO_FILES}


def index_to_write(subject: Noted) -> str | None:
    """The name of an index that is wrong, where the headers of the shards say all that a right one does."""
    if not isinstance(subject, Checkpoint) or not subject.tensors:
        return None
    if any(note.kind in _IN_THE_WAY for note in subject.notes):
        return None
    return next((note.member for note in subject.notes if note.kind in _OF_INDEX and note.member), None)


def against_index(checkpoint: Checkpoint) -> str | None:
    """What speaks against the index of a folder, if anything does: none that was written anew may leave it."""
    return next((note.message for note in checkpoint.notes if note.kind in _OF_INDEX | _IN_THE_WAY), None)


# ---- layers

# what models call a list of alike layers
LISTS = frozenset({"layers", "layer", "blocks", "block", "h", "decoder_layers", "encoder_layers", "transformer_blocks"})
_LAYER = regex(r"(?<![^.])([a-z_]+)\.(\d{1,4})\.")
_FEWEST = 4  # layers that a list must have, and names that each of them must hold


@noun
class Layers:
    """A list of alike layers: its name, the numbers that are there, and those between that are not."""

    name: str
    present: tuple[int, ...]
    missing: tuple[int, ...]


@cached_by_identity
def layer_lists(state_dict: StateDict) -> tuple[Layers, ...]:
    """The lists of alike layers in a model: those with several submodules in every one."""
    return tuple(_layer_lists(keys_of(state_dict)))


def _layer_lists(keys: tuple[str, ...]) -> Iterator[Layers]:
    found: dict[str, dict[int, set[str]]] = {}
    places: dict[str, _Place | None] = {}  # by the form of a key: names of layers differ in their numbers
    for key, form in zip(keys, forms(keys), strict=True):
        if form not in places:
            places[form] = _place(form)
        place = places[form]
        if place is not None:
            end, number, inner = place
            inside = found.setdefault(key[:end], {}).setdefault(int(key[number]), set())
            if len(inside) < _FEWEST:  # more need not be told apart
                inside.add(key[inner:])
    for name, layers in found.items():
        if len(layers) >= _FEWEST and all(len(inside) >= _FEWEST for inside in layers.values()):
            present = sorted(layers)
            yield Layers(name, tuple(present), tuple(_between(present)))


_Place = tuple[int, slice, int]  # where in a key the name of a list ends, its number is, and the rest begins


def _place(form: str) -> _Place | None:
    match = _LAYER.search(form, 0, 512)
    if match is None or match[1] not in LISTS or "." not in form[match.end() :]:
        return None
    return match.end(1), slice(*match.span(2)), match.end()


def _between(present: list[int]) -> Iterable[int]:
    """The numbers that are left out; none where that is how the list is made (every second one, or few of many)."""
    if len({after - before for before, after in pairwise(present)}) == 1:
        return ()
    missing = sorted(set(range(present[0], present[-1])) - set(present))
    return missing if 2 * len(missing) <= len(present) else ()


@noun
class ShardFile:
    """A file that is number ``number`` (from 1) of ``count``, and the names of those that do not lie beside it."""

    number: int
    count: int
    missing: tuple[str, ...]


def shards_of(path: str) -> ShardFile | None:
    """The shards that a local file is one of, by its name; None where it is called otherwise, or is not a file here."""
    folder = folder_of(path)
    match = SHARD.search(folder.name)
    if match is None or folder.name not in folder.names:
        return None
    number, count = int(match[1]), int(match[2])
    if not 1 <= number <= count or count == 1:
        return None
    before, after = folder.name[: match.start()], folder.name[match.end() - 1 :]
    names = [f"{before}-{each:05}-of-{match[2]}{after}" for each in range(1, count + 1)]
    return ShardFile(number, count, tuple([name for name in names if name not in folder.names]))
