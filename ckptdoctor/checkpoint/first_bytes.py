"""Tells by the first bytes of a file which protocol its pickle has, and where its first value begins."""

from __future__ import annotations

from ckptdoctor.checkpoint.checkpoint import Container
from ckptdoctor.noun import replace

_LOCAL = b"PK\x03\x04"
_LOCAL_SIZE = 30  # of a zip record's header, before its name (APPNOTE.TXT 4.3.7)
_LONGEST_PADDING = 67  # four bytes, and less than the alignment of 64
_PROTO = 0x80
_OLDEST, _NEWEST = 2, 5  # protocols that begin with PROTO


def pickle_protocol(container: Container | None) -> int | None:
    """Return the protocol of the contents.

    It is None where the first bytes do not tell: another format, or another first record.

    0 and 1 have no mark of their own: a legacy torch file without one is of protocol 1.
    """
    if container is None or not container.readable:
        return None
    head = container.head
    if container.format == "torch zip" and head.startswith(_LOCAL):
        name = int.from_bytes(head[26:28], "little")
        if not head[_LOCAL_SIZE : _LOCAL_SIZE + name].lower().endswith(b"/data.pkl"):
            return None
        return _stated(head[_record(head) :])
    return _stated(head) if container.format == "torch legacy" else None


def with_default_protocol(container: Container) -> Container:
    """Return the file as it begins once its contents are pickled with the protocol of ``torch.save``."""
    head = container.head
    at = _record(head) if container.format == "torch zip" and head.startswith(_LOCAL) else 0
    if (pickle_protocol(container) or 0) <= _OLDEST:
        return container
    return replace(container, head=head[: at + 1] + bytes((_OLDEST,)) + head[at + 2 :])


def first_value(container: Container) -> int | None:
    """Return where the first record of an archive, or the first value behind a safetensors header, begins.

    It is None for a pickle that was replaced in place: the padding before it is longer than any writer's, and it begins
    where it has to.
    """
    head = container.head
    if container.format == "torch zip":
        if int.from_bytes(head[28:30], "little") > _LONGEST_PADDING:
            return None
        return _record(head) if head.startswith(_LOCAL) and len(head) >= _LOCAL_SIZE else None
    if container.format == "safetensors":
        return 8 + int.from_bytes(head[:8], "little")
    return None


def _record(head: bytes) -> int:
    """Return where the contents of the first record of a zip file begin."""
    return _LOCAL_SIZE + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def _stated(data: bytes) -> int | None:
    if len(data) < 2:
        return None
    if data[0] != _PROTO:
        return 1
    return data[1] if _OLDEST <= data[1] <= _NEWEST else None
