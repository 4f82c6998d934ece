"""Says why ``torch.load(weights_only=True)`` refuses a file, as far as its pickles tell."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.checkpoint import Container, Source
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.pickles.weights_only import judged
from ckptdoctor.wording import format_name

_PICKLES = 5  # at the beginning of a file from before torch 1.6

# gives the full name in Python 3 of a class or function that torch allows, and None for any other
Allowed = Callable[[str, str], "str | None"]


def refusal(source: Source, container: Container, allowed: Allowed) -> str:
    """Return why torch 2.13 refuses the pickles of a file with weights_only=True, or "" where it takes them."""
    try:
        if container.format == "torch zip":
            from ckptdoctor.formats.torch.zip.read import directory_of, pickle_bytes, pickle_record, taken_stream

            known = taken_stream(source)
            if known is not None:
                return judged(known[0], 0, allowed, entries=known[1]).refusal
            data, _ = pickle_bytes(source, pickle_record(directory_of(source)))
            return judged(data, 0, allowed).refusal
        if container.format == "torch legacy":
            from ckptdoctor.formats.torch.legacy.read import read_stream

            return _of_stream(read_stream(source).data, allowed)
    except CkptDoctorError as error:
        return error.message
    return f"it is a {format_name(container.format)}"


def _of_stream(data: bytes, allowed: Allowed) -> str:
    at = 0
    for _ in range(_PICKLES):
        verdict = judged(data, at, allowed, typed=True)
        if verdict.refusal:
            return verdict.refusal
        at = verdict.end
    return ""
