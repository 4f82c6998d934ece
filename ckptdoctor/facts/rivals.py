"""Parts of one state dict, told apart by a prefix, that fit a target equally well: generator and discriminator, say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts.ties import same_bytes
from ckptdoctor.facts.twins import is_one

_DEPTH = 8  # tokens that such a prefix can have


def rival_parts(here: Mapping[str, Tensor], reference: Reference) -> tuple[str, ...]:
    """The prefixes below which most of the target is, where there are several of them and their values differ.

    None where the target is there without a prefix, or knows one of the prefixes itself.
    """
    wanted = reference.tensors
    if not wanted or any(key in wanted and wanted[key].shape == each.shape for key, each in here.items()):
        return ()
    parts: dict[str, list[str]] = defaultdict(list)
    for key, tensor in here.items():
        cut, depth = key.find(".") + 1, 0
        while cut and depth < _DEPTH:
            expected = wanted.get(key[cut:])
            if expected is not None and expected.shape == tensor.shape:
                parts[key[:cut]].append(key[cut:])
            cut, depth = key.find(".", cut) + 1, depth + 1
    most = max(map(len, parts.values()), default=0)
    if 2 * most < len(wanted):
        return ()
    first, *others = [part for part, names in parts.items() if len(names) == most]
    rivals = [part for part in others if not _equal(here, first, part, parts[first])]
    return (first, *rivals) if rivals else ()


def _equal(here: Mapping[str, Tensor], one: str, other: str, names: list[str]) -> bool:
    """Whether both parts hold the same values, as far as storages and checksums tell."""
    for name in names:
        ours, theirs = here[one + name], here.get(other + name)
        if theirs is None or not (is_one(ours, theirs) or same_bytes(ours, theirs) is True):
            return False
    return True
