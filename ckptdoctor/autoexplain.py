"""``import ckptdoctor.autoexplain``, and a script that dies of a checkpoint says why, below its traceback.

    Traceback (most recent call last):
      …
    RuntimeError: Error(s) in loading state_dict for Net: …

    ckptdoctor: N401 module-prefix · the file was saved from a model inside DataParallel …
      repair it   ckptdoctor fix model.pt --strip-module

The hooks that were there before run first: those of ``sys``, of ``threading`` and of IPython. Errors that are not about
checkpoints are left alone, nothing is imported until a script dies, and what goes wrong in here never gets out. Under
torchrun only rank 0 speaks. ``CKPTDOCTOR_AUTOEXPLAIN=0`` turns it off. ``python -m ckptdoctor.run train.py …`` does the
same for a script that does not import it; in IPython, ``%load_ext ckptdoctor.autoexplain`` does.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

_LINES = 8  # of diagnosis, at most; the command comes below
_FILES = 4  # that the failing call names, and which are compared with what the error says
_FRAMES = 200  # of a traceback: a recursion has thousands

# arguments by which loaders call the file, whatever its suffix
_ARGUMENTS = frozenset(
    [
        *("f", "file", "filename", "path", "input_dir", "checkpoint_path", "checkpoint_file", "ckpt_path"),
        *("weights_path", "model_path", "resume_from_checkpoint", "pretrained_model_name_or_path"),
        "pretrained_model_name_or_path_or_dict",
    ]
)
_LOADERS = frozenset(
    [
        *("torch", "safetensors", "transformers", "diffusers", "peft", "accelerate", "lightning"),
        *("pytorch_lightning", "lightning_fabric", "joblib", "pickle", "numpy", "timm"),
    ]
)


def load_ipython_extension(shell: Any) -> None:
    """Answer ``%load_ext ckptdoctor.autoexplain``: errors of cells are explained as those of scripts are."""
    if _wanted():
        _follow_ipython(shell)


def _install() -> None:
    """Put what explains behind the hooks that are there."""
    before, before_in_threads = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        _speak(error)

    def hook_in_threads(arguments: threading.ExceptHookArgs) -> None:
        before_in_threads(arguments)
        _speak(arguments.exc_value)

    sys.excepthook, threading.excepthook = hook, hook_in_threads
    if "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
        if shell is not None:
            _follow_ipython(shell)


def _follow_ipython(shell: Any) -> None:
    if getattr(shell.showtraceback, "explains", False):  # a second %load_ext
        return
    before = shell.showtraceback

    def showtraceback(*arguments: object, **options: object) -> None:
        before(*arguments, **options)
        _speak(sys.exc_info()[1])

    showtraceback.explains = True  # type: ignore[attr-defined]
    shell.showtraceback = showtraceback


def _wanted() -> bool:
    """Return whether this process prints a diagnosis: unless that is turned off, on the first rank only."""
    return os.environ.get("CKPTDOCTOR_AUTOEXPLAIN", "1") != "0" and os.environ.get("RANK", "0") in ("", "0")


def _speak(error: BaseException | None) -> None:
    """Print what is known about an error. Never raises: the program is dying of something else."""
    if not isinstance(error, Exception) or sys.stderr is None:
        return
    try:
        lines = _explained(error)
        if lines:
            print("", *lines, sep="\n", file=sys.stderr, flush=True)
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - whatever it is, it must not hide the error
        _own_failure(problem)


def _own_failure(problem: BaseException) -> None:
    try:
        if not isinstance(problem, (OSError, KeyboardInterrupt)):  # stderr may be closed; Ctrl-C is an answer
            print(f"ckptdoctor: this error could not be explained ({type(problem).__name__}).", file=sys.stderr)
    except (OSError, ValueError):  # nobody reads stderr: there is no one left to tell
        return


def _explained(error: Exception) -> list[str]:
    """Return at most eight lines and one command, or [] for an error that is not about a checkpoint."""
    from dataclasses import replace
    from traceback import format_exception

    from ckptdoctor.explaining.explanation import explain

    raw = "".join(format_exception(type(error), error, error.__traceback__))
    explained = explain(raw)
    if not explained.hits:
        return []
    from ckptdoctor.examine.explained import verdict, way_to_the_model
    from ckptdoctor.rendering.explain import brief

    files = list(dict.fromkeys([*_files(error), *_there(explained.file)]))
    if not files and not _is_of_a_loader(error):  # such as a KeyError: many programs have a "model" in a dict
        return []
    told = {path: verdict(explained, raw, path) for path in files[:_FILES]}
    fitting = [path for path, (confirmation, _) in told.items() if confirmation.confirmed]
    chosen = fitting or files
    path = chosen[0] if len(chosen) == 1 else explained.file if not chosen else None
    confirmation, report = told.get(path, (None, None)) if path is not None else (None, None)
    whole = way_to_the_model(explained, raw, report, _models(error)) if report is not None else None
    explained = replace(explained, file=path, verdict=confirmation, repair=whole)
    return brief(explained, report, _width(), _LINES)


def _there(path: str | None) -> list[str]:
    return [path] if path is not None and os.path.isfile(path) else []


def _width() -> int:
    from shutil import get_terminal_size

    return min(get_terminal_size((100, 24)).columns, 120)


# ---- the files that the failing calls name. Only strings, paths, and names of open files are looked at: nothing is
# ---- called on an object of the program, and nothing is opened


def _files(error: BaseException) -> list[str]:
    """Return files that exist and that a frame of the traceback names, from the innermost frame that names any.

    Where none does, those that the command line names: ``torch.load(sys.argv[1])`` leaves no other trace of its path.
    """
    for frame in reversed([*_frames(error)]):
        found = list(dict.fromkeys(path for path in _named(frame) if os.path.isfile(path)))
        if found:
            return found
    typed = [word.partition("=")[2] or word for word in sys.argv[1:] if type(word) is str]
    return [path for path in dict.fromkeys(typed) if _is_named_like_one(path) and os.path.isfile(path)]


def _is_of_a_loader(error: BaseException) -> bool:
    return any(_is_loader(frame) for frame in _frames(error))


def _is_loader(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _LOADERS


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of an error below those of what it arose from: the innermost of the first cause comes last."""
    seen: set[int] = set()
    last: BaseException | None = error
    count = 0
    while last is not None and id(last) not in seen:
        seen.add(id(last))
        trace = last.__traceback__
        while trace is not None and count < _FRAMES:
            yield trace.tb_frame
            trace, count = trace.tb_next, count + 1
        last = last.__cause__ or last.__context__


