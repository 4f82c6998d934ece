"""Files that are always whole: their contents change in one step."""

from __future__ import annotations

import os
from contextlib import suppress

from ckptdoctor.errors import WriteError


def replace(path: str, data: bytes) -> None:
    """Give ``path`` these contents, in one step that a crash cannot split. Raises WriteError."""
    temporary = f"{path}.partial"
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):  # it has got its name
                os.unlink(temporary)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: str, error: OSError) -> WriteError:
    """What to say when a file of the run cannot be written."""
    return WriteError(f"{path} cannot be written: {error.strerror}. Make room, or choose another --out.")
