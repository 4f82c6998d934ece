"""New texts in a graph: written as the pickle writes its texts, and shared where the old ones were."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.read.slots import Slot
from ckptdoctor.formats.torch.read.values import bare
from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import NO_MEMO, Pickle, Text

_SHORT = 256  # bytes from which a text needs a longer count


@noun
class NewText:
    """The text in ``slot`` becomes ``value``."""

    slot: Slot
    value: str


def replace_texts(graph: GraphEdit, changes: Iterable[NewText]) -> None:
    """Do all the changes at once.

    Slots that shared a text go on sharing what replaces it. The new text takes over the old one's memo entry when no
    other place needs that, so that undoing a change gives the original bytes again.
    """
    groups: dict[int, tuple[Text | None, list[NewText]]] = {}
    for change in changes:
        old = bare(change.slot.value)
        text = old if isinstance(old, Text) else None
        groups.setdefault(id(old) if text is not None else -len(groups) - 1, (text, []))[1].append(change)
    # counted before the first change
    free = {id(old) for old, group in groups.values() if old is not None and graph.references(old) == len(group)}
    for old, group in groups.values():
        made: dict[str, Text] = {}
        for change in group:
            if change.value not in made:
                made[change.value] = new_text(graph.pickle, change.value, old)
            change.slot.put(made[change.value])
            graph.recount(made[change.value], 1)
            if old is not None:
                graph.recount(old, -1)
        if old is not None and old.memo != NO_MEMO:
            _remember(graph, old, list(made.values()), id(old) in free)


def _remember(graph: GraphEdit, old: Text, made: list[Text], free: bool) -> None:
    """Give each new text a memo entry, as a pickler does: the first one the old text's, where that is free now."""
    if free:
        made[0].memo = old.memo
        made = made[1:]
    for text in made:
        text.memo = graph.new_memo()


def new_text(pickle: Pickle, value: str, like: Text | None = None) -> Text:
    """A text as the pickle's own writer would write it; strings of Python 2 stay such while they are ASCII."""
    if like is not None and like.op in (op.SHORT_BINSTRING, op.BINSTRING) and value.isascii():
        return Text(op.SHORT_BINSTRING if len(value) < _SHORT else op.BINSTRING, value)
    if like is not None and like.op in (op.STRING, op.UNICODE):
        return Text(op.UNICODE if like.op == op.UNICODE or not value.isascii() else op.STRING, value)
    if pickle.protocol < 1:
        return Text(op.UNICODE, value)
    short = pickle.protocol >= 4 and len(value.encode("utf-8", "surrogatepass")) < _SHORT
    return Text(op.SHORT_BINUNICODE if short else op.BINUNICODE, value)
