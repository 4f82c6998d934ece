"""Writes the pickles of a legacy file again in the file itself: every storage behind them stays where it is.

torch finds the storages where the pickles end, so the new ones must end there, too. What is left of their room is
filled in the system info, which torch reads and ignores: one more key, of nothing but blanks. Pickles that need more
room get whole blocks, where the file system can put them in front of the file.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.checkpoint import Source
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.torch.legacy.read import Stream, read_stream
from ckptdoctor.formats.torch.legacy.writer import write_copy
from ckptdoctor.formats.torch.patch.new_nodes import from_plain
from ckptdoctor.formats.torch.read.values import bare, filling, plain_dict, text
from ckptdoctor.inplace.change import NotInPlaceError
from ckptdoctor.pickles import Pickle
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.encode import encode
from ckptdoctor.pickles.graph import Made, Value
from ckptdoctor.writing.recipe import Copy, Literal, Recipe

# by how much a short text is shorter than a long one, apart from what it says (protocol 4)
_SHORTER = 3


def write_in_place(wanted: Wanted, source: Source, block: int | None) -> Recipe:
    """Return how to write the file with every storage where it is, or shifted by whole blocks of ``block`` bytes.

    Raises NotInPlaceError where other bytes of tensors are wanted or no room can be made, and what
    ``writer.write_copy`` raises.
    """
    stream = read_stream(source)
    first, *rest = write_copy(wanted, source).segments
    at = stream.end
    for each in rest:
        if not isinstance(each, Copy) or each.offset != at or each.file not in (None, source.file):
            raise NotInPlaceError("bytes of tensors would be written or left out, not only names")
        at += each.length
    if not isinstance(first, Literal) or at != source.size:
        raise NotInPlaceError("bytes of tensors would be written or left out, not only names")
    head = _of_length(stream.end, first.data, stream)
    if head is None and block is not None:
        grown = stream.end + -(-max(len(first.data) - stream.end, 1) // block) * block
        head = _of_length(grown, first.data, stream) or _of_length(grown + block, first.data, stream)
    if head is None:
        known = _plain(stream.pickles[2]) is not None
        raise NotInPlaceError(
            "the new names need more room than the old ones, and the file system cannot insert blocks"
            if known
            else "its system info, which would be padded, is not what torch writes"
        )
    behind = Copy(stream.end, source.size - stream.end)
    return Recipe(source.file, (Literal(head), behind), inserted=len(head) - stream.end)


def _of_length(length: int, pickles: bytes, stream: Stream) -> bytes | None:
    """Return the pickles with as much in the system info as gives them this length; None where that cannot be."""
    info = stream.pickles[2]
    room = length - len(pickles) + info.end - info.start
    if room == info.end - info.start:
        return pickles
    said = _plain(info)
    if said is None:
        return None
    short = room - len(_encoded(info, {**said, "": False}))
    for each in (said, *[{**said, " " * count: False} for count in (short, short - _SHORTER) if count >= 0]):
        padded = _encoded(info, each)
        if len(padded) == room:
            return pickles[: info.start] + padded + pickles[info.end :]
    return None


def _encoded(info: Pickle, said: dict[str, object]) -> bytes:
    info.root = from_plain(info, said)
    return encode(info)


def _plain(info: Pickle) -> dict[str, object] | None:
    """Return the system info without blanks: numbers, texts and one dict by their names; None for anything else."""
    found = None if info.globals else _named(info.root, _of_dict)
    return None if found is None else {name: value for name, value in found.items() if name.strip()}


def _named(value: Value, read: Callable[[Value], object]) -> dict[str, object] | None:
    """Return a dict whose keys are texts, with what ``read`` makes of its values; None where that is None."""
    value = bare(value)
    if type(value) is not Made or value.op != op.EMPTY_DICT:
        return None
    found = {name: read(each) for name, each in plain_dict(value).items()}
    return found if len(found) == len(filling(value).keys) and None not in found.values() else None


def _of_dict(value: Value) -> object:
    return _simple(value) if type(bare(value)) is not Made else _named(value, _simple)


def _simple(value: Value) -> object:
    value = bare(value)
    return value if isinstance(value, (bool, int)) else text(value)
