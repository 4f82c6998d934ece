"""A condition says whether a rule is asked of a file, by its headers and before the rule is imported.

Importing all rules takes as long as the rest of a check of a small file, and most of them speak of what most files do
not have. ``@rule(..., when=CONDITION)`` says of which files a rule may speak, and ``index.py``, which is generated from
that, is asked instead of the rules. A condition holds wherever its rule finds something in a file by its headers alone;
it may well hold where the rule finds nothing. A rule about a reference, values or all bytes only has none.

Each is asked of the container first, and of the checkpoint once the contents are read. What is about the one does not
hold of the other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from functools import cache
from math import prod
from typing import Union

from ckptdoctor.checkpoint import Checkpoint, Container, Mapping, NoteKind, Role, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.first_bytes import first_value, pickle_protocol
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts import names
from ckptdoctor.facts.names import ends_of_names, keys_of, mentions
from ckptdoctor.facts.siblings import folder_of, suffix_of_unfinished, unfinished_beside
from ckptdoctor.remote.addresses import is_address

Subject = Union[Container, Checkpoint]
Condition = Callable[[Subject], bool]

# what every state dict names: torch.load accepts all of it
HARMLESS = frozenset(
    {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"}
    | {f"torch.{name}Storage" for name in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Byte", "Bool")}
)
_USUAL = ("torch zip", "torch legacy", "safetensors")  # formats that torch and safetensors write and read
_BLOCK = 512  # bytes of st_blocks, whatever the file system
_DEFAULT_PROTOCOL = 2  # of pickles, in torch.save
_SAYS_NOTHING: tuple[dict[str, str] | None, ...] = (None, {}, {"format": "pt"})  # of texts that people wrote
_ENTRY, _SHORT = 32, 100_000  # characters of an entry of ``_metadata`` besides its name, and of all of a short one
_FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
_COMMON = _FLOATS | {"int64", "int32", "int16", "int8", "uint8", "bool"}


class AnyOf:
    """The condition that one of these holds. Whoever asks many conditions asks these one by one, each once."""

    __slots__ = ("conditions",)

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self.conditions = conditions

    def __call__(self, subject: Subject) -> bool:
        """Return whether one holds."""
        return any(condition(subject) for condition in self.conditions)


@cache
def any_of(*conditions: Condition) -> AnyOf:
    """Return the condition that one of these holds."""
    return AnyOf(conditions)


def noticed(subject: Subject) -> bool:
    """Return whether the reader noticed something. What it did not examine is told by no rule, but by the report."""
    return any(note.kind is not NoteKind.NOT_EXAMINED for note in subject.notes)


def pickles_aside(subject: Subject) -> bool:
    """Return whether there are pickles besides those of the contents."""
    return bool(subject.asides)


# ---- of the container


def _of_container(holds: Callable[[Container], bool]) -> Condition:
    return lambda subject: isinstance(subject, Container) and holds(subject)


@_of_container
def unusual_format(container: Container) -> bool:
    """Return whether neither torch.save nor safetensors wrote it."""
    return container.format not in _USUAL


@_of_container
def long_safetensors_header(container: Container) -> bool:
    """Return whether the file may begin with a long header of safetensors: its length comes first."""
    return container.head[8:10] in (b'{"', b"{ ") and any(container.head[3:8])


@_of_container
def unaligned_values(container: Container) -> bool:
    """Return whether the first value begins where memory maps are slow."""
    start = first_value(container)
    return start is not None and start % (64 if container.format == "torch zip" else 8) != 0


def file_named(name: str) -> Condition:
    """Return the condition that the file itself has this name."""
    return _of_container(lambda container: os.path.basename(container.path) == name)


@_of_container
def unfinished(container: Container) -> bool:
    """Return whether the file is called as one that is being written, or one that is called so is next to it."""
    folder = folder_of(container.path)
    return bool(suffix_of_unfinished(folder.name) or unfinished_beside(folder))


# ---- of the contents


def _of_contents(holds: Callable[[Checkpoint], bool]) -> Condition:
    return lambda subject: isinstance(subject, Checkpoint) and holds(subject)


@cache
def format_is(name: str) -> Condition:
    """Return the condition that the reader gives the contents this format."""
    return _of_contents(lambda checkpoint: checkpoint.format == name)


@_of_contents
def unnamed_framework(checkpoint: Checkpoint) -> bool:
    """Return whether it is a safetensors file whose metadata does not say for which framework."""
    return checkpoint.format == "safetensors" and "format" not in (checkpoint.metadata or ())


def path_ends(*endings: str) -> Condition:
    """Return the condition that the path of the file ends so."""
    return _of_contents(lambda checkpoint: checkpoint.path.endswith(endings))


@cache
def file_begins(*beginnings: str) -> Condition:
    """Return the condition that the name of the file begins so."""
    return _of_contents(lambda checkpoint: os.path.basename(checkpoint.path).startswith(beginnings))


@cache
def file_beside(*names: str) -> Condition:
    """Return the condition that one of these files is in the folder of the checkpoint."""
    return _of_contents(lambda checkpoint: not _names_beside(checkpoint).isdisjoint(names))


@cached_by_identity
def _names_beside(checkpoint: Checkpoint) -> frozenset[str]:
    return folder_of(checkpoint.path).names


weights_of_torch_beside = file_beside("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin")


@_of_contents
def numbered_file(checkpoint: Checkpoint) -> bool:
    """Return whether the name says that the file is one of several."""
    return "-of-" in os.path.basename(checkpoint.path)


@_of_contents
def rank_in_path(checkpoint: Checkpoint) -> bool:
    """Return whether the path names a rank, on this machine: only there can the other ranks be looked for."""
    return not is_address(checkpoint.path) and "rank" in os.path.abspath(checkpoint.path).lower()


def is_sparse(path: str) -> bool:
    """Return whether a local regular file has fewer blocks than bytes.

    The file system says so, without reading anything.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # on another machine, or gone
        return False
    return stat.S_ISREG(status.st_mode) and getattr(status, "st_blocks", status.st_size) * _BLOCK < status.st_size


