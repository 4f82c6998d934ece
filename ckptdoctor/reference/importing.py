"""Imports the user's own code, which ``--model`` names, and finds in it what is meant."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from types import ModuleType

from ckptdoctor.errors import UsageError
from ckptdoctor.reference.blame import blame, own_place
from ckptdoctor.reference.target import Target


@contextmanager
def users_code(target: Target) -> Iterator[None]:
    """Python as the user's code finds it when it is run from the current directory.

    What it prints goes to stderr: stdout is for results. It gets none of our arguments.
    """
    folders = [os.getcwd()]
    if target.is_file:
        folders.insert(0, os.path.dirname(os.path.abspath(target.module)))
    arguments, sys.argv = sys.argv, [target.module]
    sys.path[:0] = folders
    importlib.invalidate_caches()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = arguments
        for folder in folders:
            if folder in sys.path:  # the code may have changed it as well
                sys.path.remove(folder)


def find(target: Target) -> object:
    """What the target names. Raises UsageError, with the user's own line where it is their code that fails."""
    found: object = _imported(target)
    for depth, name in enumerate(target.attributes):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            holder = ".".join([target.stem, *target.attributes[:depth]])
            raise UsageError(f"{holder} has no “{name}”.{_instead(found, name)}") from error
    return found


def _instead(holder: object, name: str) -> str:
    """What else there is: names that look alike, or else the module's own classes and functions."""
    public = [each for each in dir(holder) if not each.startswith("_")]
    alike = difflib.get_close_matches(name, public, 3)
    if not alike and isinstance(holder, ModuleType):
        alike = [each for each in public if getattr(vars(holder).get(each), "__module__", None) == holder.__name__][:8]
    return f" It has {', '.join(alike)}." if alike else ""


def _imported(target: Target) -> ModuleType:
    try:
        return _from_file(target) if target.is_file else importlib.import_module(target.module)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if not target.is_file and error.name and f"{target.module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"There is no module “{error.name}” in the current directory or installed: name it as Python imports "
                f"it, or give its file, such as path/to/nets.py:{target.attributes[0]}."
            ) from error
        raise UsageError(f"{_failed(target, error)}. Install it beside ckptdoctor.") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{_failed(target, error)}.{_way_out(error)}") from error


def _failed(target: Target, error: BaseException) -> str:
    blamed = blame(error)
    return blamed if own_place(error) else f"{target.module} cannot be imported: {blamed}"


def _way_out(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return ' What is only for running the file belongs under if __name__ == "__main__".'
    return ""


def _from_file(target: Target) -> ModuleType:
    """The file as a module; as part of its package where it lies in one, so that relative imports work."""
    path = os.path.abspath(target.module)
    if not os.path.isfile(path):
        raise UsageError(f"There is no file {target.module} to import {'.'.join(target.attributes)} from.")
    folder, parts = os.path.dirname(path), [target.stem]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    if len(parts) == 1:
        return _alone(target, path)
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    finally:
        sys.path.remove(folder)
    if not os.path.samefile(module.__file__ or "", path):
        raise UsageError(f"{target.module} cannot be imported: {module.__name__} is {module.__file__} already.")
    return module


def _alone(target: Target, path: str) -> ModuleType:
    """A file that belongs to no package, run anew. A name that another module has is left to it."""
    known = sys.modules.get(target.stem)
    name = target.stem if known is None or getattr(known, "__file__", None) == path else f"_model_{target.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{target.module} is no file of Python code: its name does not end in .py.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
