"""Compares running stats of norm layers, and the counter that torch 0.4.1 added to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import Mapping as MappingNode
from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts import names
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import noun

COUNTER = "num_batches_tracked"
STATS = ("running_mean", "running_var")
# torch.nn.modules.batchnorm._NormBase._version, and the version that has the counter
VERSION = 2
_BUFFERS = frozenset({*STATS, COUNTER})
# what tells the name that a module got after the renames, where the module is here
_TELLING = ("running_var", "running_mean", "weight", "bias")


@noun
class RunningStats:
    """Running stats that a target does not keep for the layer ``module``; all names are those after the renames.

    ``keys`` are the stats, and their counter where it is here. ``unversioned``: ``_metadata`` gives the layer no
    version. ``bare``: neither side has parameters for the layer. ``dims`` are those that the layer before it convolves
    over, 2 where that does not tell.
    """

    module: str
    keys: tuple[str, ...]
    unversioned: bool
    bare: bool
    dims: int

    @property
    def old(self) -> bool:
        """Whether it was saved as torch before 0.4 did: without a counter and without a version."""
        return self.unversioned and len(self.stats) == len(self.keys)

    @property
    def stats(self) -> tuple[str, ...]:
        """The keys without the counter."""
        return tuple([key for key in self.keys if leaf(key) != COUNTER])


def leaf(key: str) -> str:
    """Return the last token: the name of the tensor in its module."""
    return key.rpartition(".")[2]


def module_of(key: str) -> str:
    """Return the module that a key belongs to; ``""`` at the top."""
    return key.rpartition(".")[0]


def inside(module: str, name: str) -> str:
    """Return the key of a tensor in a module."""
    return f"{module}.{name}" if module else name


def versions(state_dict: StateDict) -> Iterator[tuple[str, int]]:
    """Yield the modules that ``_metadata`` gives a version, as the file calls them."""
    for module, node in state_dict.metadata.entries if state_dict.metadata is not None else ():
        version = dict(node.entries).get("version") if isinstance(node, MappingNode) else None
        if isinstance(module, str) and isinstance(version, int):
            yield module, version


@cached_by_identity
def final_versions(comparison: Comparison) -> dict[str, tuple[str, int]]:
    """Return the modules by their final names, each with its name in the file and its version in ``_metadata``."""
    state_dict = comparison.state_dict
    if state_dict is None or state_dict.metadata is None:
        return {}
    here = set(names.keys_of(state_dict))
    found = {}
    for module, version in versions(state_dict):
        telling = next((name for name in _TELLING if inside(module, name) in here), COUNTER)
        found[module_of(comparison.final_name(inside(module, telling)))] = module, version
    return found


def without_counter(state_dict: StateDict) -> tuple[str, ...]:
    """Return the modules (as the file calls them) with both running stats and no counter, though their version has one.

    Exactly torch's version: a norm layer of somebody else's may have another, and no counter at all.
    """
    if not names.mentions(state_dict, STATS):
        return ()
    keys = {*names.keys_of(state_dict), *state_dict.others}
    return tuple(
        [
            module
            for module, version in versions(state_dict)
            if version == VERSION
            and inside(module, COUNTER) not in keys
            and all(inside(module, name) in keys for name in STATS)
        ]
    )


def uncounted(comparison: Comparison, key: str) -> bool:
    """Return whether a missing key is a counter that torch sets to 0, as no version of its layer is known."""
    return leaf(key) == COUNTER and _version(final_versions(comparison), key) < VERSION


def _version(of: Mapping[str, tuple[str, int]], key: str) -> int:
    """Return the version of the module that a key belongs to, or 0 where there is none."""
    return of.get(module_of(key), ("", 0))[1]


def missing_counters(comparison: Comparison, of: Mapping[str, tuple[str, int]]) -> tuple[tuple[str, ...], list[str]]:
    """Return missing counters, those that torch asks for though running stats are here, and those it does not ask for.

    Below version 2, and without a version, it sets them to 0 itself. Source:
    ``torch.nn.modules.batchnorm._NormBase._load_from_state_dict``.
    """
    here, asked, unasked = comparison.renamed.here, [], []
    for key in comparison.renamed.missing:
        if leaf(key) == COUNTER:
            if _version(of, key) < VERSION:
                unasked.append(key)
            elif any(inside(module_of(key), name) in here for name in STATS):
                asked.append(key)
    return tuple(asked), unasked


def frozen_counters(comparison: Comparison, unexpected: Iterable[str]) -> tuple[str, ...]:
    """Return counters that a target does not keep, in layers of which nothing else is left over."""
    by_module = _by_module(unexpected)
    return tuple(
        [
            keys[0]
            for keys in by_module.values()
            if len(keys) == 1 and leaf(keys[0]) == COUNTER and _is_counter(comparison.renamed.here[keys[0]])
        ]
    )


def unwanted_stats(
    comparison: Comparison, unexpected: Iterable[str], of: Mapping[str, tuple[str, int]]
) -> tuple[RunningStats, ...]:
    """Return running stats of layers that the target has without them.

    The layer is its own, or one in front of as many channels.
    """
    here = comparison.renamed.here
    modules = {module: keys for module, keys in _by_module(unexpected).items() if _only_buffers(keys, here)}
    before = _before(here, modules) if modules else {}
    found = []
    for module, keys in modules.items():
        bare = _is_bare(module, comparison)
        follows = before.get(module, ())
        size = next(here[key].shape[0] for key in keys if leaf(key) in STATS)
        if (bare and size in (follows[:2] if len(follows) > 2 else follows[:1])) or (
            not bare and _has_parameters(module, comparison)
        ):
            found.append(
                RunningStats(module, tuple(keys), module not in of, bare, min(max(len(follows) - 2, 0), 3) or 2)
            )
    return tuple(found)


def _before(here: Mapping[str, Tensor], modules: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return the shape of the last weight with more than one dimension before each of the modules."""
    found: dict[str, tuple[int, ...]] = {}
    last: tuple[int, ...] = ()
    for key, tensor in here.items():
        if len(tensor.shape) > 1 and leaf(key) == "weight":
            last = tensor.shape
        elif leaf(key) in STATS and module_of(key) in modules:
            found.setdefault(module_of(key), last)
    return found