@_of_contents
def possible_holes(checkpoint: Checkpoint) -> bool:
    """Return whether the file may have parts that were never written. Of one on another machine no system says so."""
    path = checkpoint.path
    return not is_address(path) and (not os.path.isfile(path) or is_sparse(path))


class KeysMention:
    """The condition that one of these words is in the keys of the weights.

    Whoever asks many conditions looks for the words of all of these at once: hardly any file has one of them.
    """

    __slots__ = ("words",)

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def __call__(self, subject: Subject) -> bool:
        """Return whether a word is there."""
        return isinstance(subject, Checkpoint) and mention(subject, self.words)


@cache
def keys_mention(*words: str) -> KeysMention:
    """Return the condition that one of these words is in the keys of the weights."""
    return KeysMention(words)


adapter_keys = keys_mention(*names.ADAPTERS)
adapter_file = path_ends(*names.ADAPTER_FILES)
quantized_keys = keys_mention(*names.QUANTIZED)
observer_keys = keys_mention(*names.OBSERVERS)
language_head = keys_mention("lm_head.weight", "embed_out.weight")


@cache
def has(*roles: Role) -> Condition:
    """Return the condition that there are state dicts of all these roles."""
    return _of_contents(lambda checkpoint: {each.role for each in checkpoint.state_dicts}.issuperset(roles))


@_of_contents
def more_than_weights(checkpoint: Checkpoint) -> bool:
    """Return whether the file is not one flat state dict of a model."""
    return not is_flat(checkpoint)


@_of_contents
def more_than_tensors(checkpoint: Checkpoint) -> bool:
    """Return whether there is a value that is not a tensor; ``_metadata`` counts if long, or not only versions."""
    length = _length_of_versions(checkpoint) if is_flat(checkpoint) else None
    return length is None or length > _SHORT


@_of_contents
def texts(checkpoint: Checkpoint) -> bool:
    """Return whether there may be texts besides names of tensors."""
    if checkpoint.metadata not in _SAYS_NOTHING:
        return True
    return not is_flat(checkpoint) or not has_only_versions(checkpoint)


@_of_contents
def nested_weights(checkpoint: Checkpoint) -> bool:
    """Return whether there are weights below the top of the file."""
    return any(each.path for each in checkpoint.state_dicts)


@_of_contents
def no_model(checkpoint: Checkpoint) -> bool:
    """Return whether there is no model, or weights of which the first has no elements."""
    weights = [each for each in checkpoint.state_dicts if each.role in WEIGHTS]
    return not all(each.tensors and each.tensors[0].numel for each in weights) or not any(
        each.role is Role.MODEL for each in weights
    )


@_of_contents
def other_modules(checkpoint: Checkpoint) -> bool:
    """Return whether a dict has ``_metadata`` in which the module of its first key is not named."""
    return any(each.metadata is not None and not _names_first_module(each) for each in checkpoint.state_dicts)


