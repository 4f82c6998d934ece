"""A reference learnt from the user's own code: ``--model nets:Net``, built without memory for its parameters."""

from __future__ import annotations

import inspect
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ckptdoctor.errors import UsageError
from ckptdoctor.reference import Reference
from ckptdoctor.reference.blame import NO_CUDA, blame, own_place, wants_cuda
from ckptdoctor.reference.building import build, wants_values
from ckptdoctor.reference.importing import find, users_code
from ckptdoctor.reference.mapping import from_module
from ckptdoctor.reference.target import Target, parse_target

if TYPE_CHECKING:
    import torch


def from_model(text: str) -> Reference:
    """What the model that ``text`` names expects to load: ``pkg.mod:Net``, ``nets.py:build(num_classes=10)``.

    This runs the user's code: it is imported, and a class or function is called. Raises UsageError when that fails,
    or gives no module.
    """
    target = parse_target(text)
    with users_code(target):
        found = find(target)
        try:
            return replace(from_module(_module(found, target), target.name), option=f"--model {shlex.quote(text)}")
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(_failure(target, found, error)) from error


def _module(found: object, target: Target) -> torch.nn.Module:
    import torch

    if isinstance(found, torch.nn.Module):
        if target.called:
            raise UsageError(f"{target.place} is a module already, not a class or function: leave out the parentheses.")
        return found
    if not callable(found):
        raise UsageError(f"{target.place} is of type {type(found).__name__}: {_WANTED}.")
    made = build(lambda: found(*target.arguments, **dict(target.keywords)))
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{target.name} gives {type(made).__name__}, not a torch.nn.Module: {_WANTED}.")
    return made


_WANTED = "--model needs a class or function that gives a torch.nn.Module, or a module itself"


def _failure(target: Target, found: object, error: BaseException) -> str:
    """One sentence on a model that could not be built, and one on what to do where that is known."""
    blamed = blame(error)
    said = f"{target.name} cannot be built: {blamed}."
    if wants_values(error):
        return (
            f"{said} Models are built without memory, so parameters have no values. Build it when the file is imported "
            f"(net = {target.attributes[-1]}(…), then --model {target.stem}:net), or save its state_dict() for --like."
        )
    if isinstance(error, TypeError) and not own_place(error):
        return f"{said} Arguments go in parentheses: --model {shlex.quote(f'{target.place}({_wanted(found)})')}."
    if wants_cuda(error):
        return f"{said} {NO_CUDA}"
    return said


def _wanted(found: object) -> str:
    """What has to be given, by its names: ``width=…, depth=…``."""
    try:
        parameters = inspect.signature(found).parameters.values()  # type: ignore[arg-type]  # what has none raises
    except (TypeError, ValueError):
        return "…"
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    needed = [each for each in named if each.default is each.empty] or named[:1]
    return ", ".join([f"{each.name}=…" for each in needed]) or "…"
