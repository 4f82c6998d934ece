"""Imports the user's own code, which ``--model`` names, and finds in it what is meant."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from ckptdoctor.checkpoint.process import ARGUMENTS
from ckptdoctor.crash import here
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.target.blame import MEND, NO_CUDA, blame, is_installed, own_traceback, wants_cuda
from ckptdoctor.target.target import NamedTarget

LIBRARIES = frozenset({"timm", "torchvision"})  # those whose models are known by names of their own


@contextmanager
def users_code(target: NamedTarget) -> Iterator[None]:
    """Run the user's code as Python finds it when it is run from the current directory.

    What it prints goes to stderr: stdout is for results. Of our arguments it gets those behind ``--``.
    """
    folder = here()
    folders = [] if folder is None else [folder]
    if target.is_file:
        folders.insert(0, os.path.dirname(os.path.abspath(target.module)))
    arguments, sys.argv = sys.argv, [target.module, *ARGUMENTS.get()]
    sys.path[:0] = folders
    importlib.invalidate_caches()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = arguments
        if folder is not None:
            os.chdir(folder)  # a script may go to its own folder, and the paths that we were given are from here
        for each in folders:
            if each in sys.path:  # the code may have changed it as well
                sys.path.remove(each)


def find(target: NamedTarget) -> object:
    """Return the object that the target names. Raises UsageError, with the user's own line where their code fails."""
    module = _imported(target)
    try:
        return _inside(module, target)
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a module that imports its parts when they are asked for
        raise UsageError(failed(target, error)) from error


def _inside(module: ModuleType, target: NamedTarget) -> object:
    found: object = module
    short = _of_library(target, found)
    if short is not None:
        return short
    for depth, name in enumerate(target.attributes):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            holder = ".".join([target.stem, *target.attributes[:depth]])
            guarded = _GUARDED if found is module and _is_guarded(module, name) else _instead(found, name)
            raise UsageError(f'{holder} has no "{name}".{guarded}') from error
    return found


def _of_library(target: NamedTarget, module: object) -> object | None:
    """Return the function that makes the model of this name in a library, as in ``timm:resnet50``."""
    name = target.attributes[0]
    if hasattr(module, name):
        return None
    if target.module == "torchvision" and len(target.attributes) == 1:
        return getattr(importlib.import_module("torchvision.models"), name, None)
    if target.module == "timm" and name in module.list_models():  # type: ignore[attr-defined]  # timm is no dependency
        # the tag behind a dot chooses weights, and with them the number of classes
        return partial(module.create_model, ".".join(target.attributes))  # type: ignore[attr-defined]
    return None


_GUARDED = ' It is defined only when the file is run, under if __name__ == "__main__": move it above that.'


def _is_guarded(module: ModuleType, name: str) -> bool:
    """Return whether the file gives the name a value only where it is run itself."""
    if not _is_own_file(module):
        return False
    with open(str(module.__file__), "rb") as file:
        body = ast.parse(file.read()).body
    guards = [each for each in body if isinstance(each, ast.If) and "__name__" in ast.dump(each.test)]
    return any(name in _defined(each) for each in guards)


def _is_own_file(module: ModuleType) -> bool:
    """Return whether it is code of the user's own, in a file of Python."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(".py") and os.path.isfile(file) and not is_installed(file)


def _instead(holder: object, name: str) -> str:
    """Return other names to try: those that look alike, or else the module's own classes and functions."""
    public = [each for each in dir(holder) if not each.startswith("_")]
    alike = difflib.get_close_matches(name, public, 3)
    if not alike and isinstance(holder, ModuleType):
        alike = [each for each in public if getattr(vars(holder).get(each), "__module__", None) == holder.__name__][:8]
    return f" It has {', '.join(alike)}." if alike else ""


class _Definitions(SourceFileLoader):
    """Runs a file as far as the definition of one name, and of the rest only imports, functions and classes.

    A script that trains behind its classes is so not run to its end, where nobody wrote ``if __name__ == "__main__"``.
    """

    def __init__(self, fullname: str, path: str, name: str) -> None:
        super().__init__(fullname, path)
        self._name = name

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code, compiled again: what Python caches is the whole file."""
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        last = max((at for at, each in enumerate(tree.body) if self._name in _defined(each)), default=None)
        if last is None:  # it comes from a star import, say, or there is no such name
            kept = [each for each in tree.body if not _runs(each)]
            tree.body = [_tried(each) if isinstance(each, _DEFINING[:3]) else each for each in kept]
        else:
            tree.body[last + 1 :] = [_tried(each) for each in tree.body[last + 1 :] if _defines(each)]
        return compile(tree, path, "exec", dont_inherit=True)


_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _defines(statement: ast.stmt) -> bool:
    """Return whether a statement is what code in front of it may need, a definition or a plain constant."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return not any(isinstance(each, (ast.Call, ast.Await)) for each in ast.walk(statement))
    return isinstance(statement, _DEFINING)


