"""Takes arguments as people give them from Python: a path, one pattern or several, a model in any of its forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Union

from ckptdoctor.brief import MOST_LINES
from ckptdoctor.checkpoint.progress import Progress, heard, now_and_then
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.target import Reference
from ckptdoctor.target.mapping import as_reference

Path = Union[str, "os.PathLike[str]"]
Words = Union[str, Sequence[str]]
_WIDTH = 80
Listener = Callable[[Progress], None]


def several(words: Words) -> tuple[str, ...]:
    """Return one word, or several."""
    return (words,) if isinstance(words, str) else tuple(words)


def a_screen(text: str, all_of_it: str) -> str:
    """Return what fits on a screen of a text, for a ``repr``; ``all_of_it`` is what to type for the rest."""
    lines = [abridged(line, _WIDTH) for line in text.splitlines()]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"… and {len(lines) - MOST_LINES + 1:,} lines more: {all_of_it}"]
    return "\n".join(lines)


def optional(path: Path | None) -> str | None:
    """Return a path as text, or None where none is given."""
    return None if path is None else os.fspath(path)


@contextmanager
def told(progress: Listener | None) -> Iterator[None]:
    """Have ``progress`` called with a ``Progress`` about ten times a second while long work goes on."""
    if progress is None:
        yield
        return
    with heard(now_and_then(progress)):
        yield


def target(
    model: object, like: Path | None, config: Path | None, error: str | None
) -> tuple[Reference | None, Settings]:
    """Return what the file should fit: a reference for an object of Python, or the settings with which one is found.

    ``model`` is a torch.nn.Module, a mapping of keys to tensors or shapes, a ``Reference``, or a text that names your
    code as ``--model`` does ("nets:Net"). Raises UsageError for more than one target.
    """
    named = {"model": model, "like": like, "config": config, "error": error}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(f'{name}=' for name in given)} are different targets: give one.")
    code = model if isinstance(model, str) else None
    if code is not None and os.path.exists(code):
        raise UsageError(f"model= takes a module, or the name of your code; the path of a file goes to like={code!r}.")
    reference = None if model is None or code is not None else as_reference(model)
    return reference, Settings(like=optional(like), model=code, config=optional(config), error=error)
