"""``python -m ckptdoctor.run train.py …`` runs a script, and says why it died, where it died of a checkpoint.

``-m MODULE`` runs a module, as ``python -m MODULE`` does. See ``ckptdoctor.autoexplain``.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

_USAGE = "Usage: python -m ckptdoctor.run SCRIPT [ARGUMENTS]…, or python -m ckptdoctor.run -m MODULE [ARGUMENTS]…"


def main() -> None:
    """Run what the command line names, as ``__main__``, with its own arguments. Its errors and its status are kept."""
    import runpy

    import ckptdoctor.autoexplain  # noqa: F401 - that is what this is for

    words = sys.argv[1:]
    as_module = words[:1] == ["-m"]
    words = words[as_module:]
    if not words or words[0] in ("-h", "--help"):
        sys.exit(_USAGE)
    if not as_module and not os.path.exists(words[0]):
        sys.exit(f"{words[0]}: no such file. {_USAGE}")
    _leave_out_own_frames()
    sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.abspath(words[0]))
    sys.argv = words
    if as_module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def _leave_out_own_frames() -> None:
    """Begin a traceback where the script begins, as Python does."""
    import runpy

    before = sys.excepthook
    ours = (__file__, runpy.__file__, "<frozen runpy>")

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        inside = trace
        while inside is not None and inside.tb_frame.f_code.co_filename in ours:
            inside = inside.tb_next
        before(kind, error.with_traceback(inside or trace), inside or trace)

    sys.excepthook = hook


if __name__ == "__main__":
    main()