def _tried(statement: ast.stmt) -> ast.stmt:
    """Return the statement where it works: it may need what is left out."""
    nothing = ast.ExceptHandler(type=ast.Name("Exception", ast.Load()), name=None, body=[ast.Pass()])
    made = ast.Try(body=[statement], handlers=[nothing], orelse=[], finalbody=[])
    return ast.fix_missing_locations(ast.copy_location(made, statement))


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a file gives a value."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    return {
        each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    } | {each.name for each in ast.walk(statement) if isinstance(each, (ast.FunctionDef, ast.ClassDef))}


def _runs(statement: ast.stmt) -> bool:
    """Return whether a statement may do more than define: a loop, or anything that is called outside of a condition."""
    return not _defines(statement) and not isinstance(statement, (ast.If, ast.Try))


def _imported(target: NamedTarget) -> ModuleType:
    try:
        return _from_file(target) if target.is_file else _from_name(target)
    except (UsageError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if target.module in LIBRARIES and error.name == target.module:
            raise UsageError(
                f"{target.module} is not installed in ckptdoctor's environment: pip install {error.name}"
            ) from error
        if not target.is_file and error.name and f"{target.module}.".startswith(f"{error.name}."):
            raise UsageError(
                f'No module "{error.name}" is in the current directory or installed. Name it as Python '
                f"imports it, or give its file, such as path/to/nets.py:{target.attributes[0]}."
            ) from error
        raise UsageError(failed(target, error)) from error
    except BaseException as error:  # of any kind: pytest.skip() and sys.exit() are no Exceptions
        raise UsageError(failed(target, error)) from error


def failed(target: NamedTarget, error: BaseException) -> str:
    """Return the error that the module cannot be imported, why, and what to do; then the user's own traceback."""
    return f"{target.module} cannot be imported: {blame(error)}. {_way_out(error)}{own_traceback(error)}"


def _way_out(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return (
            "If it reads a command line, give that after --, as in: --model train.py:Net -- --lr 0.1. Code "
            'that is only for running the file belongs under if __name__ == "__main__".'
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        return (
            f"Install it in ckptdoctor's environment (pip install {top}), or start ckptdoctor in the folder that "
            "has it."
        )
    return NO_CUDA if wants_cuda(error) else MEND


def _from_name(target: NamedTarget) -> ModuleType:
    """Return a module by its dotted name: of the user's own code only definitions, of libraries all that they are."""
    if target.module in sys.modules:
        return sys.modules[target.module]
    spec = importlib.util.find_spec(target.module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {target.module!r}", name=target.module)
    return _run(spec, target) if _is_own(spec) else importlib.import_module(target.module)


def _is_own(spec: ModuleSpec) -> bool:
    return type(spec.loader) is SourceFileLoader and spec.origin is not None and not is_installed(spec.origin)


def _run(spec: ModuleSpec, target: NamedTarget) -> ModuleType:
    """Return the module of a spec, as far as the target is defined in it."""
    assert spec.origin is not None
    spec.loader = _Definitions(spec.name, spec.origin, target.attributes[0])
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    above, _, name = spec.name.rpartition(".")
    if above:
        setattr(sys.modules[above], name, module)
    return module


def _from_file(target: NamedTarget) -> ModuleType:
    """Return the file as a module; as part of its package where it is in one, so that relative imports work."""
    path = os.path.abspath(target.module)
    if not os.path.isfile(path):
        raise UsageError(f"{target.module}: no such file, so {'.'.join(target.attributes)} cannot be imported from it.")
    folder, parts = os.path.dirname(path), [target.stem]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    if len(parts) == 1:
        return _alone(target, path)
    sys.path.insert(0, folder)
    try:
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        module = _from_name(replace(target, module=name))
    finally:
        sys.path.remove(folder)
    if not os.path.samefile(module.__file__ or "", path):
        raise UsageError(f"{target.module} cannot be imported: {module.__name__} is {module.__file__} already.")
    return module


def _alone(target: NamedTarget, path: str) -> ModuleType:
    """Return a file outside of packages as a module, run again. A name that another module has is left to it."""
    known = sys.modules.get(target.stem)
    name = target.stem if known is None or getattr(known, "__file__", None) == path else f"_model_{target.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{target.module} is not a Python file: its name does not end in .py.")
    return _run(spec, target)
