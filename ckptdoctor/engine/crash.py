"""A bug in ckptdoctor itself, as one line that a report can quote."""

from __future__ import annotations

import os


def wants_trace() -> bool:
    """Whether the environment asks for the whole trace instead of a line."""
    return bool(os.environ.get("CKPTDOCTOR_TRACEBACK"))


def one_line(error: BaseException) -> str:
    """What happened and in which line of code, with how to see more; or that torch is missing, which is no bug."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":  # most of ckptdoctor works without it
        return "This is done with torch, and it is not installed: pip install torch"
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (
        f"ckptdoctor itself failed: {type(error).__name__} at {place}: {error}. "
        "Nothing was changed. CKPTDOCTOR_TRACEBACK=1 shows the whole trace; please report it."
    )
