"""Names everything that people mistake for a checkpoint, or keep beside one, in one sentence.

What is recognised is never taken for damage: the container says what the file is and what opens it. Only bytes that
stand in the place of a checkpoint (a server's answer, a pointer, zeros, nothing at all) get a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Container, Note, NoteKind, Source
from ckptdoctor.formats.recognise.compressed import recognise_compressed
from ckptdoctor.formats.recognise.magic import Found, container, sniff
from ckptdoctor.formats.recognise.models import recognise_model
from ckptdoctor.formats.recognise.pickled import recognise_pickle
from ckptdoctor.formats.recognise.tars import recognise_tar
from ckptdoctor.formats.recognise.text import recognise_text
from ckptdoctor.formats.recognise.zeros import recognise_zeros
from ckptdoctor.formats.recognise.zips import recognise_zip
from ckptdoctor.wording import plural

_NO_BYTES = "It is an empty file. Download it again, or use the checkpoint that was saved before it."
_EMPTY = Found("", _NO_BYTES, (Note(NoteKind.EMPTY, "the file is empty", offset=0),))


def recognise(source: Source, head: bytes) -> Container:
    """Recognises a file that is not a readable checkpoint; ``format`` is "" when its bytes match no format."""
    if not source.size:
        return container(source, head, _EMPTY)
    for recogniser in _recognisers(source, head):
        found = recogniser()
        if found is not None:
            return container(source, head, found)
    return container(source, head, Found("", _unknown(source, head)))


def _recognisers(source: Source, head: bytes) -> Iterator[Callable[[], Found | None]]:
    """Gives the recognisers in order: certain ones first, those that rest on likelihood last."""
    yield lambda: recognise_zeros(source, head)
    yield lambda: sniff(head)
    yield lambda: recognise_compressed(head)
    yield lambda: recognise_zip(source, head)
    yield lambda: recognise_tar(source, head)
    yield lambda: recognise_pickle(source, head)
    yield lambda: recognise_text(source, head)
    yield lambda: recognise_model(source, head)


def _unknown(source: Source, head: bytes) -> str:
    if source.size < 16:
        return f"Unrecognised format. It is only {plural(source.size, 'byte')} long; a checkpoint is longer."
    first = " ".join(f"{byte:02x}" for byte in head[:4])
    return f"Unrecognised format (starts with {first}). It may be damaged or encrypted."
