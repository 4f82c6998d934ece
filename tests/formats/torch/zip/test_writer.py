"""Edited copies of torch archives: identical where nothing changed, and loading the same in every way torch loads."""

import io
import random
import zipfile
from unittest import mock

import pytest
import torch
from torch.utils.serialization import config

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits import Compact, Drop, MakeContiguous, Rename, Retag, TakeRoot
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.formats.torch.zip import writer
from ckptdoctor.writing import Copy
from tests.formats.torch.zip.forge import parts_of, saved
from tests.formats.torch.zip.rewriting import CONTENTS, RENAMES, assert_loads, model, recipe_of, rewritten


class TestMoved:
    """All that is behind the pickle moves as one block, where records would come out the same one by one."""

    @staticmethod
    def both_ways(path, *edits):
        """The segments, those of records one by one, and whether the short way was taken."""
        with mock.patch.object(writer, "lay_out", wraps=writer.lay_out) as lay_out:
            short = recipe_of(path, *edits).segments
            taken = not lay_out.called
        with mock.patch.object(writer, "lay_out_moved", lambda *_: None):
            return short, recipe_of(path, *edits).segments, taken

    @pytest.mark.parametrize("seed", range(12))
    def test_both_ways_give_the_same_segments(self, seed, tmp_path):
        """For tensors of any size, shared or empty ones among them, and whatever the alignment and the names."""
        draw, path = random.Random(seed), tmp_path / "file.pt"
        base = torch.arange(100.0)
        kinds = (lambda: torch.zeros(draw.randrange(40)), lambda: base[draw.randrange(90) :], lambda: draw.random())
        contents = {f"{'x' * draw.randrange(9)}{index}": draw.choice(kinds)() for index in range(draw.randrange(1, 60))}
        renames = tuple((key, "y" * draw.randrange(300) + key) for key in contents if draw.random() < 0.5)
        with config.patch({"save.storage_alignment": draw.choice((1, 64, 64, 4096))}):
            torch.save(contents, path)
        short, long, _ = self.both_ways(path, *([Rename((), renames)] if renames else []))
        assert short == long

    def test_the_short_way_is_taken(self, tmp_path):
        """An ordinary file goes the short way; without it nothing here would be tested."""
        torch.save({f"module.{index}": torch.ones(index + 1) for index in range(20)}, tmp_path / "file.pt")
        pairs = tuple((f"module.{index}", f"{index}") for index in range(20))
        short, long, taken = self.both_ways(tmp_path / "file.pt", Rename((), pairs))
        assert taken
        assert short == long
        assert [type(each).__name__ for each in short] == ["Literal", "Copy", "Literal"]

    def test_damage_between_records_has_the_same_effect_on_both_ways(self, tmp_path):
        """Whatever bytes of headers are changed, both ways give the same segments or the same error."""
        path, draw = tmp_path / "file.pt", random.Random(0)
        torch.save({f"module.{index}": torch.ones(index) for index in range(20)}, path)
        intact = path.read_bytes()
        begin = intact.index(b"/.format_version")

        def outcome(way):
            try:
                return way()
            except CkptDoctorError as error:
                return error.message

        rename = Rename((), (("module.3", "3"),))
        for _ in range(60):
            damaged = bytearray(intact)
            damaged[draw.randrange(begin, len(intact))] = draw.randrange(256)
            path.write_bytes(damaged)
            short = outcome(lambda: recipe_of(path, rename).segments)
            with mock.patch.object(writer, "lay_out_moved", lambda *_: None):
                assert outcome(lambda: recipe_of(path, rename).segments) == short