def _names_first_module(state_dict: StateDict) -> bool:
    first = next((key.rpartition(".")[0] for key in state_dict.keys if "." in key), "")
    return state_dict.metadata is not None and any(name == first for name, _ in state_dict.metadata.entries)


@_of_contents
def uncounted_statistics(checkpoint: Checkpoint) -> bool:
    """Return whether a dict with ``_metadata`` has the statistics of a norm layer without their counter."""
    return any(each.metadata is not None and _has_uncounted(each) for each in checkpoint.state_dicts)


def _has_uncounted(state_dict: StateDict) -> bool:
    if state_dict.role not in WEIGHTS or not mentions(state_dict, ("running_mean",)):
        return False
    keys = set(keys_of(state_dict))
    means = [key.removesuffix("running_mean") for key in keys if key.endswith("running_mean")]
    return any(f"{module}num_batches_tracked" not in keys for module in means)


@_of_contents
def flat_parameters(checkpoint: Checkpoint) -> bool:
    """Return whether a key is that of a flat parameter of FSDP, whatever is under it."""
    others = [key for each in checkpoint.state_dicts for key in each.others]
    return any("flat_param" in key for key in others) or mention(checkpoint, ("flat_param",))


# one of these stands in the keys of a list of alike layers (``rules.sharding.layer_lists``)
_LAYER_LISTS = ("layer.", "layers.", "block.", "blocks.", "h.")


@_of_contents
def numbered_layers(checkpoint: Checkpoint) -> bool:
    """Return whether a key may name one of several layers."""
    return any(mentions(each, _LAYER_LISTS) for each in checkpoint.state_dicts)


@_of_contents
def cut_names(checkpoint: Checkpoint) -> bool:
    """Return whether a key may be what is left of a longer one."""
    return any(ends_of_names(keys_of(each)) for each in checkpoint.state_dicts)


@_of_contents
def unusual_names(checkpoint: Checkpoint) -> bool:
    """Return whether the pickle names something that a state dict does not, or may do so unseen."""
    return checkpoint.format not in _USUAL or not {each.full for each in checkpoint.globals} <= HARMLESS


@_of_contents
def newer_pickle_protocol(checkpoint: Checkpoint) -> bool:
    """Return whether the pickle has a newer protocol than torch.save's own."""
    return (pickle_protocol(checkpoint.container) or 0) > _DEFAULT_PROTOCOL


@_of_contents
def part_of_tensors(checkpoint: Checkpoint) -> bool:
    """Return whether the metadata says which part of its tensors the file has."""
    return "DCP_SHARDING_INFO" in (checkpoint.metadata or ())


# ---- of the tensors


@cache
def dtype_begins(*names: str) -> Condition:
    """Return the condition that there are dtypes whose names begin so."""
    return _of_contents(lambda checkpoint: any(each.startswith(names) for each in all_dtypes(checkpoint)))


@_of_contents
def integer_matrices(checkpoint: Checkpoint) -> bool:
    """Return whether there are integers in more than one dimension: the counters of norm layers have none."""
    return any(len(each.shape) > 1 and each.dtype.kind in ("int", "uint") for each in checkpoint.tensors)


@_of_contents
def several_float_dtypes(checkpoint: Checkpoint) -> bool:
    """Return whether weights are in more than one of the usual floating dtypes."""
    return len(all_dtypes(checkpoint) & _FLOATS) > 1


@_of_contents
def rare_dtypes(checkpoint: Checkpoint) -> bool:
    """Return whether there is a dtype that few programs use."""
    return not all_dtypes(checkpoint) <= _COMMON


