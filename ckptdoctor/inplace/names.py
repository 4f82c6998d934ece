"""Names the journals of a checkpoint, and finds the one that says that a change was interrupted.

Readers import this whenever they open a file: it needs nothing but the system's own functions.
"""

from __future__ import annotations

import os

from ckptdoctor.regex import regex
from ckptdoctor.shell import quote

_HOT, _UNDO = "ckptdoctor-hot", "ckptdoctor-undo"
_LONGEST = 200  # bytes of a name: file systems allow 255, and the rest of the journal's name needs some
_NUMBERED = regex(rf"(.*)\.{_UNDO}-(\d{{4,}})")
_HOT_NAME = regex(rf"\.(?:.+\.)?{_HOT}")
_JOURNAL = regex(rf"\.(?:.+\.)?(?:{_HOT}|{_UNDO}-\d{{4,}})")

# how a journal begins; behind it are the length of a JSON text, in eight bytes, and the text
MAGIC = b"ckptdoctor undo journal 1\n"
LENGTH_BYTES = 8
_MOST_TEXT = 1 << 30


def place(path: str) -> tuple[str, str]:
    """Return the folder that holds the journals of a file or folder, and how their names begin."""
    path = os.path.realpath(path)
    if os.path.isdir(path):
        return path, ""
    folder, name = os.path.split(path)
    raw = os.fsencode(name)
    if len(raw) <= _LONGEST:
        return folder, f".{name}"
    from hashlib import sha256  # it loads OpenSSL

    return folder, f".{sha256(raw).hexdigest()}"


def hot_journal(path: str) -> str:
    """Return the path of the journal of a change that is not complete, whether there is one or not."""
    folder, stem = place(path)
    return os.path.join(folder, f"{stem}.{_HOT}")


def undo_journal(path: str, number: int) -> str:
    """Return the path of the journal that takes back the change of this number."""
    folder, stem = place(path)
    return os.path.join(folder, f"{stem}.{_UNDO}-{number:04}")


def numbers(path: str, names: list[str]) -> list[int]:
    """Return which changes of the file or folder can be taken back, of the names in the folder of its journals."""
    _, stem = place(path)
    found = [match for name in names if (match := _NUMBERED.fullmatch(name)) is not None]
    return sorted([int(match[2]) for match in found if match[1] == stem])


def is_journal(name: str) -> bool:
    """Return whether a file that is called so is a journal, which never belongs to the checkpoint next to it."""
    return _JOURNAL.fullmatch(name) is not None


def interrupted(path: str) -> str | None:
    """Return the file or folder whose change was interrupted, if what is at ``path`` is part of it; else None."""
    if os.path.exists(hot_journal(path)):
        return path
    if os.path.isdir(path):
        hot = next((name for name in _listed(path) if _HOT_NAME.fullmatch(name)), None)
        return None if hot is None else os.path.join(path, hot[1 : -len(_HOT) - 1])
    real = os.path.realpath(path)
    hot = os.path.join(os.path.dirname(real), f".{_HOT}")
    return (os.path.dirname(path) or ".") if os.path.exists(hot) and _is_about(hot, os.path.basename(real)) else None


def changed_together(path: str) -> str | None:
    """Return the folder of a file if a change of that folder which can be taken back was about the file, too."""
    folder, name = os.path.split(os.path.realpath(path))
    numbered = [undo_journal(folder, number) for number in numbers(folder, _listed(folder))]
    return (os.path.dirname(path) or ".") if any(_is_about(each, name) for each in numbered) else None


def _is_about(journal: str, name: str) -> bool:
    """Return whether a journal names the file; one that cannot be read may be about any."""
    import json  # hardly any file has a journal next to it

    try:
        with open(journal, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return True
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            said = json.loads(file.read(min(length, _MOST_TEXT)))
        return any(each["name"] == name for each in said["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def undo_command(owner: str) -> str:
    """Return the command that restores a file or folder."""
    return f"ckptdoctor undo {quote(owner)}"


def told(path: str, owner: str) -> str:
    """Return what is said of a file or folder with such a journal, and what to type next."""
    return f"{path} is interrupted: a change in place was not completed. Restore it: {undo_command(owner)}"