class TestIdentity:
    @pytest.mark.parametrize("alignment", [1, 64, 4096])
    @pytest.mark.parametrize("protocol", [2, 4, 5])
    def test_no_edits(self, alignment, protocol, tmp_path):
        """Without edits the copy of a torch archive is the original, byte for byte."""
        with config.patch({"save.storage_alignment": alignment}):
            torch.save(CONTENTS, tmp_path / "file.pt", pickle_protocol=protocol)
        assert rewritten(tmp_path / "file.pt") == (tmp_path / "file.pt").read_bytes()

    @pytest.mark.parametrize(
        "contents",
        [
            {},
            None,
            torch.ones(3),
            [torch.zeros(0), torch.zeros(0)],
            torch.nn.Linear(2, 3).state_dict(),
            {f"key{index}": torch.ones(index) for index in range(30)},
        ],
    )
    def test_other_contents(self, contents, tmp_path):
        """The same holds for other contents."""
        torch.save(contents, tmp_path / "file.pt")
        recipe = recipe_of(tmp_path / "file.pt")
        assert rewritten(tmp_path / "file.pt") == (tmp_path / "file.pt").read_bytes()
        assert recipe.size == (tmp_path / "file.pt").stat().st_size

    @pytest.mark.filterwarnings("ignore:Sparse")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_odd_contents(self, tmp_path):
        """The same holds for whole modules, sparse and quantized tensors, storages, and values that repeat."""
        dense = torch.eye(4)
        shared = torch.nn.Parameter(torch.arange(6.0))
        shared.note = torch.ones(3)
        contents = {
            "module": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)),
            "sparse": [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_bsr((2, 2))],
            "quantized": torch.quantize_per_tensor(dense, 0.1, 3, torch.qint8),
            "per_channel": torch.quantize_per_channel(dense, torch.ones(4), torch.zeros(4), 0, torch.qint8),
            "storage": torch.arange(5).untyped_storage(),
            "parameters": (shared, shared, shared[2:4], shared.detach()),
            "empty": [torch.zeros(0), torch.zeros(0, 3), torch.zeros(0)],
            "meta": torch.ones(3, device="meta"),
            "complex": torch.ones(2, dtype=torch.complex64).conj(),
            "half": torch.ones(3).to(torch.float8_e4m3fn),
        }
        torch.save(contents, tmp_path / "file.pt")
        assert rewritten(tmp_path / "file.pt") == (tmp_path / "file.pt").read_bytes()

    def test_optimizer_state(self, tmp_path):
        """The same holds for a whole training checkpoint."""
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "file.pt")
        assert rewritten(tmp_path / "file.pt") == (tmp_path / "file.pt").read_bytes()

    def test_saved_to_a_buffer(self, tmp_path):
        """The same holds for an archive saved to a file object, whose folder is called archive."""
        (tmp_path / "file.pt").write_bytes(saved(CONTENTS))
        assert rewritten(tmp_path / "file.pt") == saved(CONTENTS)

    def test_without_checksums(self, tmp_path):
        """The same holds without checksums; edits do not add a lone one."""
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(CONTENTS, tmp_path / "file.pt")
        finally:
            torch.serialization.set_crc32_options(True)
        assert rewritten(tmp_path / "file.pt") == (tmp_path / "file.pt").read_bytes()
        copy = rewritten(tmp_path / "file.pt", RENAMES)
        with zipfile.ZipFile(io.BytesIO(copy)) as archive:
            assert archive.getinfo("file/data.pkl").CRC == 0

    def test_beyond_4_gib(self, tmp_path):
        """The same holds beyond 4 GiB."""
        path = tmp_path / "big.pt"
        with torch.serialization.skip_data():
            torch.save({"a": torch.UntypedStorage((1 << 32) + 8), "b": torch.UntypedStorage(64)}, path)
        at = 0
        with FileSource(path) as source:
            for segment in recipe_of(path).segments:
                if isinstance(segment, Copy):
                    assert segment.offset == at
                else:
                    assert source.read(at, segment.length) == segment.data
                at += segment.length
            assert at == source.size


