"""Copies of archives that others wrote, that are damaged, or on which readers disagree."""

import io
import random
import struct
import zipfile

import pytest
import torch

from ckptdoctor.edits import Compact, Drop, Rename, Retag
from ckptdoctor.errors import CkptDoctorError, DamagedError, RefusedError, UnprovenError
from tests.formats.torch.zip.forge import Part, assembled, part, parts_of, saved
from tests.formats.torch.zip.rewriting import CONTENTS, RENAMES, assert_loads, rewritten


class TestOtherWriters:
    def test_zipfile_that_kept_the_format_version(self, path, tmp_path):
        """An archive repacked by zipfile, whose computed offsets are wrong, comes out right in every way of loading."""
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "re.pt", "w") as new:
            for info in old.infolist():
                new.writestr(info.filename, old.read(info))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "re.pt", RENAMES))
        assert_loads(tmp_path / "new.pt", CONTENTS)

    @pytest.mark.parametrize("seed", range(4))
    def test_records_in_another_order(self, seed, tmp_path):
        """Whatever the order of the records, the copy loads the same in every way."""
        parts = parts_of(saved(CONTENTS))
        random.Random(seed).shuffle(parts)
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", RENAMES))
        assert_loads(tmp_path / "new.pt", CONTENTS)

    def test_before_format_version(self, tmp_path):
        """An archive from before .format_version, storages in lexicographic order, keeps its records and its order."""
        contents = {f"key{index}": torch.full((3,), float(index)) for index in range(12)}
        torch.save(contents, tmp_path / "file.pt")
        unknown = (b".format_version", b".storage_alignment", b"byteorder", b"serialization_id")
        parts = [one for one in parts_of((tmp_path / "file.pt").read_bytes()) if not one.name.endswith(unknown)]
        parts = [parts[0], *sorted(parts[1:-1], key=lambda one: one.name), parts[-1]]
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        copy = rewritten(tmp_path / "file.pt", Rename((), (("key0", "renamed"),)))
        assert [one.name for one in parts_of(copy)] == [one.name for one in parts]
        (tmp_path / "new.pt").write_bytes(copy)
        assert_loads(tmp_path / "new.pt", contents)

    def test_deflated(self, tmp_path):
        """Compressed records are written uncompressed, so that mapping them works."""
        parts = parts_of(saved(CONTENTS))
        for one in parts:
            one.method = 8
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", RENAMES))
        assert_loads(tmp_path / "new.pt", CONTENTS)
        with zipfile.ZipFile(tmp_path / "new.pt") as archive:
            assert archive.testzip() is None

    def test_deflated_and_damaged(self, tmp_path):
        """A compressed record that does not inflate is refused before anything is written."""
        parts = parts_of(saved(CONTENTS))
        part(parts, "data/0").method = 8
        part(parts, "data/0").local = part(parts, "data/0").central = {"size": 47}
        part(parts, "data/0").footer = b""
        data = assembled(parts)
        (tmp_path / "file.pt").write_bytes(data)
        with pytest.raises(CkptDoctorError):
            rewritten(tmp_path / "file.pt", RENAMES)

    def test_compact_of_a_deflated_storage(self, tmp_path):
        """A compressed storage is cut down as others are."""
        contents = {"slice": torch.arange(100.0)[:3]}
        parts = parts_of(saved(contents))
        part(parts, "data/0").method = 8
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", Compact(("0",))))
        assert_loads(tmp_path / "new.pt", contents)
        assert torch.load(tmp_path / "new.pt")["slice"].untyped_storage().nbytes() == 12

    def test_unknown_records_stay(self, path, tmp_path):
        """Records that torch does not know, and storages that nothing uses, are copied along."""
        parts = parts_of(path.read_bytes())
        parts.insert(2, Part(b"file/notes.txt", b"do not lose me"))
        parts.insert(8, Part(b"file/data/999", b"unused"))
        parts.append(Part(b"file/folder/", b""))
        path.write_bytes(assembled(parts))
        copy = rewritten(path, RENAMES)
        names = {one.name: one.data for one in parts_of(copy)}
        assert names[b"file/notes.txt"] == b"do not lose me"
        assert names[b"file/data/999"] == b"unused"
        assert b"file/folder/" in names
        (tmp_path / "new.pt").write_bytes(copy)
        assert_loads(tmp_path / "new.pt", CONTENTS)

    def test_unused_record_in_the_way(self, tmp_path):
        """A record that nothing uses but whose name is needed refuses an edit that numbers storages anew."""
        parts = parts_of(saved([torch.ones(1), torch.ones(2), torch.ones(3)]))
        pickle = part(parts_of(saved([torch.ones(2), torch.ones(3)])), "data.pkl").data
        for old, new in ((b"1", b"2"), (b"0", b"1")):
            pickle = pickle.replace(b"X\1\0\0\0" + old, b"X\1\0\0\0" + new)
        part(parts, "data.pkl").data = pickle
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", Retag("cpu")))
        assert_loads(tmp_path / "new.pt", [torch.ones(2), torch.ones(3)])
        with pytest.raises(RefusedError, match="data/0, which no tensor uses, has the name that a new storage needs"):
            rewritten(tmp_path / "file.pt", Drop(((0,),)))

    def test_misleading_alignment(self, tmp_path):
        """A .storage_alignment that cannot be kept takes .format_version with it, so that torch looks offsets up."""
        parts = parts_of(saved(CONTENTS))
        part(parts, ".storage_alignment").data = b"1000000"
        (tmp_path / "file.pt").write_bytes(assembled(parts))
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", RENAMES))
        assert_loads(tmp_path / "new.pt", CONTENTS)


