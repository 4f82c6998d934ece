"""The weights in a Hugging Face folder: one file, shards that an index names, or shards that only number themselves."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import FolderSource, Mapping, Node, NoteKind, Part
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.folders.gathering import Gathering
from ckptdoctor.formats.folders.index import Index, read_index
from ckptdoctor.formats.folders.names import CONFIGS, SINGLE, Shards, indexes, shard_sets
from ckptdoctor.formats.folders.union import union
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural


@noun
class Weights:
    """Where a folder's weights are. ``files`` are all of them; one that is alone is ``single``.

    ``shards`` are the numbered files that lie there, whether the index names them or not. ``others`` are further
    indexes and files of weights, which are not read. ``trouble`` says why there is an index but nothing of it.
    """

    files: tuple[str, ...]
    index: Index | None = None
    shards: Shards | None = None
    single: str = ""
    others: tuple[str, ...] = ()
    trouble: DamagedError | None = None


# shard-00001-model-00001-of-00002.safetensors holds a piece of each tensor, not some of the tensors
# (torch.distributed.checkpoint.HuggingFaceStorageWriter with save_distributed=True)
_PIECES = "shard-0"

# files that are said one by one not to have been read
_NAMED = 8

_found: WeakKeyDictionary[FolderSource, Weights | None] = WeakKeyDictionary()


def weights_in(folder: FolderSource) -> Weights | None:
    """Where the weights are, by the names in the folder and its index, which is read once; None: there are none."""
    if folder not in _found:
        _found[folder] = _look(folder)
    return _found[folder]


def _look(folder: FolderSource) -> Weights | None:
    names = frozenset(folder.names)
    single = next((name for name in SINGLE if name in names), "")
    listed = indexes(names)
    sets = [each for each in shard_sets(folder.names) if not each.stem.startswith(_PIECES)]
    # transformers takes model.safetensors before an index, and an index before pytorch_model.bin
    if single.endswith(".safetensors") or (single and not listed and not sets):
        return Weights((single,), single=single, others=(*listed, *[name for name in SINGLE if name in names][1:]))
    if listed:
        others = (*listed[1:], *([single] if single else []))
        return _indexed(folder, listed[0], others, sets)
    if sets:
        further = [file for each in sets[1:] for file in each.present.values()]
        others = (*further, *([single] if single else []))
        return Weights(tuple(sets[0].present.values()), shards=sets[0], others=others)
    return None


def _indexed(folder: FolderSource, name: str, others: tuple[str, ...], sets: list[Shards]) -> Weights:
    stem, suffix = name.partition(".")[0], "safetensors" if ".safetensors." in name else "bin"
    own = next((each for each in sets if (each.stem.partition(".")[0], each.suffix) == (stem, suffix)), None)
    try:
        index = read_index(folder, name)
    except CkptDoctorError as error:
        damaged = error if isinstance(error, DamagedError) else DamagedError(error.message, member=name)
        return Weights(tuple(own.present.values()) if own else (), None, own, others=others, trouble=damaged)
    unnamed = [file for file in own.present.values() if file not in index.files] if own else []
    return Weights((*index.files, *unnamed), index, own, others=others)


def is_model(folder: FolderSource) -> bool:
    """Whether something beside the weights says that this is a model's folder."""
    return not CONFIGS.isdisjoint(folder.names)


def gather_weights(gathering: Gathering, weights: Weights, path: tuple[str, ...] = ()) -> Node:
    """The weights as one state dict at ``path``, or what a single file holds; notes tell what is odd about them."""
    for name in weights.others[:_NAMED]:
        gathering.note(NoteKind.NOT_EXAMINED, f"{name}, beside the weights that were read", name)
    rest = len(weights.others) - _NAMED
    if rest > 0:
        gathering.note(NoteKind.NOT_EXAMINED, f"{plural(rest, 'more file')} beside the weights that were read")
    if weights.single:
        node = gathering.branch(weights.single, path)
        return Mapping("dict", ()) if node is None else node
    return union(gathering, weights.files, weights.index, weights.shards, path)


def model_branch(gathering: Gathering) -> Iterator[tuple[Part, Node]]:
    """The weights of a folder as its branch ``model``; nothing where there are none."""
    weights = weights_in(gathering.folder)
    if weights is None:
        return
    if weights.trouble is not None:
        gathering.note(NoteKind.INDEX_WRONG, weights.trouble.message, weights.trouble.member)
    yield "model", gather_weights(gathering, weights, ("model",))
