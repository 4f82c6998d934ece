"""Running averages as ``LitEma`` of latent diffusion keeps them: buffers whose names have no dots, and two counters."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.facts import names
from ckptdoctor.noun import noun

# ldm.modules.ema.LitEma registers these beside the average
DECAY, UPDATES = "decay", "num_updates"
_PARAMETERS = ("weight", "bias")


@noun
class LitEma:
    """The average under ``prefix`` ("" or with its dot): its counters, and its tensors (none: they are wanted)."""

    prefix: str
    counters: tuple[str, str]
    tensors: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All of its keys."""
        return (*self.counters, *self.tensors)


def lit_ema(here: Mapping[str, Tensor], loose: Collection[str], whole: bool) -> LitEma | None:
    """The average among the keys that nobody wants; where the rest is the ``whole`` of one, its counters alone."""
    for key in loose:
        if key.endswith(UPDATES):
            prefix = key[: -len(UPDATES)]
            found = _under(prefix, here, [each for each in loose if each.startswith(prefix)])
            if found is not None and (prefix if found.tensors else whole and not prefix):
                return found
    return None


def whole_or_part(state_dict: StateDict) -> LitEma | None:
    """The average that a state dict is, or that lies in it under one name beside other weights."""
    if not names.mentions(state_dict, [UPDATES]):
        return None
    keys = names.keys_of(state_dict)
    here = {tensor.key: tensor for tensor in state_dict.tensors if tensor.numel == 1}
    for prefix in [key[: -len(UPDATES)] for key in here if key.endswith(UPDATES)]:
        found = _under(prefix, here, [key for key in keys if key.startswith(prefix)])
        if found is not None and found.tensors and _named_so(found):
            return found
    return None


def _under(prefix: str, here: Mapping[str, Tensor], keys: Collection[str]) -> LitEma | None:
    """The average under a prefix, where there is nothing else."""
    counters = (prefix + DECAY, prefix + UPDATES)
    if (prefix and not prefix.endswith(".")) or not all(each in here for each in counters):
        return None
    decay, updates = here[counters[0]], here[counters[1]]
    if decay.numel != 1 or updates.numel != 1 or decay.dtype.kind != "float" or updates.dtype.kind != "int":
        return None
    tensors = tuple([key for key in keys if key not in counters])
    dotless = all("." not in key[len(prefix) :] for key in tensors)
    return LitEma(prefix, counters, tensors) if dotless else None


def _named_so(found: LitEma) -> bool:
    """Whether most names end as those of parameters do, with something glued before it."""
    glued = [
        key
        for key in found.tensors
        if any(key.endswith(each) and key[len(found.prefix) :] != each for each in _PARAMETERS)
    ]
    return 2 * len(glued) > len(found.tensors)
