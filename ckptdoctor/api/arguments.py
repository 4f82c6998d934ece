"""Takes arguments as people give them from Python: a path, one pattern or several, a model in any of its forms."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Signature, signature
from numbers import Real
from typing import ParamSpec, TypeVar, Union

from ckptdoctor.brief import MOST_LINES
from ckptdoctor.checkpoint.progress import Progress, heard, now_and_then
from ckptdoctor.crash import NOWHERE, asking_for_torch, is_nowhere
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.target import Reference
from ckptdoctor.target.mapping import as_reference

Path = Union[str, "os.PathLike[str]"]
Words = Union[str, Sequence[str]]
WIDTH = 80
_QUOTES = "'\""
Listener = Callable[[Progress], None]


P = ParamSpec("P")
R = TypeVar("R")
_OTHERWISE = {"from": "donor", "o": "output"}  # options that have another name in Python
_COMMAND = re.compile(r"\bckptdoctor [a-z]+(?:[^\n.;,)]|[.;,)](?!\s|$))*")  # what is typed into a shell stays
# an option, and its value where it is in quotes, a placeholder such as KEY, or cannot be a word of the sentence
_OPTION = re.compile(
    r"(?<![\w-])--?(?P<name>[a-z][a-z-]*)\b"
    r"(?:[ =](?P<value>'[^'\n]*'|\"[^\"\n]*\"|[A-Z][A-Z_=]+\b|\w+\.(?=\s[a-z])|"
    r"(?=\S*\w[.*_/=\d])[^\s,;:)]*[^\s,;:).?!]))?"
)


def from_python(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function raise its errors in the words of Python: messages name arguments where the command has options.

    Where torch is missing, it raises MissingPackageError.
    """

    kinds = function.__annotations__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        require_kinds(kinds, dict(zip(kinds, args, strict=False)) | kwargs)
        try:
            with asking_for_torch():
                return function(*args, **kwargs)
        except CkptDoctorError as error:
            error.message = in_arguments(error.message, signature(function))
            error.args = (error.message, *error.args[1:])
            raise
        except FileNotFoundError as error:
            if is_nowhere(error):
                raise UnreadableError(NOWHERE) from error
            raise
        except ValueError:
            for each in (*args, *kwargs.values()):
                require_possible(each)
            raise

    return call


def require_possible(path: object) -> None:
    """Raise UnreadableError for a path, or for one of several, that no file can have; whatever else it is may pass."""
    for each in path if isinstance(path, (list, tuple)) else (path,):
        if isinstance(each, (str, bytes, os.PathLike)) and "\0" in os.fsdecode(each):
            raise UnreadableError(f"{os.fsdecode(each)} cannot be opened: that is not a possible file name.")


# arguments of these kinds are checked at the door; what takes other things, too, has its own check
_KINDS: dict[str, tuple[type, str]] = {
    "str": (str, "text"),
    "int": (Real, "a number"),
    "float": (Real, "a number"),
    "BaseException": (BaseException, "an exception"),
    "None": (type(None), "None"),
}


def require_kinds(annotations: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Raise TypeError for an argument that is not what its annotation says, which would fail somewhere inside.

    Of a name that the function does not have, Python itself says so.
    """
    for name, value in given.items():
        if name not in annotations:
            continue
        kinds = str(annotations.get(name)).split(" | ")
        if all(kind in _KINDS for kind in kinds) and not any(isinstance(value, _KINDS[kind][0]) for kind in kinds):
            said = " or ".join([_KINDS[kind][1] for kind in kinds if kind != "None"])
            raise TypeError(f"{name}= takes {said}, not {type(value).__name__}")


def in_arguments(message: str, known: Signature) -> str:
    """Return the message with ``strip_module=True`` for ``--strip-module``, as far as these arguments are known.

    Whole commands stay as they are typed into a shell.
    """
    commands = [match.span() for match in _COMMAND.finditer(message)]

    def named(match: re.Match[str]) -> str:
        name = match["name"].replace("-", "_")
        name = _OTHERWISE.get(name, name)
        if name not in known.parameters or any(begin <= match.start() < end for begin, end in commands):
            return match[0]
        value = match["value"]
        if known.parameters[name].default is False:
            return f"{name}=True" + ("" if value is None else f" {value}")
        if value is None:
            return f"{name}="
        return f"{name}={value if value.isupper() else json.dumps(value.strip(_QUOTES), ensure_ascii=False)}"

    return _OPTION.sub(named, message)


def several(words: Words) -> tuple[str, ...]:
    """Return one word, or several. Raises TypeError for what is not text."""
    each = (words,) if isinstance(words, str) or not isinstance(words, Iterable) else tuple(words)
    for word in each:
        if not isinstance(word, str):
            raise TypeError(f"expected text, or several texts, not {type(word).__name__}")
    return each


def paths_of(given: Path | Iterable[Path]) -> tuple[str, ...]:
    """Return one path, or several, as text."""
    several = (given,) if isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Iterable) else given
    return tuple([os.fsdecode(each) for each in several])


def a_screen(text: str, all_of_it: str) -> str:
    """Return what fits on a screen of a text, for a ``repr``; ``all_of_it`` is what to type for the rest."""
    lines = [abridged(line, WIDTH) for line in text.splitlines()]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"… and {len(lines) - MOST_LINES + 1:,} lines more: {all_of_it}"]
    return "\n".join(lines)


def in_a_screen(report: object) -> str:
    """Return what ``str`` gives of a report, cut to a screen: its ``repr``."""
    return a_screen(str(report), "print(report)")


def told_as(kind: type[R], report: object) -> R:
    """Return a report as one of ``kind``, which has the same fields and says them as the command does."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return kind(*[getattr(report, name) for name in names])


def optional(path: Path | None) -> str | None:
    """Return a path as text, or None where none is given."""
    return None if path is None else os.fsdecode(path)


@contextmanager
def told(progress: Listener | None) -> Iterator[None]:
    """Have ``progress`` called with a ``Progress`` about ten times a second while long work goes on."""
    if progress is None:
        yield
        return
    with heard(now_and_then(progress)):
        yield


def target(
    model: object, like: Path | None, config: Path | None, error: str | BaseException | None
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
    said = str(error) if isinstance(error, BaseException) else error
    reference = None if model is None or code is not None else as_reference(model)
    return reference, Settings(like=optional(like), model=code, config=optional(config), error=said)
