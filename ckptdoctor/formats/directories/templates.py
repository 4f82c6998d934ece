"""Single tensors of ``torch.save``, thousands of them: those with the same pickle are read once.

The pickle of a tensor says its dtype, shape and storage, but not where that lies: tensors of one shape have the same.
"""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Extent, GlobalName, KeyPath, Source, Storage, Tensor
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.formats.torch_objects import interpret
from ckptdoctor.formats.torch_zip import structs
from ckptdoctor.formats.torch_zip.directory import read_directory
from ckptdoctor.formats.torch_zip.read import decode_member, pickle_bytes, pickle_record, read_word
from ckptdoctor.formats.torch_zip.record import Record
from ckptdoctor.formats.torch_zip.storages import ZipStorages

_VERSION = b"3\n"
_LONGEST = 4096  # the pickle of a tensor has a few hundred bytes


class Templates:
    """What is known of pickles that were seen. None from ``read`` means: look closer, there is something to say."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tensor | None] = {}
        self.globals: list[GlobalName] = []  # that the pickles name, each once

    def read(self, source: Source, shift: int, label: str, path: KeyPath) -> Tensor | None:
        """The one tensor in the archive that is all of ``source``, which begins at ``shift`` of its file."""
        try:
            directory = read_directory(source)
            member = pickle_record(directory)
            data, notes = pickle_bytes(source, member)
            usual = read_word(source, directory, "byteorder") == b"little"
            usual = usual and read_word(source, directory, "version") == _VERSION
            if notes or directory.notes or not usual or len(data) > _LONGEST:
                return None
            if data not in self._known:
                table = ZipStorages(source.file, directory)
                pickle = decode_member(data, member)
                contents = interpret(pickle, table, f"{label}/{member.name}")
                odd = pickle.ambiguities or pickle.discards_calls or pickle.end < len(data)
                tree = contents.tree if not (odd or contents.notes or table.notes) else None
                self._known[data] = tree if isinstance(tree, Tensor) and _is_plain(tree) else None
                self.globals += contents.globals
        except CkptDoctorError:
            return None
        template = self._known[data]
        record = directory.find(f"data/{template.storage.key}") if template and template.storage else None
        if template is None or record is None:
            return None
        return _placed(template, record, source.file, shift, label, path)


def _is_plain(tensor: Tensor) -> bool:
    """Whether there is nothing to it but a view of one storage."""
    storage = tensor.storage
    return storage is not None and storage.extent is not None and not tensor.parts and tensor.values is None


def _placed(tensor: Tensor, record: Record, file: str, shift: int, label: str, path: KeyPath) -> Tensor | None:
    assert tensor.storage is not None
    if record.method != structs.STORED or record.size != tensor.storage.nbytes:
        return None
    extent = Extent(file, record.data_offset + shift, record.compressed)
    crc = record.crc if record.crc or not record.size else None
    known = tensor.storage
    storage = Storage(f"{label}/{known.key}", known.nbytes, known.dtype, known.device, extent, crc)
    return replace(tensor, path=path, storage=storage)
