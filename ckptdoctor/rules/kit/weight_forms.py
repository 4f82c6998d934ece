"""A weight may be kept in parts: weight norm, spectral norm, other parametrisations, pruning, LoRA.

One side of an error has the parts of one way, the other side those of another way or the plain weight. Of a file these
are told by all parts and their shapes (``facts.weight_norms``); an error names no shapes, and a list that is cut short
not all of the parts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from ckptdoctor.noun import noun
from ckptdoctor.rules.incompatible_keys import Cause, Repair
from ckptdoctor.rules.messages import Way


class WeightForm(Enum):
    """How a weight is kept."""

    PLAIN = "plain"
    OLD_WEIGHT_NORM = "weight_g and weight_v"
    NEW_WEIGHT_NORM = "parametrizations.weight.original0 and original1"
    OLD_SPECTRAL_NORM = "weight_orig, weight_u and weight_v"
    NEW_SPECTRAL_NORM = "parametrizations.weight.original, 0._u and 0._v"
    PRUNED = "weight_orig and weight_mask"
    PARAMETRIZED = "parametrizations.weight.original"
    LORA = "base_layer.weight, lora_A and lora_B"


# what each part is; parts of one role have one shape, and "direction" has the shape of the plain weight
_ROLES = {
    WeightForm.PLAIN: {"": "direction"},
    WeightForm.OLD_WEIGHT_NORM: {"g": "length", "v": "direction"},
    WeightForm.NEW_WEIGHT_NORM: {"original0": "length", "original1": "direction"},
    WeightForm.OLD_SPECTRAL_NORM: {"orig": "direction", "u": "u", "v": "v", "": "direction"},
    WeightForm.NEW_SPECTRAL_NORM: {"original": "direction", "0._u": "u", "0._v": "v"},
    WeightForm.PRUNED: {"orig": "direction", "mask": "mask"},
    WeightForm.PARAMETRIZED: {"original": "direction"},
    WeightForm.LORA: {"base_layer": "direction"},
}
_OLD = re.compile(r"(?P<module>(?:.*\.)?)(?P<name>\w+?)_(?P<part>g|v|orig|u|mask)")
_NEW = re.compile(r"(?P<module>(?:.*\.)?)parametrizations\.(?P<name>\w+)\.(?P<part>original\d?|\d+\.\w+)")
_BASE = re.compile(r"(?P<module>.*\.)(?P<part>base_layer)\.(?P<name>\w+)")
_ADAPTER = re.compile(r"(?P<module>.*\.)lora_(?:A|B|embedding_A|embedding_B|magnitude_vector)(?:\..*)?")


@noun
class FormChange:
    """Weights that the file keeps in one way and the model in another: the keys that are parts of them.

    ``names`` are missing keys that are the very tensors of unexpected ones.
    """

    here: WeightForm
    there: WeightForm
    names: Mapping[str, str]
    missing: frozenset[str]
    unexpected: frozenset[str]

    def cause(self, meaning: str, repair: Repair, ways: tuple[Way, ...] = (), code: str | None = None) -> Cause:
        """Return what a rule makes of it."""
        return Cause(meaning, repair, ways, missing=self.missing, unexpected=self.unexpected, code=code)


def changes(missing: Collection[str], unexpected: Collection[str]) -> Iterator[FormChange]:
    """Yield the ways in which weights are kept differently, the one with most keys first."""
    missing, unexpected = dict.fromkeys(missing), dict.fromkeys(unexpected)  # lists may be long, and are searched
    wanted, here = _slots(missing, unexpected), _slots(unexpected, missing)
    found: dict[tuple[WeightForm, WeightForm], list[tuple[dict[str, str], dict[str, str]]]] = defaultdict(list)
    for slot in [each for each in wanted if each in here]:  # in the order of the text, in every run
        forms = _form(here[slot]), _form(wanted[slot])
        if forms[0] is not forms[1]:
            found[_agreed(*forms)].append((wanted[slot], here[slot]))
    for (one, other), slots in sorted(found.items(), key=lambda each: -len(each[1])):
        adapters = _adapters(missing, unexpected) if WeightForm.LORA in (one, other) else (frozenset(), frozenset())
        yield _change(one, other, slots, adapters)


def _slots(keys: Collection[str], others: Collection[str]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the module and weight → part → key. A key without parts counts where the other side has parts of it."""
    slots: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for key in keys:
        named = _parts(key)
        if named is not None:
            slots[named["module"], named["name"]][named["part"]] = key
    composed = {(named["module"], named["name"]) for key in others if (named := _parts(key)) is not None}
    for key in keys:
        module, dot, name = key.rpartition(".")
        if (f"{module}{dot}", name) in composed or f"{key}_orig" in keys:
            slots[f"{module}{dot}", name][""] = key
    return slots


def _parts(key: str) -> re.Match[str] | None:
    return _NEW.fullmatch(key) or _OLD.fullmatch(key) or _BASE.fullmatch(key)


def _form(parts: Collection[str]) -> WeightForm:
    names = set(parts)
    for form, telling in (
        (WeightForm.LORA, {"base_layer"}),
        (WeightForm.NEW_WEIGHT_NORM, {"original0", "original1"}),
        (WeightForm.NEW_SPECTRAL_NORM, {"0._u", "0._v"}),
        (WeightForm.PARAMETRIZED, {"original"}),
        (WeightForm.PRUNED, {"mask"}),
        (WeightForm.OLD_WEIGHT_NORM, {"g"}),
        (WeightForm.OLD_SPECTRAL_NORM, {"u"}),
        (WeightForm.OLD_WEIGHT_NORM, {"v"}),
    ):
        if names & telling:
            return form
    return WeightForm.PLAIN


def _agreed(here: WeightForm, there: WeightForm) -> tuple[WeightForm, WeightForm]:
    """Return a list that is cut short may show only the part that all parametrisations have."""
    if here is WeightForm.PARAMETRIZED and there is WeightForm.OLD_SPECTRAL_NORM:
        return WeightForm.NEW_SPECTRAL_NORM, there
    if there is WeightForm.PARAMETRIZED and here is WeightForm.OLD_SPECTRAL_NORM:
        return here, WeightForm.NEW_SPECTRAL_NORM
    return here, there


def _change(
    one: WeightForm,
    other: WeightForm,
    slots: list[tuple[dict[str, str], dict[str, str]]],
    adapters: tuple[frozenset[str], frozenset[str]],
) -> FormChange:
    partners: dict[str, str] = {}
    for wanted, here in slots:
        roles = {role: here[part] for part, role in _ROLES[one].items() if part in here}
        for part, key in wanted.items():
            role = _ROLES[other].get(part)
            if role in roles:
                partners[key] = roles[role]
    missing = frozenset(key for wanted, _ in slots for key in wanted.values())
    unexpected = frozenset(key for _, here in slots for key in here.values())
    return FormChange(one, other, partners, missing | adapters[0], unexpected | adapters[1])


def _adapters(missing: Collection[str], unexpected: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the matrices of LoRA next to the layers that they are for."""

    def beside(keys: Collection[str]) -> frozenset[str]:
        return frozenset(key for key in keys if _ADAPTER.fullmatch(key))

    return beside(missing), beside(unexpected)
