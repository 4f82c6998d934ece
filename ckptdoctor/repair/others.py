"""What a target asks of values that are no tensors: it loads the extra states of its modules, and refuses the rest."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.expectation import Reference, is_extra_state
from ckptdoctor.facts.alignment import compare
from ckptdoctor.repair.fits_target import UnfitError
from ckptdoctor.wording import and_more

_SHOWN = 5  # keys that a refusal names


def require_no_others(checkpoint: Checkpoint, reference: Reference) -> None:
    """Raise UnfitError for values among the weights that ``load_state_dict(strict=True)`` would not take.

    ``require_fit`` judges the tensors. Source: ``torch.nn.Module.load_state_dict``.
    """
    comparison = compare(checkpoint, reference)
    found = comparison.plain
    others = comparison.state_dict.others if comparison.state_dict is not None else ()
    strange = [key for key in others if key not in reference.extra and not is_extra_state(key)]
    if reference.retied:  # from_pretrained only warns of them
        strange = []
    lines = _lines("missing", found.extra_missing) + _lines("left over", (*found.extra_unexpected, *strange))
    if lines:
        first = f"all tensors fit {reference.source}, but not what is no tensor beside them."
        raise UnfitError("\n".join([first, *lines]))


def _lines(what: str, keys: tuple[str, ...]) -> list[str]:
    if not keys:
        return []
    return [f"  {what}: {and_more(keys, _SHOWN)}"]
