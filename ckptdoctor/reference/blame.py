"""An error in the user's own code as one sentence: the file and line that they wrote, and what Python said."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator

_FRAMES = 3  # lines that led to the one that failed
_LONGEST = 300  # characters of what an error says
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# what torch says where there is no GPU, or no driver for it
_NO_GPU = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver", "No CUDA GPUs are available")
NO_CUDA = (
    "There is no GPU here, and none is needed to know what the model loads: move it only where "
    "torch.cuda.is_available(), or behind the classes."
)
_INSTALLED = ("site-packages", "dist-packages")


def blame(error: BaseException) -> str:
    """``nets.py, line 12: NameError: name 'foo' is not defined``; without a place where there is none to tell."""
    place, what = own_place(error), in_words(error)
    return f"{place}: {what}" if place else what


def in_words(error: BaseException) -> str:
    """The class of an error and its text, in one line and without a full stop."""
    said = " ".join(str(error).split()).rstrip(".:")
    if isinstance(error, SyntaxError):
        said = error.msg
    elif isinstance(error, SystemExit):
        said = "the code ends the program"
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return what if len(what) <= _LONGEST else what[: _LONGEST - 1] + "…"


def wants_cuda(error: BaseException) -> bool:
    """Whether the code failed because it takes a GPU for granted."""
    said = str(error)
    return any(words in said for words in _NO_GPU)


def own_place(error: BaseException) -> str:
    """The innermost line of the user's own code that the error came through, and those that led there; "" for none.

    Where it came through none of theirs, the innermost line of a library.
    """
    places = list(_places(error))
    own = [each for each in places if not is_installed(each[0])] or places[-1:]
    shown = [f"{_shown(name)}, line {line}" for name, line in own]
    if len(shown) < 2:
        return "".join(shown)
    above = shown[-2::-1]
    more = f", and {len(above) - _FRAMES} more" if len(above) > _FRAMES else ""
    return f"{shown[-1]} (from {', from '.join(above[:_FRAMES])}{more})"


def _places(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<") and not name.startswith(_OURS + os.sep):
            yield name, trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        yield error.filename, error.lineno


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed library, or to Python itself."""
    if any(part in _INSTALLED for part in path.replace("\\", "/").split("/")):
        return True
    return path.startswith(sysconfig.get_path("stdlib") + os.sep)


def _shown(path: str) -> str:
    """The path from the current directory where that is shorter; a library's from where it is installed."""
    for folder in _INSTALLED:
        _, found, inside = path.replace("\\", "/").rpartition(f"/{folder}/")
        if found:
            return inside
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return short if not short.startswith(os.pardir) else path
