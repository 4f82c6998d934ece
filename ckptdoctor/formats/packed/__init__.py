"""Opens checkpoints that were packed once more: compressed, or put into a zip or tar archive.

The inside is unpacked into a temporary file, from which everything that works on a file works; ``unpacking`` says how
large that may become: no more than 1 GiB, or 2,000 times the packed file, which holds for what passes by, too. Where
headers are enough, less is written there:

- of a large compressed safetensors file or file of torch before 1.6, nothing: its beginning is unpacked (``front``);
- of a compressed tar archive, always, the headers of its files: it passes by once, and then the file that is meant
  is unpacked (``sieves``). In one that is not compressed, that is read where it is;
- of safetensors, and of files of torch before 1.6 and of torch 0.1 in these, the headers, and of a pickle all but the
  long bytes that nobody looks into for other pickles (``sieves``).

The rest is a hole in the file (``passing``). Whoever reads there makes all be unpacked after all (``thin``), so that
nothing that is said depends on what was kept. Values that are read once in the order of the file pass by once more.

Others are unpacked whole: an archive of torch and a zip have their directories at the end, and arrays of NumPy and
whatever a format of a plug-in reads are not known here. Zeros, which bombs are made of, take no room in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ckptdoctor.checkpoint import Container, FileSource, Note, NoteKind, Source
from ckptdoctor.errors import CkptDoctorError, DamagedError, TruncatedError
from ckptdoctor.formats.packed import scratch
from ckptdoctor.formats.packed.front import Front, front_of, in_one_passage
from ckptdoctor.formats.packed.sieves import sieve_of
from ckptdoctor.formats.packed.streams import STREAMS
from ckptdoctor.formats.packed.thin import Thin
from ckptdoctor.formats.packed.unpacking import (
    HEAD,
    Inside,
    chosen,
    insides,
    may_be_checkpoint,
    unpacked,
    within_bounds,
)
from ckptdoctor.formats.recognise.magic import shortened
from ckptdoctor.formats.recognise.members import listed
from ckptdoctor.formats.registry import built_in, format_named
from ckptdoctor.formats.window import Part
from ckptdoctor.noun import noun, replace
from ckptdoctor.shell import quote
from ckptdoctor.wording import format_name, plural

__all__ = ["opened_inside", "passed_by"]

# a checkpoint in a compressed file in an archive in an archive
_DEEPEST = 3

# a distant file is fetched as a whole to be unpacked
_MOST_DISTANT = 16 << 20

Examine = Callable[[Source], Container]


@noun
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
    """Open the one checkpoint in a packed file, with a note on what it is packed in; ``member`` names it.

    Where there is none, or no telling which, it is the packed file itself, and its guidance says what is inside.
    ``headers`` promises that no more is read: where they are in front, the rest is not unpacked, and a note says so.
    With ``passed``, values are read as well, but only in one passage (``Front``, ``Thin``), where that offers one.
    """
    if headers and member is None and not source.distant and container.format in STREAMS:
        front = front_of(source, container, passed)
        if front is not None:
            inside = _in_front(front, examine)
            size = plural(front.size, "byte")
            left = f"all but the header: whether the file has the {size} that it announces, and no more"
            yield front, replace(inside, notes=(*inside.notes, Note(NoteKind.NOT_EXAMINED, left)))
            return
    if source.distant and source.size > _MOST_DISTANT:
        guidance = f"Download it first: it has to be unpacked. {container.guidance}"
        yield source, replace(container, guidance=guidance)
        return
    with ExitStack() as stack:
        opening = _Opening(container, examine, member, headers, passed, stack)
        found = opening.innermost(_Layer(source, container))
        if isinstance(found, Container):
            yield source, found
            return
        note = _packed_in(found.container, found.around, found.member)
        yield found.source, replace(found.container, notes=(note, *found.container.notes))


def passed_by(front: Front | Thin, size: int, error: DamagedError | None, examine: Examine) -> tuple[Source, Container]:
    """Return what was opened, once all of it has passed by: so many bytes, or as many as there were up to an error.

    Raises that error, or TruncatedError, where the file had been unpacked to its end before, and is another now.
    """
    if isinstance(front, Thin):  # it was unpacked before, to its end
        if error is not None or size != front.size:
            raise error or TruncatedError(f"{front.path} changed while it was read.", offset=min(size, front.size))
        return front, replace(examine(front), notes=front.notes)
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


@noun
class _Opening:
    """How a packed file is opened. What is opened on the way stays open until ``stack`` closes it."""

    outermost: Container
    examine: Examine
    member: str | None
    headers: bool
    passed: bool
    stack: ExitStack

    @property
    def path(self) -> str:
        """How what is inside is called."""
        return self.outermost.path if self.member is None else f"{self.outermost.path}/{self.member}"

    def innermost(self, layer: _Layer) -> _Layer | Container:
        """Return the layer that is a checkpoint; or the outermost container, which says why there is none."""
        wanted = self.member
        for _ in range(_DEEPEST):
            candidates = insides(layer.source, layer.container)
            compressed = layer.container.format in STREAMS  # what is in it has no name
            inside = candidates[0] if compressed else chosen(candidates, wanted)
            if inside is None:
                return _without(self.outermost, candidates, wanted)
            if inside.locked:
                how = f"unpack it with its password (unzip {quote(self.outermost.path)}), and open the result"
                guidance = f'"{shortened(inside.name, 80)}" in it is encrypted: {how}.'
                return replace(self.outermost, guidance=guidance)
            try:
                source = self._unpacked(layer, inside)
            except DamagedError as error:
                return _broken(self.outermost, layer.container, error)
            if source is None:
                return self.outermost
            around = (_with_article(layer.container), *layer.around)
            layer = _Layer(source, self.examine(source), around, layer.member or inside.name or None)
            wanted = wanted if compressed else None
            if layer.container.readable or layer.container.format in {each.NAME for each in built_in()}:
                return self._settled(layer) if wanted is None else _no_archive(self.outermost, wanted)
        return self.outermost

    def _unpacked(self, layer: _Layer, inside: Inside) -> Source | None:
        """Return what is inside, in a file of the temporary folder, or in its place."""
        place = self._in_place(layer, inside)
        if place is not None:
            return place
        most = min(self.outermost.size, inside.packed)
        path = unpacked(layer.source, inside, most, self.headers)
        if path is None:
            return None
        if not scratch.holes(path):
            return self.stack.enter_context(FileSource(path, self.path))
        thin = Thin(path, self.path, lambda: within_bounds(inside.chunks(), most))
        self.stack.callback(thin.close)
        return thin

    def _in_place(self, layer: _Layer, inside: Inside) -> Source | None:
        """Return a file of an archive in its place, if that is enough: a long pickle has to be mapped."""
        if inside.offset is None or not self.headers or self.passed or layer.source.distant:
            return None
        if isinstance(layer.source, Thin) or inside.offset + inside.packed > layer.source.size:
            return None
        head = layer.source.read(inside.offset, min(HEAD, inside.packed))
        if not may_be_checkpoint(head) or sieve_of(head, headers=True) is not None:
            return None
        return Part(layer.source, inside.offset, inside.packed, self.path)

    def _settled(self, layer: _Layer) -> _Layer:
        """Return the same with all of it in the file where its headers are not enough."""
        thin = layer.source
        if not isinstance(thin, Thin):
            return layer
        if self.headers and (not self.passed or self._passes(thin, layer.container)):
            note = _packed_in(layer.container, layer.around, layer.member)
            thin.notes = (note, *layer.container.notes)
            return layer
        source = self.stack.enter_context(thin.whole())
        return replace(layer, source=source, container=self.examine(source))

    def _passes(self, thin: Thin, container: Container) -> bool:
        """Return whether its values can be read in one passage."""
        try:
            return container.readable and in_one_passage(format_named(container.format).read(thin, container))
        except CkptDoctorError:
            return False


def _without(container: Container, candidates: list[Inside], member: str | None) -> Container:
    if member is not None:
        message = f'It does not hold "{member}", but {listed([each.name for each in candidates])}.'
        return replace(container, guidance=message)
    if len(candidates) < 2:
        return container
    names = [each.name for each in candidates]
    example = next((f", as in {os.path.join(container.path, name)}" for name in names if name.isprintable()), ".")
    return replace(container, guidance=f"It holds {listed(names)}: name one of them{example}")


def _no_archive(container: Container, member: str) -> Container:
    guidance = f'It does not contain an archive with "{shortened(member, 80)}": open it as {container.path}.'
    return replace(container, guidance=guidance)


def _broken(container: Container, layer: Container, error: DamagedError) -> Container:
    """Return the packed file with a note on why it could not be unpacked."""
    cut = isinstance(error, TruncatedError)
    kind = NoteKind.TRUNCATED if cut else NoteKind.CRC_MISMATCH
    message = f"the {layer.format} cannot be unpacked: {error.message.rstrip('.')}"
    note = Note(kind, message, error.member, error.offset)
    return replace(container, notes=(*container.notes, note), guidance="Download the file again, or use another copy.")


def _with_article(container: Container) -> str:
    word = format_name(container.format)
    return f"{'an' if word[:1].lower() in 'aeiou' or word.startswith(('xz', 'lzma')) else 'a'} {word}"
