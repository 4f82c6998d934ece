"""Puts in one line what nobody foresaw: a bug in ckptdoctor itself, and torch that is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ckptdoctor.errors import MissingPackageError

_NO_TORCH = "This is done with torch, and it is not installed: pip install torch"


@contextmanager
def asking_for_torch() -> Iterator[None]:
    """Raises MissingPackageError where torch is wanted and not installed; most of ckptdoctor works without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackageError(_NO_TORCH) from None


def wants_trace() -> bool:
    """Whether the environment asks for the whole trace instead of a line."""
    return bool(os.environ.get("CKPTDOCTOR_TRACEBACK"))


def one_line(error: BaseException) -> str:
    """What happened and in which line of code, with how to see more; or that torch is missing, which is no bug."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return _NO_TORCH
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (
        f"ckptdoctor itself failed: {type(error).__name__} at {place}: {error}. "
        "Nothing was changed. CKPTDOCTOR_TRACEBACK=1 shows the whole trace; please report it."
    )
