"""Writes the command line that does what is on the screen, every word quoted for the shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.checkpoint.process import complete
from ckptdoctor.diagnose.settings import SOURCES, Settings
from ckptdoctor.filters.language import parse
from ckptdoctor.shell import quote, word

if TYPE_CHECKING:
    from ckptdoctor.repair.request import FixRequest


@runtime_checkable
class Commanding(Protocol):
    """A screen that knows the command line which does what it shows."""

    def command(self) -> str:
        """Return one line, quoted for the shell."""


@runtime_checkable
class Loadable(Protocol):
    """A screen that knows the Python which loads what it shows."""

    def python(self) -> str:
        """Return one expression. Raises UsageError where none gives that."""


def check(path: str, settings: Settings | None = None) -> str:
    """Examine the file as it was examined here."""
    settings = settings or Settings()
    options = ["--deep"] if settings.deep else []
    selection = settings.selection
    for name, codes in (("--select", selection.select), ("--ignore", selection.ignore)):
        options += [name, ",".join(codes)] if codes else []
    options += ["--root", settings.root] if settings.root is not None else []
    return _line("check", path, *options, *_target(settings))


def show(path: str, place: KeyPath = (), *, keys: bool = False, text: str = "") -> str:
    """List what is at a place, or ``keys`` one below the other; only what the filter ``text`` keeps."""
    parts = list(place)
    while parts and ("\0" in show_path(tuple(parts)) or "" in parts):  # which no command line can hold, or --root names
        parts.pop()
    root = ["--root", show_path(tuple(parts))] if parts else []
    return _line("show", path, *(["--keys"] if keys else []), *root, *_filter(text))


def _filter(text: str) -> Iterator[str]:
    """Yield the option for a filter, without words that have a NUL, which no command line holds: more is shown."""
    if "\0" in text:
        text = " ".join([term.text for term in parse(text).terms if "\0" not in term.text])
    if text.startswith("-"):  # and would look like another option
        yield f"--filter={text}"
    elif text:
        yield from ("--filter", text)


def statistics(path: str, *globs: str) -> str:
    """Read the values of the tensors whose keys match."""
    return _line("show", path, "--stats", *[each for glob in globs for each in ("--only", glob)])


def diff(path: str, other: str, *, values: bool = False, root: str | None = None) -> str:
    """Compare with another file."""
    options = [*(["--values"] if values else []), *(["--root", word(root)] if root is not None else [])]
    return " ".join(["ckptdoctor diff", quote(path), quote(other), *options])


def salvage(path: str, output: str | None = None) -> str:
    """Save what is intact of it; None: under the usual name."""
    return _line("salvage", path, *(["-o", output] if output is not None else []))


def fix(request: FixRequest, settings: Settings | None = None, usual: str | None = None) -> str:
    """Repair as was chosen. ``usual`` is the name that the output would get where none is named."""
    return _line("fix", request.path, *_repairs(request, settings or Settings()), *_output(request, usual))


def _repairs(request: FixRequest, settings: Settings) -> Iterator[str]:
    for pattern in request.drop:
        yield from ("--drop", pattern)
    if request.auto:
        yield from ("--auto", *_target(settings))
    if request.selection.select:
        yield from ("--select", ",".join(request.selection.select))
    if request.unsafe:
        yield "--unsafe-fixes"


def _output(request: FixRequest, usual: str | None) -> Iterator[str]:
    if request.output is not None and request.output != usual:
        yield from ("-o", request.output)


def _target(settings: Settings) -> Iterator[str]:
    for name in SOURCES:
        value = getattr(settings, name)
        if value is not None:
            yield from (f"--{name}", value)


def _line(command: str, path: str, *options: str) -> str:
    return complete(" ".join([f"ckptdoctor {command}", quote(path), *map(word, options)]))
