"""A target that only the text of an error tells: ``fix --auto --error err.txt``, where it tells all that is needed."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.engine.request import FixRequest
from ckptdoctor.errors import RefusedError
from ckptdoctor.reference.error_text import as_reference, read_error

_SHOWN = 3  # keys that a refusal names
_INSTEAD = "give the target with --model or --like instead"


def with_target(request: FixRequest, checkpoint: Checkpoint) -> FixRequest:
    """The request with the reference that its error text and the checkpoint give together.

    Raises RefusedError where the text is cut short, or the shape of a missing key cannot be told: then nobody could
    say that the result fits. Raises UnreadableError or UsageError for a text without such an error.
    """
    if request.error is None:
        return request
    told = as_reference(read_error(request.error), checkpoint)
    if not told.complete:
        raise RefusedError(f"The error text is cut short, so that not all keys are known: {_INSTEAD}.")
    if told.left_out:
        more = f" and {len(told.left_out) - _SHOWN:,} more" if len(told.left_out) > _SHOWN else ""
        named = f"{', '.join(told.left_out[:_SHOWN])}{more}"
        raise RefusedError(f"The error does not tell which shape the model wants for {named}: {_INSTEAD}.")
    return replace(request, reference=told.reference)
