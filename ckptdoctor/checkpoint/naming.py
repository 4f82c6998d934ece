"""Says what an output is called after, where nobody named it: the file or folder that it is made from."""

from __future__ import annotations

import os

_HERE = ("", os.curdir, os.pardir)  # the last parts of paths that are not names


def stem_of(path: str) -> str:
    """Return the path that an ending is appended to for an output next to ``path``.

    It has no separator at its end; of a folder that is given as ``.``, ``..`` or ``x/..`` it has the real name.
    """
    plain = path.rstrip("/" + os.sep)
    if os.path.basename(plain) not in _HERE:
        return plain
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    if not name:  # the root of the file system, next to which there is nothing
        return "root"
    return real if os.path.isabs(path) else os.path.join(os.path.relpath(folder), name)
