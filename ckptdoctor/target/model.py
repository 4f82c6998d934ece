"""Learns a reference from the user's own code: ``--model nets:Net``, built without memory for its parameters."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.process import complete
from ckptdoctor.checkpoint.progress import begin
from ckptdoctor.crash import require_torch_installed
from ckptdoctor.errors import CkptDoctorError, UsageError
from ckptdoctor.noun import replace
from ckptdoctor.remote.addresses import shown
from ckptdoctor.shell import quote
from ckptdoctor.target import Reference
from ckptdoctor.target.blame import MEND, NO_CUDA, blame, own_place, own_traceback, wants_cuda
from ckptdoctor.target.building import TooManyError, build, wants_values
from ckptdoctor.target.importing import LIBRARIES, find, users_code
from ckptdoctor.target.mapping import from_module
from ckptdoctor.target.saved import Asked, Saved, Taken, is_lightning, missing, taken
from ckptdoctor.target.target import NamedTarget, parse_target

if TYPE_CHECKING:
    import torch

_MOST_TENSORS = 1_000_000
_IN_ITS_FILES = ("state_dict",)  # where Lightning keeps the weights of a module


def from_model(text: str, path: str | None = None, asked: Asked = lambda: None) -> Reference:
    """Return the expectation of the model that ``text`` names: ``pkg.mod:Net``, ``nets.py:build(num_classes=10)``.

    This runs the user's code: it is imported, and a class or function is called. What it needs and is not given may be
    kept by the file at ``path``, which is ``asked`` then. Raises UsageError when that fails, or gives no module, and
    MissingPackageError where torch is not installed.
    """
    from ckptdoctor.target.transformers_model import from_transformers, is_meant

    if is_meant(text):
        return from_transformers(text, path)
    target, file = parse_target(text), _File(asked)
    require_torch_installed()
    if "torch" not in sys.modules:  # which nearly all code that builds models imports, and which takes seconds
        begin("loading torch…")
    with users_code(target):
        found = find(target)
        begin("building the model")
        extra = Taken({})
        try:
            extra = taken(found, target, file.asked)
            whole = extra.target or target
            made = replace(
                from_module(_module(found, target, extra), whole.name),
                told=extra.told,
                arguments=_numbers(found, target, extra),
            )
            root = _IN_ITS_FILES if _loads_itself(found, file) else made.root
        except (CkptDoctorError, KeyboardInterrupt):
            raise
        except BaseException as error:  # of any kind: it is not our code
            raise UsageError(_failure(target, found, error, path, extra)) from error
    option = text if extra.target is None else extra.target.text
    return replace(made, option=f"--model {quote(option)}", root=root, by_file=file.was_asked)


class _File:
    """The file that should fit, which is read once, and only when somebody asks it."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._saved: Saved | None = None
        self.was_asked = False

    def asked(self) -> Saved | None:
        """Return the arguments that it keeps of the call of its model."""
        if not self.was_asked:
            self.was_asked, self._saved = True, self._asked()
        return self._saved


def _loads_itself(found: object, file: _File) -> bool:
    """Return whether the model and the file are both Lightning's: ``load_from_checkpoint`` takes the file as it is."""
    if not is_lightning(found if isinstance(found, type) else type(found)):
        return False
    saved = file.asked()
    return saved is not None and saved.lightning


def _module(found: object, target: NamedTarget, extra: Taken) -> torch.nn.Module:
    import torch

    if isinstance(found, torch.nn.Module):
        if target.called:
            raise UsageError(f"{target.place} is a module already, not a class or function: leave out the parentheses.")
        return found
    if not callable(found):
        raise UsageError(f"{target.place} is of type {type(found).__name__}: {_WANTED}.")
    most = _MOST_TENSORS if extra.arguments else None  # what a file says must not build for ever
    made = build(lambda: found(*target.arguments, **dict(target.keywords), **extra.arguments), most)
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{target.name} gives {type(made).__name__}, not a torch.nn.Module: {_WANTED}.")
    return made


def _numbers(found: object, target: NamedTarget, extra: Taken) -> tuple[tuple[str, int], ...]:
    """Return the whole numbers among the arguments of the call, those that it has by default as well."""
    try:
        call = inspect.signature(found).bind(  # type: ignore[arg-type]  # what has no signature raises
            *target.arguments, **dict(target.keywords), **extra.arguments
        )
    except (TypeError, ValueError):  # a module that was made already, or code in C
        return ()
    call.apply_defaults()
    named = dict(call.arguments)
    for each in call.signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            named |= named.pop(each.name)
    known = {name: value for name, value in named.items() if type(value) is int}
    if target.module in LIBRARIES:
        known.setdefault("num_classes", _LIBRARY_CLASSES)
    return tuple(known.items())


_LIBRARY_CLASSES = 1000  # of ImageNet, unless others are asked for: functions of these libraries pass the rest on
_WANTED = "--model needs a class or function that gives a torch.nn.Module, or a module itself"


def _failure(target: NamedTarget, found: object, error: BaseException, path: str | None, extra: Taken) -> str:
    """Return one sentence on a model that could not be built, one on what to do, and the user's own traceback."""
    if isinstance(error, TooManyError):
        return f"{target.name} would have more than {_MOST_TENSORS:,} tensors ({extra.told}): give the right numbers."
    said = f"{target.name} cannot be built: {blame(error)}."
    if extra.told:
        said = f"{said[:-1]} ({extra.told})."
    if wants_values(error):
        return (
            f"{said} Models are built without memory, so parameters have no values. Build it when the file is imported "
            f"(net = {target.attributes[-1]}(…), then --model {target.stem}:net), or save its state_dict() for --like."
            f"{own_traceback(error)}"
        )
    lacking = missing(found, target, extra.arguments)
    if isinstance(error, TypeError) and (lacking or not own_place(error)):
        others = (
            "For arguments other than numbers and strings, write a function that builds the model. " if lacking else ""
        )
        return f"{said} {others}Arguments go in parentheses: {_command(target, found, path, extra, lacking)}."
    return f"{said} {NO_CUDA if wants_cuda(error) else MEND}{own_traceback(error)}"


def _command(target: NamedTarget, found: object, path: str | None, extra: Taken, lacking: list[str]) -> str:
    """Return the command line with everything that has to be given, by its names: ``width=…, depth=4``."""
    known = extra.target or target
    wanted = [f"{name}=…" for name in lacking] or _first(found)
    if lacking:  # otherwise something that is given is wrong
        wanted = [*map(repr, known.arguments), *[f"{name}={value!r}" for name, value in known.keywords], *wanted]
    call = f"{target.module}:{'.'.join(target.attributes)}({', '.join(wanted) or '…'})"
    option = f"--model {quote(call)}"
    return option if path is None else complete(f"ckptdoctor check {quote(shown(path))} {option}")


def _first(found: object) -> list[str]:
    """Return the first arguments where nothing that it needs is missing: those without a default, or else the first."""
    try:
        parameters = inspect.signature(found).parameters.values()  # type: ignore[arg-type]  # what has none raises
    except (TypeError, ValueError):
        return []
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    needed = [each for each in named if each.default is each.empty] or named[:1]
    return [f"{each.name}=…" for each in needed]
