"""Puts in one line what nobody foresaw: a bug in ckptdoctor itself, no torch, and a current folder that is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ckptdoctor.errors import MissingPackageError


def no_torch(*others: str) -> str:
    """Return the sentence where torch is needed and not installed.

    It has the command that installs it, and ``others``.
    """
    wanted = " ".join(["'ckptdoctor[torch]'", *others])
    return f"This needs torch, which is not installed: {installing()} {wanted}"


def installing() -> str:
    """Return the command that installs into this environment.

    It is "pip install", if that is the pip that a shell would find.
    """
    from importlib.machinery import PathFinder
    from shutil import which

    from ckptdoctor.shell import word

    own = os.path.dirname(os.path.abspath(sys.executable))
    if os.path.dirname(os.path.abspath(which("pip") or "")) == own:
        return "pip install"
    # environments of uv have none; setuptools watches for who looks for pip, and may warn, so it is not asked
    if PathFinder.find_spec("pip") is None:
        return f"uv pip install --python {word(sys.executable)}"
    return f"{word(sys.executable)} -m pip install"


def require_torch_installed(*others: str) -> None:
    """Raise MissingPackageError where torch is not installed, ahead of work that would need it in the end."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingPackageError(no_torch(*others))


@contextmanager
def asking_for_torch() -> Iterator[None]:
    """Raise MissingPackageError where torch is wanted and not installed; most of ckptdoctor works without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackageError(no_torch()) from None


# shells and notebooks stay in a folder that a new run has removed and made again
NOWHERE = "The current folder has been removed. Go to another one with cd, or give absolute paths."


def here() -> str | None:
    """Return the current folder, None where it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def is_nowhere(error: BaseException) -> bool:
    """Return whether it was raised because the current folder has been removed."""
    return isinstance(error, FileNotFoundError) and error.filename is None and here() is None


def wants_trace() -> bool:
    """Return whether the environment asks for the whole trace instead of a line."""
    return bool(os.environ.get("CKPTDOCTOR_TRACEBACK"))


def one_line(error: BaseException) -> str:
    """Return what happened, in which line of code, and how to see more.

    A missing torch is not a bug: then the line says how to install it. Nor is a folder that is gone.
    """
    if is_nowhere(error):
        return NOWHERE
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return no_torch()
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (
        f"ckptdoctor itself failed: {type(error).__name__} at {place}: {error}. Nothing was changed. Set "
        "CKPTDOCTOR_TRACEBACK=1 for the full traceback, and please report it."
    )
