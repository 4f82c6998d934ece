"""The checkpoint is packed: compressed, or inside a zip or tar archive.

Meaning
    The file is not a checkpoint itself, but holds one: a person or a server compressed it (gzip, bzip2, xz, zstd), or
    put it into an archive. Windows and browsers also rename checkpoints to ``.zip``, and repack what they unpacked.

Why it matters
    No library looks inside, and their messages are about something else.

Symptoms
    file in archive is not in a subdirectory: model.pth
    Unsupported operand 31
    invalid load key, '\\x1f'.
    filename 'storages' not found

Detection
    By the first bytes. The inside is unpacked into a temporary folder and read from there; of safetensors, pickles and
    what is in a tar archive, only the headers are written there, and ``--deep`` reads the values as a stream. All other
    findings are about the inside. If an archive holds several checkpoints, name one: ``weights.zip/model.pt`` or
    ``weights.tar.gz/model.pt``.

Repair
    ``ckptdoctor fix FILE --select C102`` writes the inside next to it, under its name without the suffix of the
    packing: ``model.pt.gz`` becomes ``model.pt``. Safe: no byte of the inside changes.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, Note, NoteKind
from ckptdoctor.edits import Fix, Safety, SetSuffix
from ckptdoctor.findings import Severity
from ckptdoctor.formats.suffixes import unwrapped_path
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import notes_of, sentence
from ckptdoctor.rules.kit.refusals import HEADER, is_safetensors_name
from ckptdoctor.rules.messages import CHECK, Message, Way, first_byte
from ckptdoctor.rules.when import noticed


def _gzipped(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)


def _zipped(data: bytes) -> bytes:
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("README.md", "weights")
        archive.writestr("model.pt", data)
    return made.getvalue()


def _in_tar_gz(data: bytes) -> bytes:
    import io
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("run/model.pt")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


_META = {"format": "pt"}


def _compressed(byte: int, kind: str, unpack: str) -> Iterator[Message]:
    meaning = f"the file is a compressed archive ({kind}); the checkpoint is inside it"
    return first_byte(byte, meaning, (Way("unpack it", unpack), Way("then check again", "ckptdoctor check FILE")))


MESSAGES = (
    *_compressed(0x1F, "gzip", "gzip -dc FILE > unpacked.pt"),
    *_compressed(0x42, "bzip2", "bzip2 -dc FILE > unpacked.pt"),
    *_compressed(0x37, "7-Zip", "7z x FILE"),
    *_compressed(0xFD, "xz", "xz -dc FILE > unpacked.pt"),
    Message(
        ("file in archive is not in a subdirectory",),
        "the file is a zip archive that somebody made from a checkpoint; the checkpoint is inside it",
        (Way("unpack it", "unzip FILE"), CHECK),
    ),
)
SICK = (
    Example("gzip around a torch file", {"w": T((3,))}, suffix=".pt.gz", damage=_gzipped),
    Example("gzip around safetensors", {"w": T((3,))}, "safetensors", ".gz", metadata=_META, damage=_gzipped),
    Example("a torch file in a zip archive", {"w": T((3,))}, suffix=".zip", damage=_zipped),
    Example("a torch file in a compressed tar archive", {"w": T((3,))}, suffix=".tar.gz", damage=_in_tar_gz),
)
HEALTHY = (
    Example("as torch writes it", {"w": T((3,))}),
    Example("as torch writes it, renamed", {"w": T((3,))}, suffix=".zip"),
)

# how torch refuses each, with weights_only=True and without it, by the outermost
_TORCH_SAYS = {
    "gzip file": ("Unsupported operand 31", "invalid load key, '\\x1f'."),
    "bzip2 file": ("Unsupported operand 66",),
    "xz file": ("Unsupported operand 253", "invalid load key, '\\xfd'."),
    "zstd file": ("Unsupported operand 181", "invalid load key, '\\xb5'."),
    "tar archive": ("saved in the legacy .tar format", "filename 'storages' not found"),
}


@rule("C102", "archive-wrapped-checkpoint", Severity.ERROR, when=noticed)
def archive_wrapped_checkpoint(container: Container) -> Iterator[Problem]:
    """Report a checkpoint inside of something else."""
    path = unwrapped_path(container)
    for note in notes_of(container, NoteKind.ARCHIVE_WRAPPED):
        fix = None
        if path is not None:
            edits = (SetSuffix(os.path.splitext(path)[1]),)
            fix = Fix("unpack it", edits, Safety.SAFE, "--select C102")
        yield Problem(
            message=sentence(note, "the checkpoint is packed inside another file"),
            cause="It was compressed, or put into an archive; no library looks inside.",
            torch_says=_refusal(container, note),
            fix=fix,
        )


def _refusal(container: Container, note: Note) -> tuple[str, ...]:
    if is_safetensors_name(container):
        return (f"{HEADER}header too large",)
    for kind, words in _TORCH_SAYS.items():
        if note.message.endswith(kind):
            return words
    if note.member is None:
        return ()
    if "/" in note.member:
        return ('Expected hasRecord("version") to be true, but got false.',)
    return (f"file in archive is not in a subdirectory: {note.member}",)
