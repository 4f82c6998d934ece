"""Why a file of a folder cannot be read, in words that follow its name."""

from __future__ import annotations

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.errors import CkptDoctorError, UnreadableError

_CLOSED = " cannot be opened: "  # between the path and the reason, in what ``FileSource`` raises


def why(container: Container, error: CkptDoctorError) -> str:
    """What stands in place of a checkpoint, or what ``error`` says of a damaged one: a clause without the path."""
    if container.readable:
        return _without(container.path, error.message.partition("\n")[0]).rstrip(".")
    told = next((note.message for note in container.notes if note.kind is not NoteKind.WRONG_SUFFIX), "")
    if told:
        return told.rstrip(".")
    if not container.format:
        return "it is no checkpoint that is known"
    return f"it is {'an' if container.format[:1].lower() in 'aeiou' else 'a'} {container.format}"


def why_closed(error: UnreadableError) -> str:
    """Why a file could not be opened, in words that follow its name and that it cannot be: without the full stop."""
    return (error.message.partition(_CLOSED)[2] or error.message).rstrip(".")


def _without(path: str, message: str) -> str:
    """The message without the path that it begins with."""
    if message.startswith(f"{path}: "):
        return message[len(path) + 2 :]
    return f"it{message[len(path) :]}" if message.startswith(f"{path} ") else message
