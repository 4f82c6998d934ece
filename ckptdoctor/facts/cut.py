"""Keys whose first letters were cut off: ``key[7:]``, meant for ``module.``, done to keys that do not begin with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ckptdoctor.facts.moves import Gap, Here, Move, Wanted, move
from ckptdoctor.noun import noun

_MOST = 64  # letters: nobody counts further
_FEWEST = 2  # keys: one that is the end of another is a coincidence
# what torch.nn calls the parameters and buffers that nearly every model has
_LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_TELLING = 3  # letters from which an end of such a name is no name of its own


@noun(eq=False)
class Cut:
    """How many letters are gone, how many keys of the target fell together, and the way back where none did."""

    letters: int
    lost: int
    back: Move | None


def cut_of(here: Here, wanted: Wanted) -> Cut | None:
    """The cut that explains every key here; None where there is none, or where what is gone is a prefix of all."""
    if len(here) < _FEWEST or any(key in wanted for key in here):
        return None
    longest = max(here, key=len)
    for letters in sorted({len(key) - len(longest) for key in wanted if key.endswith(longest)} - {0})[:_MOST]:
        ends: dict[str, list[str]] = defaultdict(list)
        for key in wanted:
            ends[key[letters:]].append(key)
        if any(all(wanted[key].shape != here[end].shape for key in ends.get(end, ())) for end in here):
            continue
        whole = [key for end in here for key in ends[end]]
        if len({key[:letters] for key in whole}) < _FEWEST or all(key[letters - 1 : letters] == "." for key in whole):
            continue
        pairs = [(end, keys[0]) for end in here if len(keys := ends[end]) == 1]
        gap = Gap(here, wanted, tuple(here), tuple(wanted))
        lost = len(whole) - len(here)
        back = move("N403", f"put back the {letters} letters that key[{letters}:] cut off", gap, pairs)
        return Cut(letters, lost, back if not lost else None)
    return None


def ends_of_names(keys: Collection[str]) -> list[str]:
    """Keys that begin with a dot, or are the end of a name of nearly every model, cut in the middle of a word."""
    return [key for key in keys if key.startswith(".") or (len(key) >= _TELLING and key in _ENDS)]


_ENDS = frozenset(
    leaf[start:]
    for leaf in _LEAVES
    for start in range(1, len(leaf) - _TELLING + 1)
    if leaf[start] != "_" and leaf[start - 1] != "_"
)
