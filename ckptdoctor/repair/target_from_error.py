"""What a person says in a file: a target in the text of an error (``--error err.txt``), names in a map (``--map``)."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.process import complete
from ckptdoctor.errors import RefusedError
from ckptdoctor.repair.name_map import Mark
from ckptdoctor.repair.request import FixRequest, again
from ckptdoctor.target.error_text import as_reference, read_error
from ckptdoctor.wording import and_more, first_few, plural

_SHOWN = 3  # keys that a refusal names
_MARKED = 6  # marked pairs that a refusal lists
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
        named = and_more(told.left_out, _SHOWN)
        raise RefusedError(f"The error does not tell which shape the model wants for {named}: {_INSTEAD}.")
    return replace(request, reference=told.reference)


def require_confirmed(request: FixRequest) -> None:
    """Raise RefusedError for a draft map with marks, and for one whose target is not named: it is checked against that.

    The sentence says which pairs they are, how each is confirmed, and what to run then.
    """
    found = request.name_map
    if found is None or not (found.marks or (found.towards and request.reference is None)):
        return
    if not found.marks:
        raise RefusedError(
            f"{found.file} was drafted for a target, by whose shapes and kinds of number it is checked: name it\n"
            f"  {_towards(request, found.towards)}"
        )
    lines = [
        f"{found.file} marks {plural(len(found.marks), 'pair')} that nobody has confirmed.",
        *first_few(
            [f"  {old}  →  {_shown(mark)}: {mark.why}" for old, mark in found.marks.items()], _MARKED, before="  and "
        ),
        '  in the place of each mark, the whole {"to": …, "uncertain": …}, put the right name (or null, to leave the '
        "tensor out); then:",
        f"    {_towards(request, found.towards)}",
    ]
    raise RefusedError("\n".join(lines))


def _towards(request: FixRequest, target: str) -> str:
    """The command line again, with the target of a map where none is named."""
    line = again(request)
    return line if request.reference is not None or not target else complete(f"{line} {target}")


def _shown(mark: Mark) -> str:
    others = [" and ".join(each.to) or "null" for each in mark.rivals[:_SHOWN]]
    name = " and ".join(mark.given.to) or "null"
    listed = f" (or {', '.join(others)})" if others else ""
    turned = " transposed" if mark.given.transposed else " in another order" if mark.given.form is not None else ""
    return f"{name}{turned}{listed}"