def _is_bare(module: str, comparison: Comparison) -> bool:
    """Return whether neither side has anything else in the layer."""
    here, wanted = comparison.renamed.here, comparison.reference.tensors
    own = [inside(module, name) for name in ("weight", "bias")]
    buffers = [inside(module, name) for name in _BUFFERS]
    return not any(key in wanted for key in (*own, *buffers)) and not any(key in here for key in own)


def _has_parameters(module: str, comparison: Comparison) -> bool:
    """Return whether the layer's parameters are on both sides, in the same shapes."""
    here, wanted = comparison.renamed.here, comparison.reference.tensors
    own = [inside(module, name) for name in ("weight", "bias")]
    return any(key in wanted for key in own) and all(
        key in here and key in wanted and here[key].shape == wanted[key].shape
        for key in own
        if key in wanted or key in here
    )


def _only_buffers(keys: list[str], here: Mapping[str, Tensor]) -> bool:
    stats = [here[key] for key in keys if leaf(key) in STATS]
    if not stats or not {leaf(key) for key in keys} <= _BUFFERS:
        return False
    one_size = len({tensor.shape for tensor in stats}) == 1 and len(stats[0].shape) == 1
    return one_size and all(each.dtype.kind == "float" for each in stats)


def _is_counter(tensor: Tensor) -> bool:
    return tensor.numel == 1 and tensor.dtype.kind in ("int", "uint", "float")


def _by_module(keys: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(module_of(key), []).append(key)
    return found
