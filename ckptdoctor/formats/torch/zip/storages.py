"""Where the storages that a pickle names lie in the archive."""

from __future__ import annotations

from ckptdoctor.checkpoint import DType, Extent, Note, NoteKind, Storage
from ckptdoctor.formats.torch.read.contents import ZIP_ID
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.record import Directory, shown
from ckptdoctor.wording import plural


class ZipStorages:
    """The storages of one archive, looked up by key as torch does (``<prefix>/data/<key>``).

    ``notes`` gathers what is missing or has another length than the pickle says.
    """

    id_parts = ZIP_ID

    def __init__(self, path: str, directory: Directory) -> None:
        self._path = path
        self._directory = directory
        self.notes: list[Note] = []

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """The storage with this key, of ``nbytes`` bytes as the pickle declares it."""
        record = self._directory.find(f"data/{key}")
        if record is None:
            member = shown(f"{self._directory.prefix}/data/{key}")
            message = f"storage {shown(key)} ({plural(nbytes, 'byte')}) has no record: its values are not in the file"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, member))
            return Storage(key, nbytes, dtype, device, None)
        if record.size != nbytes:
            member = shown(f"{self._directory.prefix}/data/{key}")
            message = (
                f"storage {shown(key)} should be {plural(nbytes, 'byte')}, but its record has {record.size:,}: "
                "torch.load refuses it, but takes bytes of its neighbours with mmap=True"
            )
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, member))
        extent = Extent(self._path, record.data_offset, record.compressed)
        crc = record.crc if record.crc or not record.size else None
        return Storage(key, nbytes, dtype, device, extent, crc, record.method != structs.STORED)
