"""Finds too much or too little at the beginning of all keys: a prefix, or letters that were cut off."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts import names
from ckptdoctor.match.moves import Gap, Here, Move, Wanted, move
from ckptdoctor.noun import noun

_TRIED = 4  # prefixes worked out in full: those with the most votes
_DEPTH = 32  # tokens that a prefix can have: keys of a million dots must not cost a million steps each


@noun
class Prefix:
    """``text`` ends with a dot. Stripped from the keys that begin with it, or added to all keys."""

    text: str
    added: bool

    def change(self, key: str) -> str:
        """Return the key's new name."""
        if self.added:
            return self.text + key
        return key[len(self.text) :] if key.startswith(self.text) else key

    def holders(self, keys: Iterable[str]) -> int:
        """Return how many of the keys it would rename."""
        return sum([self.added or key.startswith(self.text) for key in keys])


def best_prefix(here: Mapping[str, Tensor], wanted: Mapping[str, Expected], fits: int) -> Prefix | None:
    """Return the prefix with which most keys, and more than ``fits``, have a counterpart of the same shape.

    It is one that half of the keys have, here or (one to add) there, or that gains half of the reference: a prefix that
    only makes some ``aux.fc.weight`` fit a missing ``fc.weight`` is a coincidence. Never one that would give two keys
    one name. At equal effect stripping wins over adding, and the shorter prefix over the longer.
    """
    candidates = [(votes, Prefix(text, added=False)) for text, votes in _votes(here, wanted).most_common(_TRIED)]
    candidates += [(votes, Prefix(text, added=True)) for text, votes in _votes(wanted, here).most_common(_TRIED)]
    best, most = None, fits
    for votes, prefix in sorted(candidates, key=lambda each: (-each[0], each[1].added, len(each[1].text))):
        if votes + fits <= most:
            break
        reached = _reach(here, wanted, prefix)
        if reached > most and (
            2 * (reached - fits) >= len(wanted) or _is_common(prefix, wanted if prefix.added else here)
        ):
            best, most = prefix, reached
    return best


def _is_common(prefix: Prefix, keys: Collection[str]) -> bool:
    """Return whether at least half of the keys begin with it."""
    return 2 * sum([key.startswith(prefix.text) for key in keys]) >= len(keys)


def _votes(longer: Mapping[str, Tensor | Expected], shorter: Mapping[str, Tensor | Expected]) -> Counter[str]:
    """Return how many keys of ``longer`` are a key of ``shorter`` with the same shape behind each prefix."""
    votes: Counter[str] = Counter()
    for key, one in longer.items():
        cut, depth = key.find(".") + 1, 0
        while cut and depth < _DEPTH:
            depth += 1
            other = shorter.get(key[cut:])
            if other is not None and other.shape == one.shape:
                votes[key[:cut]] += 1
            cut = key.find(".", cut) + 1
    return votes


def _reach(here: Mapping[str, Tensor], wanted: Mapping[str, Expected], prefix: Prefix) -> int:
    """Return keys that fit once the prefix is stripped or added, or -1 where two keys would get one name."""
    renamed = {prefix.change(key): tensor for key, tensor in here.items()}
    if len(renamed) < len(here):
        return -1
    fits = 0
    for name, tensor in renamed.items():
        expected = wanted.get(name)
        if expected is not None and expected.shape == tensor.shape:
            fits += 1
    return fits


# attributes in which wrappers of all kinds hold a module, but which a model may have itself
_OTHER_WRAPPERS = names.SURE_WRAPPERS | {"_original_module", "wrapped", "inner", "wrapped_model", "inner_model"}
# PreTrainedModel.base_model_prefix of the usual architectures of transformers
_BASE_MODELS = frozenset(
    {"albert", "bert", "camembert", "deberta", "deit", "distilbert", "electra", "esm", "gpt_neox", "longformer"}
    | {"mobilebert", "mpnet", "roberta", "swin", "transformer", "vit", "wav2vec2", "xlm_roberta"}
)


def prefix_code(prefix: Prefix) -> str:
    """Return the rule that speaks of a prefix.

    N402 where the target is wrapped in ``module.``, N408 for attributes of other wrappers, N410 for those that hold a
    base model, else N409.
    """
    tokens = set(prefix.text[:-1].split("."))
    if prefix.added and tokens == {names.MODULE}:
        return "N402"
    if tokens <= _OTHER_WRAPPERS:
        return "N408"
    return "N410" if tokens <= _BASE_MODELS else "N409"


# ---- letters that were cut off: key[7:], meant for module., done to keys that do not begin with it


_MOST = 64  # letters: nobody counts further
_FEWEST = 2  # keys: one that is the end of another is a coincidence


@noun(eq=False)
class Cut:
    """How many letters are gone, how many keys of the target fell together, and the way back where none did."""

    letters: int
    lost: int
    back: Move | None


def cut_of(here: Here, wanted: Wanted) -> Cut | None:
    """Return the cut that explains every key here.

    It is None where there is none, or where what is gone is a prefix of all.
    """
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
