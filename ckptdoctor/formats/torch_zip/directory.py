"""A strict reader of zip directories: what torch would read, and everything on which readers could disagree."""

from __future__ import annotations

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.errors import DamagedError, NotACheckpointError
from ckptdoctor.formats.torch_zip.central import read_entries
from ckptdoctor.formats.torch_zip.end import find_end
from ckptdoctor.formats.torch_zip.local import check_records, first_name
from ckptdoctor.formats.torch_zip.names import check_names, choose_prefix, look_up
from ckptdoctor.formats.torch_zip.record import Directory, Record, ascii_lower
from ckptdoctor.formats.torch_zip.remarks import Remarks
from ckptdoctor.wording import plural


def read_directory(source: Source) -> Directory:
    """The directory of a torch archive, checked against its records.

    Raises TruncatedError when the archive has no end, DamagedError when there is no directory where it should be or
    it leaves ``data.pkl`` out, HostileError when it is larger than any checkpoint's, and NotACheckpointError when no
    folder holds ``data.pkl`` or when it is a TorchScript archive (``constants.pkl``).
    """
    remarks = Remarks()
    end = find_end(source, remarks)
    entries = read_entries(source, end, remarks)
    records = check_records(source, entries, end.offset, remarks)
    prefix = choose_prefix(records)
    if prefix is None and _begins_with_a_pickle(source):
        raise DamagedError(
            "The zip directory does not list the data.pkl with which the file begins.", offset=end.offset
        )
    if prefix is None:
        raise NotACheckpointError(f"{source.path} is a zip archive without a data.pkl in a folder.")
    found = look_up(records, remarks)
    script = f"{prefix}/constants.pkl"  # its exact name alone makes the file TorchScript for torch.load
    if ascii_lower(script) in found and any(record.name == script for record in records):
        raise NotACheckpointError(f"{source.path} is a TorchScript archive: it holds constants.pkl.")
    check_names(records, prefix, remarks)
    _check_checksums(records, remarks)
    return Directory(tuple(records), prefix, found, end.stop, remarks.notes(), not remarks.trouble)


def _begins_with_a_pickle(source: Source) -> bool:
    name = first_name(source) or ""
    return name.lower().endswith("/data.pkl") and name.count("/") == 1


def _check_checksums(records: list[Record], remarks: Remarks) -> None:
    """Remark on checksums that were never computed: 0 for data that is not empty."""
    filled = [record for record in records if record.size]
    without = [record for record in filled if not record.crc]
    if not without:
        return
    if len(without) == len(filled):
        message = "no checksums were computed (torch.serialization.set_crc32_options(False)): damage cannot be seen"
    else:
        message = (
            f"{len(without):,} of {plural(len(filled), 'record')} {'has' if len(without) == 1 else 'have'} the "
            "checksum 0, which means that none was computed"
        )
    remarks.add(NoteKind.CRC_NOT_COMPUTED, message)
