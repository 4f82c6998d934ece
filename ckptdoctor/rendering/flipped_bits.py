"""Reports bits that were flipped back, as text for people and as JSON: of a salvage and of a graft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits.grafts import HealedTensor
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import beyond

_LISTED = 20  # tensors that are named one by one
_NAME = 60  # characters of a name


def flipped_back(healed: Sequence[HealedTensor], room: int) -> Iterator[str]:
    """Yield the bits that were flipped back, and why that is right; ``room`` is how wide the word in front is."""
    if healed:
        yield f"  {'healed':<{room}}{plural(len(healed), 'tensor')}   one flipped bit each, located by the checksum"
    for each in healed[:_LISTED]:
        name = abridged(escape(show_path(each.path)), _NAME)
        why = f"confirmed by {escape(each.vouched)}" if each.vouched else _odds(each)
        file = f" of {escape(each.file)}" if each.file else ""
        yield f"    {name}   bit {each.bit} of byte {each.offset:,}{file}; {why}"
    if len(healed) > _LISTED:
        yield beyond(len(healed) - _LISTED, before="    and ", after="; --format json lists them all")


def as_entry(healed: HealedTensor) -> dict[str, object]:
    """Return the same of one tensor for JSON."""
    return {
        "key": show_path(healed.path),
        "file": healed.file or None,
        "offset": healed.offset,
        "bit": healed.bit,
        "chance_of_mistake": healed.chance,
        "vouched": healed.vouched or None,
    }


def _odds(healed: HealedTensor) -> str:
    return f"other damage looks the same in 1 of {round(1 / healed.chance):,} cases"
