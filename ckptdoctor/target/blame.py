"""Finds, of an error in the user's own code, the file and line that they wrote, and their own traceback."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from collections.abc import Iterator

from ckptdoctor.wording import and_more

_FRAMES = 3  # lines that led to the one that failed
_FIRST, _LAST = 3, 5  # frames of a long traceback that are shown
_WIDEST = 160  # characters of one of its lines
_LONGEST = 300  # characters of what an error says
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# what torch says where there is no GPU, or no driver for it
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "has no attribute '_cuda_",  # the same, of torch.cuda.set_device
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
)
NO_CUDA = (
    "This machine has no GPU, and none is needed to see what the model loads: move the model only if "
    "torch.cuda.is_available(), or after the classes."
)
MEND = "The error is in your own code: fix it there, or name a checkpoint that loads, with --like."
_INSTALLED = ("site-packages", "dist-packages")


def blame(error: BaseException) -> str:
    """Return ``nets.py, line 12: NameError: name 'foo' is not defined``.

    It has no place where there is none to tell.
    """
    place, what = own_place(error), in_words(error)
    return f"{place}: {what}" if place else what


def in_words(error: BaseException) -> str:
    """Return the class of an error and its text, in one line and without a full stop."""
    said = " ".join(str(error).split()).rstrip(".:")
    if isinstance(error, SyntaxError):
        said = error.msg
    elif isinstance(error, SystemExit):
        said = "the code ends the program"
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return what if len(what) <= _LONGEST else what[: _LONGEST - 1] + "…"


def wants_cuda(error: BaseException) -> bool:
    """Return whether the code failed because it takes a GPU for granted."""
    said = str(error)
    return any(words in said for words in _NO_GPU)


def own_place(error: BaseException) -> str:
    """Return the innermost line of the user's own code that the error came through, and those that led there.

    It is "" for none.

    Where it came through none of theirs, the innermost line of a library.
    """
    places = list(_places(error))
    own = [each for each in places if not is_installed(each[0])] or places[-1:]
    shown = [f"{_shown(name)}, line {line}" for name, line in own]
    if len(shown) < 2:
        return "".join(shown)
    above = shown[-2::-1]
    return f"{shown[-1]} (from {and_more(above, _FRAMES, between=', from ', before=', and ', spelt=str)})"


def own_traceback(error: BaseException) -> str:
    """Return the traceback of an error as far as it is in the user's own code, a line break before it.

    It is "" where none is.

    Neither our frames are in it nor those of libraries, and it is no longer than a screen.
    """
    frames = [each for each in _frames(error) if not is_installed(each[0])]
    lines = [line for name, number, function in frames[:_FIRST] for line in _frame(name, number, function)]
    if len(frames) > _FIRST + _LAST:
        lines.append(f"  … {len(frames) - _FIRST - _LAST} more …")
    for name, number, function in frames[max(_FIRST, len(frames) - _LAST) :]:
        lines += _frame(name, number, function)
    if isinstance(error, SyntaxError) and error.filename and not is_installed(error.filename):
        lines += _of_syntax(error)
    if not lines:
        return ""
    return "\n".join(["", "Traceback (most recent call last):", *[each[:_WIDEST] for each in lines], in_words(error)])


def _frame(name: str, number: int, function: str) -> Iterator[str]:
    yield f'  File "{_shown(name)}", line {number}, in {function}'
    line = linecache.getline(name, number).strip()
    if line:
        yield f"    {line}"


def _of_syntax(error: SyntaxError) -> Iterator[str]:
    """Yield the line that Python could not read, with the mark under it that Python sets."""
    yield f'  File "{_shown(error.filename or "")}", line {error.lineno}'
    for line in "".join(traceback.format_exception_only(error)).splitlines()[1:]:
        if line.startswith("    "):
            yield line


def _places(error: BaseException) -> Iterator[tuple[str, int]]:
    yield from ((name, number) for name, number, _ in _frames(error))
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        yield error.filename, error.lineno


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and function of every frame that is not ours."""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<") and not name.startswith(_OURS + os.sep):
            yield name, trace.tb_lineno, trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed library, or to Python itself."""
    if any(part in _INSTALLED for part in path.replace("\\", "/").split("/")):
        return True
    return path.startswith(sysconfig.get_path("stdlib") + os.sep)


def _shown(path: str) -> str:
    """Return the path from the current directory where that is shorter; a library's from where it is installed."""
    for folder in _INSTALLED:
        _, found, inside = path.replace("\\", "/").rpartition(f"/{folder}/")
        if found:
            return inside
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return short if not short.startswith(os.pardir) else path
