"""The pickles at the beginning of a legacy file (``torch.serialization._legacy_save``)."""

from __future__ import annotations

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import DamagedError, HostileError, TruncatedError
from ckptdoctor.formats.torch.read.slots import children
from ckptdoctor.formats.torch.read.storages import storage_key
from ckptdoctor.formats.torch.read.values import bare
from ckptdoctor.noun import noun
from ckptdoctor.pickles import Made, Pickle, Tuple, decode

# torch.serialization.MAGIC_NUMBER and PROTOCOL_VERSION
MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001

# how the number stands in a pickle: protocol 2 and later in binary, earlier ones in digits
_MAGIC_BYTES = (MAGIC.to_bytes(10, "little"), str(MAGIC).encode())
_MAGIC_WITHIN = 48

# the pickles are read in steps that grow, because nothing says where they end
_FIRST_STEP = 1 << 20
_GROWTH = 4
MAX_PICKLE_BYTES = 1 << 30

NAMES = ("magic number", "protocol version", "system info", "saved object", "storage keys")


@noun
class Stream:
    """The five pickles, decoded from ``data``, the file's beginning; ``end`` is where the storages begin."""

    data: bytes
    pickles: tuple[Pickle, ...]

    @property
    def saved(self) -> Pickle:
        """The pickle of the object that was saved."""
        return self.pickles[3]

    @property
    def end(self) -> int:
        """The byte after the last pickle."""
        return self.pickles[4].end

    @property
    def keys(self) -> list[str | None]:
        """The keys of the storages in the order in which they follow; None for what is no key."""
        found = children(self.pickles[4].root)
        return [storage_key(each[-1].value.value) for part, each in found.items() if isinstance(part, int)]


def is_legacy(head: bytes) -> bool:
    """Whether a file that begins so has the magic number of legacy files in its first pickle."""
    if not any(each in head[:_MAGIC_WITHIN] for each in _MAGIC_BYTES):
        return False
    try:
        return bare(decode(head).root) == MAGIC
    except DamagedError:
        return False


def read_stream(source: Source) -> Stream:
    """All five pickles.

    Raises TruncatedError when the file ends within them, DamagedError when one of them makes no sense or the protocol
    version is another, HostileError when they take more than 1 GiB.
    """
    data = source.read(0, min(_FIRST_STEP >> 2 if source.distant else _FIRST_STEP, source.size))
    pickles: list[Pickle] = []
    for name in NAMES:
        data, pickle = _next(source, data, pickles[-1].end if pickles else 0, name)
        pickles.append(pickle)
        if len(pickles) == 2 and bare(pickle.root) != PROTOCOL:
            message = f"This is not version {PROTOCOL} of torch's old format, the only one there has been."
            raise DamagedError(message, offset=pickle.start)
    if not isinstance(bare(pickles[4].root), (Made, Tuple)):
        raise DamagedError("The list of storage keys is no list.", offset=pickles[4].start)
    return Stream(data, tuple(pickles))


def _next(source: Source, data: bytes, start: int, name: str) -> tuple[bytes, Pickle]:
    """The pickle at ``start``, and the beginning of the file as far as it took to read it."""
    while True:
        try:
            return data, decode(data, start)
        except TruncatedError as error:
            if len(data) == source.size:
                message = f"The file ends within the pickle of the {name}, at byte {source.size:,}."
                raise TruncatedError(message, offset=source.size) from error
            if len(data) >= MAX_PICKLE_BYTES:
                message = f"The pickles take more than {MAX_PICKLE_BYTES:,} bytes, which is more than is read."
                raise HostileError(message, offset=start) from error
        except DamagedError as error:
            message = f"The pickle of the {name} is damaged: {error.message}"
            raise type(error)(message, offset=error.offset) from error
        data += source.read(len(data), min(len(data) * (_GROWTH - 1), source.size - len(data)))