class TestRefusals:
    def test_ambiguous_archive(self, path):
        """An archive on which readers disagree is not repaired."""
        parts = parts_of(path.read_bytes())
        parts.append(Part(b"file/data/0", bytes(48)))
        path.write_bytes(assembled(parts))
        with pytest.raises(UnprovenError, match="2 records are called file/data/0"):
            rewritten(path, RENAMES)

    def test_damaged_archive(self, path):
        """Nor is a damaged one."""
        parts = parts_of(path.read_bytes())
        part(parts, "/version").central = {"offset": 10**7}
        path.write_bytes(assembled(parts))
        with pytest.raises(UnprovenError, match="beyond the end of the file"):
            rewritten(path, RENAMES)

    def test_bytes_before_the_archive(self, path):
        """Bytes before the archive would be lost, so it is refused."""
        path.write_bytes(assembled(parts_of(path.read_bytes()), before=b"#!/bin/sh\n", shift=True))
        with pytest.raises(RefusedError, match="10 bytes are before"):
            rewritten(path, RENAMES)

    def test_changed_pickle(self, path):
        """A pickle that does not match its checksum is refused, so that no repair hides it."""
        parts = parts_of(path.read_bytes())
        part(parts, "data.pkl").data = part(parts, "data.pkl").data.replace(b"epoch", b"epocj")
        part(parts, "data.pkl").central = {"crc": 77}
        part(parts, "data.pkl").footer = struct.pack(
            "<4sIII", b"PK\7\x08", 77, *[len(part(parts, "data.pkl").data)] * 2
        )
        path.write_bytes(assembled(parts))
        with pytest.raises(RefusedError, match="does not match its checksum"):
            rewritten(path, RENAMES)

    def test_missing_storage(self, path):
        """A file with a missing storage is not copied as if it were whole."""
        parts = [one for one in parts_of(path.read_bytes()) if not one.name.endswith(b"data/1")]
        path.write_bytes(assembled(parts))
        with pytest.raises(RefusedError, match="as damaged as the original"):
            rewritten(path, RENAMES)

    def test_encrypted_record(self, path):
        """An encrypted record cannot be copied as it is."""
        parts = parts_of(path.read_bytes())
        parts.append(Part(b"file/secret", b"x", local={"flags": 0x0809}, central={"flags": 0x0809}))
        path.write_bytes(assembled(parts))
        with pytest.raises(DamagedError, match="encrypted"):
            rewritten(path, RENAMES)


class TestDamageStaysVisible:
    def test_wrong_checksum_is_carried_over(self, path):
        """A storage that no longer matches its checksum does not match it in the copy either."""
        data = bytearray(path.read_bytes())
        data[data.index(torch.arange(12.0).numpy().tobytes()) + 5] ^= 0x40
        path.write_bytes(data)
        with zipfile.ZipFile(io.BytesIO(rewritten(path, RENAMES))) as archive:
            assert archive.testzip() == "file/data/0"

    def test_compacting_a_damaged_storage(self, tmp_path):
        """A storage that does not match its checksum is not cut down, which would give it a new one."""
        torch.save({"slice": torch.arange(100.0)[:3]}, tmp_path / "file.pt")
        data = bytearray((tmp_path / "file.pt").read_bytes())
        data[data.index(torch.arange(100.0).numpy().tobytes()) + 300] ^= 0x40
        (tmp_path / "file.pt").write_bytes(data)
        with pytest.raises(RefusedError, match="does not match its checksum"):
            rewritten(tmp_path / "file.pt", Compact(("0",)))

    def test_bytes_behind_the_pickle_stay(self, path):
        """Bytes behind the pickle's end are not lost."""
        parts = parts_of(path.read_bytes())
        part(parts, "data.pkl").data += b"behind"
        path.write_bytes(assembled(parts))
        copy = parts_of(rewritten(path, RENAMES))
        assert part(copy, "data.pkl").data.endswith(b".behind")
