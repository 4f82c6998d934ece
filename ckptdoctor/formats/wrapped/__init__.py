"""Checkpoints that were packed once more: compressed, or put into a zip or tar archive.

The inside is unpacked into a temporary file, from which everything that works on a file works; ``unpacking`` says how
large that may become. Only of large safetensors files and files of torch before 1.6 in a compressed file, whose headers
stand in front and say where everything is, no more is unpacked than these, and values that are read once in the order
of the file are not kept (``front``). Others cannot do so: an archive of torch and a zip have their directories at the
end; the arrays of a pickle lie among its opcodes, any of which may refer to an earlier one, and may be pickles
themselves; and which file of a tar archive is meant is known when all its names are. Zeros, which bombs are made of,
take no room in the temporary file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from ckptdoctor.checkpoint import Container, FileSource, Note, NoteKind, Source
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.recognise.found import shortened
from ckptdoctor.formats.recognise.members import listed
from ckptdoctor.formats.registry import built_in
from ckptdoctor.formats.wrapped.front import Front, front_of
from ckptdoctor.formats.wrapped.inside import Inside, chosen, insides
from ckptdoctor.formats.wrapped.streams import STREAMS
from ckptdoctor.formats.wrapped.unpacking import unpacked

__all__ = ["opened_inside", "passed_by", "split_member"]

# a checkpoint in a compressed file in an archive in an archive
_DEEPEST = 3

# a distant file is fetched as a whole to be unpacked
_MOST_DISTANT = 16 << 20

Examine = Callable[[Source], Container]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A file on the way in: its source, what it is, and how the ones around it are called."""

    source: Source
    container: Container
    around: tuple[str, ...] = ()
    member: str | None = None


@contextmanager
def opened_inside(
    source: Source,
    container: Container,
    examine: Examine,
    member: str | None = None,
    headers: bool = False,
    passed: bool = False,
) -> Iterator[tuple[Source, Container]]:
    """The one checkpoint in a packed file, open, with a note on what it is packed in; ``member`` names it.

    Where there is none, or no telling which, it is the packed file itself, and its guidance says what is inside.
    ``headers`` promises that no more is read: where they stand in front, the rest is not unpacked, and a note says so.
    With ``passed``, values are read as well, but only in the passage of a ``Front``, where it is one that is opened.
    """
    if headers and member is None and not source.distant and container.format in STREAMS:
        front = front_of(source, container, passed)
        if front is not None:
            inside = _in_front(front, examine)
            size = plural(front.size, "byte")
            left = f"all but the header: whether the {size} that it tells of are there, and no more"
            yield front, replace(inside, notes=(*inside.notes, Note(NoteKind.NOT_EXAMINED, left)))
            return
    if source.distant and source.size > _MOST_DISTANT:
        guidance = f"Download it first: it has to be unpacked. {container.guidance}"
        yield source, replace(container, guidance=guidance)
        return
    with ExitStack() as stack:
        found = _innermost(_Layer(source, container), examine, member, stack)
    if isinstance(found, Container):
        yield source, found
        return
    path = container.path if member is None else f"{container.path}/{member}"
    with closing(FileSource(found.source.file, path)) as inner:
        inside = examine(inner)
        note = _packed_in(inside, found.around, found.member)
        yield inner, replace(inside, notes=(note, *inside.notes))


def passed_by(front: Front, size: int, error: DamagedError | None, examine: Examine) -> tuple[Source, Container]:
    """What was opened, once all of it has passed by: so many bytes, or as many as there were up to an error."""
    if error is not None:
        return front.source, _broken(front.packed, front.packed, error)
    front.ends_at(size)
    return front, _in_front(front, examine)


def _in_front(front: Front, examine: Examine) -> Container:
    inside = examine(front)
    return replace(inside, notes=(_packed_in(inside, (_with_article(front.packed),), None), *inside.notes))


def _packed_in(inside: Container, around: tuple[str, ...], member: str | None) -> Note:
    message = f"{_with_article(inside)} is packed in {' in '.join(around)}"
    return Note(NoteKind.ARCHIVE_WRAPPED, message, member)


def _innermost(layer: _Layer, examine: Examine, member: str | None, stack: ExitStack) -> _Layer | Container:
    """The layer that is a checkpoint; or the outermost container, which says why there is none.

    What is opened on the way stays open for the layers in it, and is closed by ``stack``.
    """
    outermost = layer.container
    for _ in range(_DEEPEST):
        candidates = insides(layer.source, layer.container)
        inside = chosen(candidates, member)
        if inside is None:
            return _without(outermost, candidates, member)
        if inside.locked:
            how = f"unpack it with its password (unzip {shlex.quote(outermost.path)}), and open what comes out"
            return replace(outermost, guidance=f"“{shortened(inside.name, 80)}” in it is encrypted: {how}.")
        try:
            path = unpacked(layer.source, inside, outermost.size)
        except DamagedError as error:
            return _broken(outermost, layer.container, error)
        if path is None:
            return outermost
        source = stack.enter_context(FileSource(path, layer.source.path))
        container = examine(source)
        around = (_with_article(layer.container), *layer.around)
        layer = _Layer(source, container, around, layer.member or inside.name or None)
        if container.readable or container.format in {each.NAME for each in built_in()}:
            return layer
        member = None
    return outermost


def _without(container: Container, candidates: list[Inside], member: str | None) -> Container:
    if member is not None:
        message = f"It holds no “{member}”, but {listed([each.name for each in candidates])}."
        return replace(container, guidance=message)
    if len(candidates) < 2:
        return container
    names = [each.name for each in candidates]
    example = next((f", as in {os.path.join(container.path, name)}" for name in names if name.isprintable()), ".")
    return replace(container, guidance=f"It holds {listed(names)}: name one of them{example}")


def _broken(container: Container, layer: Container, error: DamagedError) -> Container:
    """The packed file with a note on why it could not be unpacked."""
    cut = isinstance(error, TruncatedError)
    kind = NoteKind.TRUNCATED if cut else NoteKind.CRC_MISMATCH
    message = f"the {layer.format} cannot be unpacked: {error.message.rstrip('.')}"
    note = Note(kind, message, error.member, error.offset)
    return replace(container, notes=(*container.notes, note), guidance="Fetch the file again, or take another copy.")


def split_member(path: str) -> tuple[str, str] | None:
    """An archive and a name in it, of a path such as ``weights.zip/epoch_9.pt``; None where no file is on the way."""
    archive, member = os.path.split(path)
    while member and archive and not os.path.lexists(archive):
        archive, last = os.path.split(archive)
        if not last:
            return None
        member = f"{last}/{member}"
    return (archive, member) if member and os.path.isfile(archive) else None


def _with_article(container: Container) -> str:
    word = container.format
    return f"{'an' if word[:1].lower() in 'aeiou' or word.startswith(('xz', 'lzma')) else 'a'} {word}"