def _named(frame: FrameType) -> Iterator[str]:
    """Yield what the variables and literals of a frame name that could be a checkpoint."""
    loader = _is_loader(frame)
    for name, value in list(frame.f_locals.items()):
        for path in _paths(value):
            if (loader and name in _ARGUMENTS) or _is_named_like_one(path):
                yield path
    for constant in () if loader else frame.f_code.co_consts:
        if type(constant) is str and _is_named_like_one(constant):
            yield constant


def _paths(value: object) -> Iterator[str]:
    """Yield the path that a value is, holds as an argument of a command line, or was opened with."""
    kind = type(value)
    if type(value) is str:
        yield value
    elif kind.__module__.startswith("pathlib") and isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif kind.__module__ == "_io":
        name = getattr(value, "name", None)  # a number, where it was opened by its descriptor
        if type(name) is str:
            yield name
    elif kind.__module__ == "argparse" and kind.__name__ == "Namespace":
        yield from (each for each in list(vars(value).values()) if type(each) is str)


# ---- the keys of modules that the failing calls have: where a file cannot be read, no error says which are expected


_MODULES = 100_000  # parts of a module that are looked at


def _models(error: BaseException) -> dict[str, tuple[str, ...]]:
    """Return the keys of modules by the names of variables, those of the innermost frames first.

    Nothing is called on them, and nothing of theirs runs. Those that may have other keys than their parameters,
    buffers and parts say, because they were told to, are left out.
    """
    torch = sys.modules.get("torch.nn.modules.module")
    kind = getattr(torch, "Module", None)
    found: dict[str, tuple[str, ...]] = {}
    for frame in reversed([*_frames(error)]) if isinstance(kind, type) else ():
        for name, value in () if _is_loader(frame) else list(frame.f_locals.items()):
            if kind in type(value).__mro__ and name not in found:
                keys = _keys(value)
                if keys:
                    found[name] = keys
    return found


def _keys(module: Any) -> tuple[str, ...]:
    """Return the keys of the state dict of a module of torch; () where they cannot be known."""
    found: list[str] = []
    waiting = [("", module)]
    for prefix, each in waiting:
        fields = object.__getattribute__(each, "__dict__")
        hooks = any(fields.get(name) for name in ("_state_dict_hooks", "_load_state_dict_pre_hooks"))
        if hooks or len(waiting) > _MODULES or any(_own(type(each), name) for name in _OVERRIDDEN):
            return ()
        kept = fields.get("_non_persistent_buffers_set", ())
        held = [fields.get(name) for name in ("_parameters", "_buffers", "_modules")]
        if not all(isinstance(values, dict) for values in held):
            return ()
        *own, parts = [list(dict.items(values)) for values in held if isinstance(values, dict)]
        found += [prefix + name for values in own for name, value in values if value is not None and name not in kept]
        waiting += [(f"{prefix}{name}.", part) for name, part in parts if part is not None]
    return tuple(found)


_OVERRIDDEN = ("state_dict", "load_state_dict", "_load_from_state_dict", "_save_to_state_dict", "get_extra_state")


def _own(kind: type, name: str) -> bool:
    """Return whether a class has a method instead of that of torch.nn, whose batch norms only read older versions."""
    owner = next((each for each in kind.__mro__ if name in each.__dict__), None)
    return owner is not None and not owner.__module__.startswith("torch.nn.modules.")


def _is_named_like_one(path: str) -> bool:
    from ckptdoctor.formats.suffixes import SAFETENSORS, TORCH

    return len(path) < 4096 and "\0" not in path and path.lower().endswith((*TORCH, *SAFETENSORS, ".pkl", ".tar"))


if _wanted():
    _install()
