"""Lays out safetensors files byte for byte as ``safetensors.torch.save_file`` does: order, JSON, padding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Storage, Tensor
from ckptdoctor.checkpoint import Mapping as Tree
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.applied.wanted import Stored, Wanted
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.strided import length, segments
from ckptdoctor.formats.safetensors.header import METADATA
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES, NAME
from ckptdoctor.noun import noun
from ckptdoctor.writing.recipe import Literal, Recipe, Segment

# tensors are written in this order of their dtypes, and by name where these are the same (``prepare`` of its crate:
# the reverse of its enum); so each tensor is aligned to its own elements
_ORDER = (
    *("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16"),
    *("F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "F6_E3M2", "F6_E2M3", "F4", "BOOL"),
)
_RANK = {code: rank for rank, code in enumerate(_ORDER)}

_PAIRED = "float4_e2m1fn_x2"  # torch counts pairs, safetensors elements


@noun
class Entry:
    """One tensor to write, and its name in the file."""

    name: str
    tensor: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return length(self.tensor)


def code_of(tensor: Tensor) -> str | None:
    """Return what safetensors calls the dtype, or None where it has none for it."""
    code = "F4" if tensor.dtype.name == _PAIRED else tensor.dtype.safetensors
    return code if code in _RANK else None


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as safetensors counts."""
    if tensor.dtype.name == _PAIRED and tensor.shape:
        return (*tensor.shape[:-1], tensor.shape[-1] * 2)
    return tensor.shape


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in the order of the file."""
    return sorted(entries, key=lambda entry: (_RANK[code_of(entry.tensor) or ""], entry.name))


def arranged(entries: Iterable[Entry], metadata: Mapping[str, str], original: Checkpoint, file: str) -> Wanted:
    """Return the tensors as a file holds them: each on a storage of its own, in the order of the header.

    Values come from files of the byte order of ``original``.
    """
    found = ordered(entries)
    tensors = tuple([_tensor(entry) for entry in found])
    stored = {
        entry.name: Stored(entry.nbytes, segments(entry.tensor, original.big_endian), shown=entry.tensor)
        for entry in found
    }
    contents = Checkpoint(
        path="",
        format=NAME,
        size=0,
        tree=Tree("dict", tuple([(tensor.key, tensor) for tensor in tensors])),
        tensors=tensors,
        storages=tuple([tensor.storage for tensor in tensors if tensor.storage is not None]),
        state_dicts=(StateDict((), Role.MODEL, tensors),) if tensors else (),
        metadata=dict(metadata) or None,
    )
    return Wanted(original, contents, stored=stored, file=file)


def _tensor(entry: Entry) -> Tensor:
    dtype, shape = BY_SAFETENSORS[code_of(entry.tensor) or ""], shape_of(entry.tensor)
    storage = Storage(entry.name, entry.nbytes, dtype, "cpu", None)
    return Tensor((entry.name,), dtype, shape, contiguous_stride(shape), storage)


def write(wanted: Wanted) -> Recipe:
    """Return how to write the file. Raises RefusedError for what safetensors cannot name."""
    head = _header(wanted.contents)
    data: list[Segment] = [Literal(len(head).to_bytes(LENGTH_BYTES, "little") + head)]
    for storage in wanted.contents.storages:
        data += wanted.stored[storage.key].data
    return Recipe(wanted.file, tuple(data))


def _header(contents: Checkpoint) -> bytes:
    fields: dict[str, object] = {METADATA: contents.metadata} if contents.metadata else {}
    at = 0
    for tensor in contents.tensors:
        if tensor.key == METADATA:
            raise RefusedError(f'A tensor is called "{METADATA}", a name that safetensors reserves; rename it first.')
        end = at + length(tensor)
        fields[tensor.key] = {"dtype": code_of(tensor), "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    try:
        head = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RefusedError("A name or metadata cannot be encoded as UTF-8, so safetensors cannot hold it.") from error
    head += b" " * (-len(head) % LENGTH_BYTES)
    if len(head) > MAX_HEADER_BYTES:
        raise RefusedError(f"The header would have {len(head):,} bytes; safetensors allows {MAX_HEADER_BYTES:,}.")
    return head


# ---- tensors in several files and the index that says which is where, as transformers writes and reads them


INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@noun
class Shard:
    """One file of a folder, and the tensors in it."""

    name: str
    entries: tuple[Entry, ...]


def split(entries: Sequence[Entry], most: int) -> list[Shard]:
    """Return the entries in files of at most ``most`` bytes each, in their order.

    A larger tensor gets a file of its own.

    As ``huggingface_hub.split_torch_state_dict_into_shards`` does.
    """
    groups: list[list[Entry]] = []
    current: list[Entry] = []
    held = 0
    for entry in entries:
        if entry.nbytes > most:
            groups.append([entry])
            continue
        if current and held + entry.nbytes > most:
            current, held = [], 0
        if not current:
            groups.append(current)
        current.append(entry)
        held += entry.nbytes
    count = len(groups)
    if count == 1:
        return [Shard(SINGLE, tuple(groups[0]))]
    return [Shard(f"model-{at:05d}-of-{count:05d}.safetensors", tuple(each)) for at, each in enumerate(groups, 1)]


def index_of(shards: Sequence[Shard], metadata: Mapping[str, object] | None = None) -> bytes:
    """Return ``model.safetensors.index.json`` as transformers writes it.

    What an older one said in its ``metadata`` is kept, and what it counted is counted again.
    """
    entries = [entry for shard in shards for entry in shard.entries]
    where = {entry.name: shard.name for shard in shards for entry in shard.entries}
    more = dict(metadata or {})
    if "total_parameters" in more:
        more["total_parameters"] = sum(entry.tensor.numel for entry in entries)
    return index_text(where, sum(entry.nbytes for entry in entries), more)


def index_text(where: Mapping[str, str], total: int, metadata: Mapping[str, object] | None = None) -> bytes:
    """Return the same of a table from keys to files, and the bytes of all tensors.

    Raises RefusedError for ``metadata`` that is nested too deep.
    """
    said = {"metadata": {**(metadata or {}), "total_size": total}, "weight_map": where}
    try:
        text = json.dumps(said, indent=2, sort_keys=True)
    except RecursionError as error:
        raise RefusedError("The metadata of the index is nested too deep to be kept; delete it first.") from error
    return (text + "\n").encode()
