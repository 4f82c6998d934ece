"""What was written, opened again as any file is: it can be read, and holds what it was to hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.prove.same_contents import first_difference


@contextmanager
def read_back() -> Iterator[None]:
    """Reading of an output: what fails in it raises WriteError, and the output is thrown away."""
    try:
        yield
    except WriteError:
        raise
    except CkptDoctorError as error:
        raise WriteError(f"The output cannot be read back and was thrown away: {error.message}") from error


def require_same(wanted: Checkpoint, written: Checkpoint) -> None:
    """Raises WriteError, with the place, where the output holds something else than what was planned."""
    require_right(first_difference(wanted, written))


def require_right(wrong: str | None) -> None:
    """Raises WriteError where something is wrong with the output: what, as the end of a sentence."""
    if wrong is not None:
        raise WriteError(f"The output is not what was planned, and was thrown away: {wrong}.")