@_of_contents
def placeholder_shapes(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor has no element, or one where there may have been many."""
    return any(0 in each or each == (1,) for each in all_shapes(checkpoint))


@_of_contents
def tags_beyond_cpu(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor is tagged with another device than the CPU, or has no storage."""
    return not on_the_cpu(checkpoint)


@_of_contents
def has_views(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor does not view all of a storage of its own, in order."""
    return not fill_their_storages(checkpoint)


@_of_contents
def unusual_strides(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor is not a plain array in C order."""
    return not in_c_order(checkpoint)


@_of_contents
def composed_tensors(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor is made of others, of a class of its own, or without bytes."""
    return has_composed_tensors(checkpoint)


@_of_contents
def requires_grad(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor was saved with ``requires_grad``."""
    return True in {each.requires_grad for each in checkpoint.tensors}


@_of_contents
@cached_by_identity
def generator_states(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor may be the state of a random number generator, by its length and its dtype or name."""
    if not any(len(each) == 1 and each[0] in names.RNG_STATE_LENGTHS for each in all_shapes(checkpoint)):
        return False
    sized = [each for each in checkpoint.tensors if len(each.shape) == 1 and each.shape[0] in names.RNG_STATE_LENGTHS]
    return any(each.dtype.name == "uint8" or _named_for_chance(each) for each in sized)


def _named_for_chance(tensor: Tensor) -> bool:
    name = show_path(tensor.path).lower()
    return any(word in name for word in ("rng", "random", "generator"))


# ---- what the tensors of a file are like, all together: told once, before any rule looks at one of them


_NUMBERS = (int, bool, float, type(None))
_CPU = frozenset({"cpu"})


def is_flat(checkpoint: Checkpoint) -> bool:
    """Return whether the file is one dict of tensors under texts, as ``Module.state_dict()`` gives it.

    The dict may have attributes: ``_metadata``.
    """
    if len(checkpoint.state_dicts) != 1 or not isinstance(checkpoint.tree, Mapping):
        return False
    (only,) = checkpoint.state_dicts
    return not only.path and only.role in WEIGHTS and len(only.tensors) == len(checkpoint.tree.entries)


def has_only_versions(checkpoint: Checkpoint) -> bool:
    """Return whether the attributes of the dict at the top are numbers under texts, as ``_metadata`` is; or none."""
    return _length_of_versions(checkpoint) is not None


@cached_by_identity
def _length_of_versions(checkpoint: Checkpoint) -> int | None:
    """Return about how many characters the attributes take if they are numbers under texts, and None otherwise."""
    attributes = checkpoint.tree.attributes if isinstance(checkpoint.tree, Mapping) else None
    stack = [attributes] if attributes is not None else []
    length = 0
    while stack:
        for name, child in stack.pop().entries:
            if not isinstance(name, str):
                return None
            if isinstance(child, Mapping) and child.attributes is None:
                stack.append(child)
            elif type(child) not in _NUMBERS:
                return None
            length += len(name) + _ENTRY
    return length


def mention(checkpoint: Checkpoint, words: names.Words) -> bool:
    """Return whether one of the words is anywhere in the keys of the weights."""
    return any(mentions(each, words) for each in checkpoint.state_dicts if each.role in WEIGHTS)


@cached_by_identity
def all_dtypes(checkpoint: Checkpoint) -> set[str]:
    """Return the names of all dtypes."""
    return {each.dtype.name for each in checkpoint.tensors}


@cached_by_identity
def all_shapes(checkpoint: Checkpoint) -> set[tuple[int, ...]]:
    """Return all shapes."""
    return {each.shape for each in checkpoint.tensors}


@cached_by_identity
def in_c_order(checkpoint: Checkpoint) -> bool:
    """Return whether every tensor is a plain array whose elements are in C order without gaps."""
    views = {(each.shape, each.stride) for each in checkpoint.tensors}
    return {each.layout for each in checkpoint.tensors} <= {"strided"} and all(
        stride == contiguous_stride(shape) for shape, stride in views
    )


@cached_by_identity
def has_composed_tensors(checkpoint: Checkpoint) -> bool:
    """Return whether a tensor is made of others, of another class than torch's own, or has no bytes of its own."""
    return any(each.storage is None or each.parts or each.subclass is not None for each in checkpoint.tensors)


@cached_by_identity
def on_the_cpu(checkpoint: Checkpoint) -> bool:
    """Return whether every tensor has a storage, and all of both are tagged ``cpu``."""
    if has_composed_tensors(checkpoint):
        return False
    return {each.device for each in checkpoint.tensors} | {each.device for each in checkpoint.storages} <= _CPU


@cached_by_identity
def fill_their_storages(checkpoint: Checkpoint) -> bool:
    """Return whether every tensor has a storage to itself, and views all of it in order."""
    tensors = checkpoint.tensors
    if has_composed_tensors(checkpoint) or not in_c_order(checkpoint):
        return False
    keys = {each.storage.key for each in tensors if each.storage is not None}
    return len(keys) == len(tensors) and _fill(tensors, {shape: prod(shape) for shape in all_shapes(checkpoint)})


def _fill(tensors: Iterable[Tensor], elements: dict[tuple[int, ...], int]) -> bool:
    return not [
        each
        for each in tensors
        if each.storage is None or each.offset or elements[each.shape] * each.dtype.bits != 8 * each.storage.nbytes
    ]
