"""The file's suffix does not match its format.

Meaning
    The contents are recognised by their bytes: a safetensors file called ``.pt``, a torch archive called
    ``.safetensors``, a GGUF or HDF5 file called ``.bin``. It was renamed, or a script wrote one format and used the
    suffix of the other.

Why it matters
    Programs choose the library by the suffix, and the wrong library's message does not mention this.

Symptoms
    Error while deserializing header: header too large
    Unsupported operand 120
    could not find MARK

Detection
    The first bytes are compared with the suffix. ``.pt``, ``.pth``, ``.ckpt``, ``.bin`` and others all fit torch.

Repair
    ``ckptdoctor fix FILE --select C101`` writes a copy with the suffix that fits. Safe: no byte changes.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.edits import Fix, Safety, SetSuffix
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import location, notes_of
from ckptdoctor.rules.kit.refusals import torch_says
from ckptdoctor.rules.messages import CHECK, Message, first_byte
from ckptdoctor.rules.when import noticed
from ckptdoctor.wording import format_name

SUFFIXES = {"torch zip": ".pt", "torch legacy": ".pt", "safetensors": ".safetensors"}


def _foreign(byte: int, kind: str) -> Iterator[Message]:
    return first_byte(byte, f"the file is {kind}, despite its name", (CHECK,))


_OTHER = (
    "the file does not begin like anything that torch.save writes: its name is wrong for its format (for "
    "example safetensors called .pt), or it is damaged"
)
MESSAGES = (
    *_foreign(0x93, "a NumPy array (.npy)"),
    *_foreign(0x89, "HDF5, as Keras writes it"),
    *_foreign(0x47, "probably GGUF, which llama.cpp reads and torch does not"),
    Message(
        ("invalid load key, '",),
        _OTHER,
        (CHECK,),
        then=r"(?:\\x[0-9a-f]{2}|.?)'",
        also=("F014", "F003"),
        general=1,
    ),
    Message(
        ("Unsupported operand",),
        _OTHER,
        (CHECK,),
        then=r"\d{1,3}(?!\d)",
        also=("F014", "F003", "C104"),
        general=1,
    ),
    Message(
        ("could not find MARK", "unpickling stack underflow"),
        "the bytes are not a pickle: a safetensors file called .pt gives this message too, and so does a damaged file",
        (CHECK,),
        also=("F014",),
    ),
    Message(
        ("failed reading zip archive: not a ZIP archive",),
        "the file is not the archive that torch.save has written since 1.6: it is in the older format, in "
        "another format, or damaged at its beginning",
        (CHECK,),
        also=("C105", "F001", "F002", "F014"),
    ),
    Message(
        ("invalid magic characters",),
        "llama.cpp was given a file that is not GGUF",
        (CHECK,),
        near=("gguf", "GGUF", "llama"),
        also=("F001", "F002", "F014"),
    ),
)
SICK = (
    Example("a torch archive named safetensors", {"w": T((3,))}, suffix=".safetensors"),
    Example("safetensors named pt", {"w": T((3,))}, "safetensors", ".pt", metadata={"format": "pt"}),
)
HEALTHY = (
    Example("a torch archive named bin", {"w": T((3,))}, suffix=".bin"),
    Example("safetensors by its own name", {"w": T((3,))}, "safetensors", ".safetensors", metadata={"format": "pt"}),
)


@rule("C101", "extension-format-mismatch", Severity.ERROR, when=noticed)
def extension_format_mismatch(container: Container) -> Iterator[Problem]:
    """Report a suffix that promises another format."""
    for note in notes_of(container, NoteKind.WRONG_SUFFIX):
        suffix = SUFFIXES.get(container.format, "")
        fix = None
        if suffix:
            title = f"give it the suffix {suffix}"
            fix = Fix(title, (SetSuffix(suffix),), Safety.SAFE, "--select C101")
        yield Problem(
            message=f'the suffix is "{os.path.splitext(container.path)[1]}", '
            f"the contents are {format_name(container.format)}",
            cause="It was renamed, or written by one library and named for another. Programs choose their reader "
            "by the suffix.",
            torch_says=torch_says(container),
            advice="" if fix else container.guidance,
            location=location(note),
            fix=fix,
        )