class TestEdits:
    @pytest.mark.parametrize("alignment", [1, 64, 4096])
    def test_rename(self, alignment, tmp_path):
        """Renamed keys load the same values in every way, and every checksum is right."""
        with config.patch({"save.storage_alignment": alignment}):
            torch.save(CONTENTS, tmp_path / "file.pt")
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", RENAMES))
        assert_loads(tmp_path / "new.pt", CONTENTS)
        keys = torch.load(tmp_path / "new.pt")["state_dict"]
        assert list(keys) == [key.removeprefix("module.") for key in model()]
        with zipfile.ZipFile(tmp_path / "new.pt") as archive:
            assert archive.testzip() is None
            assert "file/.format_version" in archive.namelist()

    def test_rename_is_what_torch_would_save(self, path):
        """The copy is what torch.save would have written for the renamed contents, but for the serialization id."""
        contents = {"module.weight": torch.ones(9), "module.bias": torch.ones(3)}
        wanted = {"weight": contents["module.weight"], "bias": contents["module.bias"]}
        torch.save(contents, path)
        copy = rewritten(path, Rename((), (("module.weight", "weight"), ("module.bias", "bias"))))
        torch.save(wanted, path)
        theirs = path.read_bytes()
        assert len(copy) == len(theirs)
        own, other = parts_of(copy), parts_of(theirs)
        assert [one.name for one in own] == [one.name for one in other]
        different = [one.name for one, two in zip(own, other, strict=True) if one.data != two.data]
        assert set(different) <= {b"file/.data/serialization_id", b"file/data.pkl"}

    def test_rename_and_back(self, path):
        """Renaming there and back gives the original file."""
        copy = path.with_name("file2.pt")
        copy.write_bytes(rewritten(path, RENAMES))
        back = Rename(("state_dict",), tuple((new, old) for old, new in RENAMES.pairs))
        assert rewritten(copy, back) == path.read_bytes()

    def test_retag(self, tmp_path):
        """Storages tagged for a GPU load without one after their tag has changed."""
        original = torch.serialization.location_tag
        torch.serialization.location_tag = lambda storage: "cuda:3"
        try:
            torch.save(CONTENTS, tmp_path / "file.pt")
        finally:
            torch.serialization.location_tag = original
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(tmp_path / "file.pt")
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", Retag("cpu")))
        assert_loads(tmp_path / "new.pt", CONTENTS)

    def test_drop(self, path, tmp_path):
        """Dropped tensors take their storages with them; what stays loads the same."""
        edit = Drop((("state_dict", "module.turned"), ("state_dict", "module.tied.weight")))
        copy = rewritten(path, edit)
        (tmp_path / "new.pt").write_bytes(copy)
        wanted = {key: value for key, value in model().items() if key not in ("module.turned", "module.tied.weight")}
        assert_loads(tmp_path / "new.pt", {**CONTENTS, "state_dict": wanted})
        assert len(copy) < path.stat().st_size

    def test_take_root(self, path, tmp_path):
        """A taken root leaves just its own storages."""
        (tmp_path / "new.pt").write_bytes(rewritten(path, TakeRoot(("list",))))
        assert_loads(tmp_path / "new.pt", [torch.ones(2)])
        with zipfile.ZipFile(tmp_path / "new.pt") as archive:
            assert [name for name in archive.namelist() if "/data/" in name] == ["file/data/0"]

    def test_drop_everything(self, path, tmp_path):
        """A file whose last tensor goes keeps its other contents."""
        (tmp_path / "new.pt").write_bytes(rewritten(path, Drop((("state_dict",), ("list",)))))
        assert torch.load(tmp_path / "new.pt") == {"epoch": 3}

    def test_compact(self, tmp_path):
        """A slice of a large storage is saved with just its own bytes, and a right checksum."""
        big = torch.arange(10_000.0)
        contents = {"slice": big[500:600], "other": big[550:700], "whole": torch.ones(3)}
        torch.save(contents, tmp_path / "file.pt")
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", Compact(("0",))))
        assert_loads(tmp_path / "new.pt", contents)
        assert (tmp_path / "new.pt").stat().st_size < 4000
        with zipfile.ZipFile(tmp_path / "new.pt") as archive:
            assert archive.testzip() is None

    def test_make_contiguous(self, tmp_path):
        """A transposed tensor gets a storage of its own in C order."""
        contents = {"turned": torch.arange(6.0).view(2, 3).t(), "whole": torch.ones(3)}
        torch.save(contents, tmp_path / "file.pt")
        (tmp_path / "new.pt").write_bytes(rewritten(tmp_path / "file.pt", MakeContiguous((("turned",),))))
        assert_loads(tmp_path / "new.pt", {"turned": contents["turned"].contiguous(), "whole": torch.ones(3)})
        with zipfile.ZipFile(tmp_path / "new.pt") as archive:
            assert archive.testzip() is None

    def test_mostly_one_range(self, tmp_path):
        """However many storages there are, a rename copies nearly everything in a handful of ranges."""
        torch.save({f"module.layer{index}": torch.ones(50) for index in range(300)}, tmp_path / "file.pt")
        pairs = tuple((f"module.layer{index}", f"layer{index}") for index in range(300))
        recipe = recipe_of(tmp_path / "file.pt", Rename((), pairs))
        assert len(recipe.segments) <= 5
        with zipfile.ZipFile(tmp_path / "file.pt") as archive:
            pickle = archive.getinfo("file/data.pkl").file_size
        assert recipe.new_bytes < pickle + 310 * 80

    def test_published(self, path, tmp_path):
        """The recipe is what the writer of files takes, and the original stays as it was."""
        from ckptdoctor.writing import publish

        before = path.read_bytes()
        edits = (Compact(("0",)), RENAMES, MakeContiguous((("state_dict", "turned"),)))
        publish(recipe_of(path, *edits), str(tmp_path / "new.pt"))
        state_dict = {**model(), "module.turned": model()["module.turned"].contiguous()}
        assert_loads(tmp_path / "new.pt", {**CONTENTS, "state_dict": state_dict})
        assert path.read_bytes() == before

    def test_two_edits(self, path, tmp_path):
        """Edits apply one after another."""
        edits = (TakeRoot(("state_dict",)), Rename((), RENAMES.pairs), Retag("cpu"))
        (tmp_path / "new.pt").write_bytes(rewritten(path, *edits))
        assert_loads(tmp_path / "new.pt", model())

    def test_trailing_bytes_go(self, path):
        """Bytes behind the archive are not copied."""
        data = path.read_bytes()
        path.write_bytes(data + b"trailing")
        assert rewritten(path) == data


def test_wild_changes_never_escape(tmp_path):
    """Whatever bytes of an archive change: a copy that torch and we can read as far as before, or one of our errors."""
    rng = random.Random(5)
    sound = saved(CONTENTS)
    path, new = tmp_path / "wild.pt", tmp_path / "new.pt"
    written = 0
    for _ in range(400):
        data = bytearray(sound)
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        with FileSource(path) as source:
            container = formats.examine(source)
            if container.format != "torch zip" or not container.readable:
                continue
            try:
                checkpoint = formats.read(source, container)
                copy = rewritten(path, Retag("cpu"))
            except CkptDoctorError as error:
                assert error.message
                continue
        new.write_bytes(copy)
        with FileSource(new) as source:
            again = formats.read(source, formats.examine(source))
        assert [tensor.path for tensor in again.tensors] == [tensor.path for tensor in checkpoint.tensors]
        written += 1
    assert written > 50
