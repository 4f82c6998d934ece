"""Rules share their words: those of ``ckptdoctor.wording``, shares, places, and the lines that torch prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.noun import noun
from ckptdoctor.wording import and_more as and_more
from ckptdoctor.wording import and_so_on, percent
from ckptdoctor.wording import article as article
from ckptdoctor.wording import beyond as beyond
from ckptdoctor.wording import listed as listed
from ckptdoctor.wording import plural as plural
from ckptdoctor.wording import the_first as the_first

SHOWN = 3  # keys quoted in a line of torch's before it is abridged
_DEPTH = 32  # modules deeper than this are not told apart: keys of a million dots must not cost a million steps each
_UNITS = ("kB", "MB", "GB", "TB")
GROUPS = 4  # modules that a sentence names before it only counts them


def all_of(number: int, noun: str) -> str:
    """Return every one of them: ``all 320 keys``; ``both keys``; ``the only key``."""
    if number == 1:
        return f"the only {noun}"
    return f"both {noun}s" if number == 2 else f"all {number:,} {noun}s"


def fragment(sentence: str) -> str:
    """Return a sentence as a part of another one: without its capital letter and its full stop."""
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


def of_place(path: KeyPath) -> str:
    """Return the place as the end of a noun phrase: `` of state_dict``; nothing for the root."""
    return f" of {show_path(path)}" if path else ""


def in_place(path: KeyPath) -> str:
    """Return the place as an adverbial: `` in state_dict``; nothing for the root."""
    return f" in {show_path(path)}" if path else ""


def abridged(words: Iterable[str], shown: int = SHOWN) -> str:
    """Return the first few words, and ``…`` where there are more."""
    return and_so_on(words, shown)


def files_asked_for(names: Sequence[str]) -> str:
    """Return what transformers prints of shards that the index names and that are not there."""
    more = ", …" if len(names) > SHOWN else "," if len(names) == 1 else ""
    return f"does not appear to have files named ({', '.join(map(repr, names[:SHOWN]))}{more})"


def proportion(part: int, whole: int) -> str:
    """Return a share, never rounded up to 100 % or down to 0 %: ``92.0 %``, ``> 99.9 %``."""
    return percent(part, whole, _rounded, empty="0 %")


def _rounded(share: float) -> str:
    if share >= 99.95:
        return "> 99.9"
    return "< 0.1" if share < 0.05 else f"{share:.1f}"


def shape(sizes: Sequence[int]) -> str:
    """Return a shape: ``[64, 3, 7, 7]``."""
    return f"[{', '.join(map(str, sizes))}]"


def size_words(nbytes: int) -> str:
    """Return ``512 bytes``, ``5.9 kB``, ``102 MB``."""
    if nbytes < 1000:
        return plural(nbytes, "byte")
    power = next((power for power in range(1, len(_UNITS)) if nbytes < 999.5 * 1000**power), len(_UNITS))
    scaled = nbytes / 1000**power
    return f"{scaled:,.0f} {_UNITS[power - 1]}" if scaled >= 99.5 else f"{scaled:,.1f} {_UNITS[power - 1]}"


def missing_line(keys: Iterable[str]) -> str:
    """Return torch's line about missing keys (``Module.load_state_dict``), abridged."""
    return f"Missing key(s) in state_dict: {_quoted(keys)}"


def unexpected_line(keys: Iterable[str]) -> str:
    """Return torch's line about unexpected keys (``Module.load_state_dict``), abridged."""
    return f"Unexpected key(s) in state_dict: {_quoted(keys)}"


def mismatch_line(key: str, here: Sequence[int], there: Sequence[int]) -> str:
    """Return torch's line about a key of another shape (``Module._load_from_state_dict``)."""
    return (
        f"size mismatch for {key}: copying a param with shape torch.Size({shape(here)}) from checkpoint, "
        f"the shape in current model is torch.Size({shape(there)})."
    )


@noun
class KeyGroup:
    """The keys below one module (``""``: the top), and their elements."""

    module: str
    keys: tuple[str, ...]
    parameters: int


def grouped_keys(sizes: Mapping[str, int], at_most: int) -> list[KeyGroup]:
    """Return keys (with their elements) by the deepest modules of which there are at most so many; largest first."""
    depth = min(max([key.count(".") for key in sizes], default=0), _DEPTH)
    while True:
        found: dict[str, list[str]] = {}
        for key in sizes:
            found.setdefault(".".join(key.split(".")[:-1][:depth]), []).append(key)
        if len(found) <= at_most or depth <= 1:
            break
        depth -= 1
    groups = [KeyGroup(module, tuple(keys), sum([sizes[key] for key in keys])) for module, keys in found.items()]
    return sorted(groups, key=lambda group: (-group.parameters, -len(group.keys)))


def module_groups(sizes: Mapping[str, int]) -> str:
    """Return the modules that keys (with their elements) belong to, for people: ``fc (2 keys, 20,490 parameters)``."""
    found = grouped_keys(sizes, GROUPS)
    return listed(found, GROUPS, "module", say=_group)


def _group(group: KeyGroup) -> str:
    keys, parameters = plural(len(group.keys), "key"), plural(group.parameters, "parameter")
    return f"{group.module or group.keys[0]} ({keys}, {parameters})"


def _quoted(keys: Iterable[str]) -> str:
    text = and_so_on([f'"{key}"' for key in islice(keys, SHOWN + 1)], SHOWN)
    return text if text.endswith("…") else f"{text}."
