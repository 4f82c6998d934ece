"""Tar archives: torch's own from before 0.1.10, and others that may hold a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.found import Found
from ckptdoctor.formats.recognise.members import checkpoints_in

_BLOCK = 512

# members that are looked at, at most
_MOST = 1000

# what torch wrote before 0.1.10 (torch.serialization._legacy_load)
_TORCH_MEMBERS = frozenset({"storages", "tensors", "pickle"})


def recognise_tar(source: Source, head: bytes) -> Found | None:
    """A tar archive, by its first header's checksum (the oldest kind has no other mark)."""
    if not _is_header(head[:_BLOCK]):
        return None
    names = [name.removeprefix("./") for name in _names(source)]
    if _TORCH_MEMBERS & set(names):
        guidance = "It is from before torch 0.1.10: torch.load reads it with weights_only=False, if you trust it."
        return Found("torch tar", guidance)
    return Found("tar archive", checkpoints_in(names, "tar -xf FILE"))


def _is_header(block: bytes) -> bool:
    if len(block) < _BLOCK or not block[0]:
        return False
    stated = _octal(block[148:156])
    return stated is not None and stated == sum(block[:148]) + 8 * 0x20 + sum(block[156:])


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


def _names(source: Source) -> Iterator[str]:
    at = 0
    for _ in range(_MOST):
        if at + _BLOCK > source.size:
            return
        block = source.read(at, _BLOCK)
        size = _octal(block[124:136])
        if size is None or not _is_header(block):
            return
        yield block[:100].split(b"\0")[0].decode("utf-8", "replace")
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
