"""A seal made of real files, and everything that ``verify`` says of what became of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.errors import DamagedError, UnreadableError, UsageError, WriteError
from ckptdoctor.sealing.manifest import decoded, encoded, read_seal
from tests.broken_shards import folder
from tests.commands import run_here
from tests.remote.server import serving

BIG = 300_000  # float32 elements: more than one block
PAIR = {"a": torch.arange(float(BIG)), "b": torch.ones(5, dtype=torch.bfloat16)}


@pytest.fixture(params=["zip", "legacy", "safetensors"])
def path(request, tmp_path):
    """Two tensors, one of which is longer than a block."""
    path = tmp_path / ("model.safetensors" if request.param == "safetensors" else "model.pt")
    if request.param == "safetensors":
        save_file(PAIR, path)
    else:
        torch.save(PAIR, path, _use_new_zipfile_serialization=request.param == "zip")
    return path


def flipped(path, at):
    """The same file with one bit changed."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def place_of(path, tensor):
    """Where the bytes of a tensor begin in a file."""
    return path.read_bytes().index(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def test_what_was_not_touched_is_as_sealed(path):
    """The file, and each tensor by itself."""
    made = ckptdoctor.seal(path)
    assert ckptdoctor.verify(path).as_sealed and ckptdoctor.verify(path, tensor=["a", "b"]).as_sealed
    (file,) = made.seal.files
    assert file.digest == hashlib.sha256(path.read_bytes()).hexdigest() and file.tensors == 2


def test_digests_are_those_of_the_bytes_of_tensors(path):
    """One of a block is the SHA-256 of its bytes; a longer one hashes the digests of its blocks."""
    (file,) = ckptdoctor.seal(path).seal.files
    found = {tensor.name: region for region in file.regions for tensor in region.tensors}
    assert found["b"].digest == hashlib.sha256(PAIR["b"].view(torch.uint8).numpy().tobytes()).hexdigest()
    raw = PAIR["a"].numpy().tobytes()
    blocks = [hashlib.sha256(raw[at : at + (1 << 20)]).digest() for at in range(0, len(raw), 1 << 20)]
    assert found["a"].digest == hashlib.sha256(b"".join(blocks)).hexdigest()
    assert found["a"].blocks == tuple(each.hex() for each in blocks)


def test_a_changed_bit_is_told_by_tensor_and_block(path):
    """Only the block that it is in."""
    ckptdoctor.seal(path)
    at = place_of(path, PAIR["a"]) + (1 << 20) + 7
    flipped(path, at)
    (file,) = ckptdoctor.verify(path).files
    (changed,) = file.changed
    start = place_of(path, PAIR["a"][:10])
    assert (changed.name, changed.ranges) == ("a", ((start + (1 << 20), start + 4 * BIG),))
    assert not file.outside
    assert not ckptdoctor.verify(path, tensor="a").as_sealed and ckptdoctor.verify(path, tensor="b").as_sealed


def test_what_is_outside_of_tensors_is_told_as_that(path):
    """The first byte is in none of them."""
    ckptdoctor.seal(path)
    flipped(path, 0)
    (file,) = ckptdoctor.verify(path).files
    assert file.outside and not file.changed


@pytest.mark.parametrize("bytes_left", [0, 10, 700_000, -1])
def test_a_truncated_file_names_what_is_not_there_any_more(path, bytes_left):
    """A tensor that is there to its end is as it was."""
    ckptdoctor.seal(path)
    raw = path.read_bytes()
    path.write_bytes(raw[:bytes_left])
    (file,) = ckptdoctor.verify(path).files
    gone = {name for name, tensor in PAIR.items() if place_end(raw, tensor) > len(raw[:bytes_left])}
    assert {each.name for each in file.changed} == gone and not file.as_sealed


def place_end(raw, tensor):
    """One past the last byte of a tensor."""
    held = tensor.view(torch.uint8).numpy().tobytes()
    return raw.index(held) + len(held)


def test_bytes_behind_the_end_are_told(path):
    """Each tensor is as it was."""
    ckptdoctor.seal(path)
    path.write_bytes(path.read_bytes() + b"more")
    (file,) = ckptdoctor.verify(path).files
    assert file.outside and not file.changed and file.size == file.sealed_size + 4


def test_of_a_tensor_only_its_blocks_are_read(path):
    """A view, too: the rest of its storage stays unread."""
    ckptdoctor.seal(path)
    assert ckptdoctor.verify(path, tensor="b").bytes_read == 10
    shared = torch.arange(float(BIG))
    torch.save({"first": shared[:10], "all": shared}, path)
    ckptdoctor.seal(path, force=True)
    assert ckptdoctor.verify(path, tensor="first").bytes_read == 1 << 20
    flipped(path, place_of(path, shared[BIG - 10 :]))
    (file,) = ckptdoctor.verify(path).files
    assert [each.name for each in file.changed] == ["all"]


def test_a_folder_is_sealed_as_a_folder(tmp_path):
    """What changed, is missing or is new is told by its name; tensors of shards by theirs."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("x")
    for name, tensor in PAIR.items():
        save_file({name: tensor}, folder / f"{name}.safetensors")
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "notes.txt").write_text("hello")
    made = ckptdoctor.seal(folder)
    assert [each.name for each in made.seal.files] == ["a.safetensors", "b.safetensors", "config.json", "sub/notes.txt"]
    assert ckptdoctor.verify(folder).as_sealed and ckptdoctor.verify(folder, tensor="b").bytes_read == 10
    flipped(folder / "a.safetensors", -1)
    (folder / "config.json").unlink()
    (folder / "new.txt").write_text("")
    report = ckptdoctor.verify(folder)
    assert [each.name for each in report.files if not each.as_sealed] == ["a.safetensors", "config.json"]
    assert [each.name for each in report.files[0].changed] == ["a"] and report.added == ("new.txt",)
    printed = run_here("verify", "model", cwd=tmp_path)
    assert printed.returncode == 1 and printed.stdout.count(b"\n") == 4, printed.stdout


def test_any_file_is_sealed_by_its_blocks(tmp_path):
    """What is not a checkpoint has no tensors; a change is told by its bytes."""
    path = tmp_path / "notes.bin"
    path.write_bytes(random.Random(1).randbytes(3 << 20))
    ckptdoctor.seal(path)
    flipped(path, 2 << 20)
    (file,) = ckptdoctor.verify(path).files
    assert file.ranges == ((2 << 20, 3 << 20),) and not file.changed


def test_a_damaged_checkpoint_is_sealed_with_the_reason_why_its_tensors_are_not_named(path):
    """Its headers cannot be read."""
    path.write_bytes(path.read_bytes()[: 1 << 19])
    made = ckptdoctor.seal(path)
    assert len(made.unnamed) == (not made.seal.files[0].tensors)
    assert ckptdoctor.verify(path).as_sealed


def test_a_seal_is_replaced_only_if_asked(path):
    """And only a seal: another file of this name is never replaced."""
    made = ckptdoctor.seal(path)
    with pytest.raises(WriteError, match="already exists"):
        ckptdoctor.seal(path)
    ckptdoctor.seal(path, force=True)
    with open(made.output, "w") as file:
        file.write('{"mine": 1}')
    with pytest.raises(WriteError, match="is not a seal"):
        ckptdoctor.seal(path, force=True)


def test_what_cannot_be_compared_is_refused_in_one_sentence(path, tmp_path):
    """No seal, a tensor that it does not know, the seal of a folder."""
    with pytest.raises(UnreadableError, match=rf"has no seal.* Make one: ckptdoctor seal {path}$"):
        ckptdoctor.verify(path)
    with pytest.raises(UnreadableError, match=rf"Make one: ckptdoctor seal {path} -o other.json$"):
        ckptdoctor.verify(path, seal="other.json")
    made = ckptdoctor.seal(path)
    with pytest.raises(UsageError, match=r'has no tensor "bb"\. Did you mean "b"\?'):
        ckptdoctor.verify(path, tensor="bb")
    with pytest.raises(UsageError, match="is the seal of a file"):
        ckptdoctor.verify(tmp_path, seal=made.output)


def test_a_seal_that_contradicts_itself_is_called_damaged(path):
    """One digit of it changed: no file is blamed for that."""
    made = ckptdoctor.seal(path)
    (file,) = made.seal.files
    for digest in (file.digest, file.rest, file.regions[0].blocks[0]):
        with open(made.output) as opened:
            text = opened.read()
        with open(made.output, "w") as opened:
            opened.write(text.replace(digest, digest[:-1] + ("0" if digest[-1] != "0" else "1")))
        with pytest.raises(DamagedError, match="contradict"):
            ckptdoctor.verify(path)
        with open(made.output, "w") as opened:
            opened.write(text)
    assert ckptdoctor.verify(path).as_sealed


def test_a_deep_check_reads_the_seal_as_well(path):
    """It names the command that says what changed."""
    ckptdoctor.seal(path)
    assert "F012" not in [each.code for each in ckptdoctor.check(path, deep=True).findings]
    flipped(path, place_of(path, PAIR["b"]))
    found = [each for each in ckptdoctor.check(path, deep=True).findings if each.code == "F012"]
    assert "its seal" in found[0].message and "ckptdoctor verify" in found[0].advice


def test_seals_are_small(tmp_path):
    """At most 170 bytes for a tensor besides its name, and 67 for each MiB."""
    path = tmp_path / "many.safetensors"
    save_file({f"{number:06}": torch.zeros(3) for number in range(2000)}, path)
    made = ckptdoctor.seal(path)
    assert len(encoded(made.seal)) < 400 + 2000 * (170 + 6)


def test_the_manifest_of_openssf_lists_files_by_their_digests(tmp_path):
    """In the order of their names; the digest of the model is that of all digests."""
    folder = tmp_path / "m"
    (folder / "d").mkdir(parents=True)
    for name in ("b.bin", "a.bin", "d/c.bin"):
        (folder / name).write_bytes(name.encode())
    printed = run_here("seal", "m", "--format", "openssf", cwd=tmp_path)
    statement = json.loads((tmp_path / "m.openssf.json").read_bytes())
    resources = statement["predicate"]["resources"]
    digests = [hashlib.sha256(each["name"].encode()) for each in resources]
    assert printed.returncode == 0 and [each["name"] for each in resources] == ["a.bin", "b.bin", "d/c.bin"]
    assert [each["digest"] for each in resources] == [each.hexdigest() for each in digests]
    root = hashlib.sha256(b"".join(each.digest() for each in digests)).hexdigest()
    assert statement["subject"] == [{"name": "m", "digest": {"sha256": root}}]


@given(st.data())
def test_a_seal_of_a_stranger_is_read_as_it_is_written_or_refused(tmp_path_factory, data):
    """With one byte changed it is refused in a sentence with its name, or what it says now is what is read."""
    made = _a_seal(tmp_path_factory)
    raw = bytearray(made)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        found = decoded(bytes(raw), "m.seal.json")
    except DamagedError as error:
        assert "m.seal.json" in error.message
    else:
        assert decoded(encoded(found), "m.seal.json") == found


_MADE: list[bytes] = []


def _a_seal(factory):
    if not _MADE:
        path = factory.mktemp("seal") / "m.safetensors"
        save_file({"a": torch.zeros(3), "b": torch.arange(float(BIG))}, path)
        made = ckptdoctor.seal(path)
        assert read_seal(made.output) == made.seal
        with open(made.output, "rb") as file:
            _MADE.append(file.read())
    return _MADE[0]


def test_of_a_remote_file_only_the_tensor_and_the_seal_are_fetched(path):
    """The seal is expected next to the file there, too; what is not in its blocks is not noticed."""
    ckptdoctor.seal(path)
    flipped(path, place_of(path, PAIR["a"]))
    files = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with serving(files=files) as server:
        report = ckptdoctor.verify(server.url(path.name), tensor="b")
        assert report.as_sealed and report.bytes_read <= 1 << 18 < len(files[path.name])
        assert server.sent < len(files[path.name]) / 3
        assert not ckptdoctor.verify(server.url(path.name), tensor="a").as_sealed
        (file,) = ckptdoctor.verify(server.url(path.name)).files
        assert [each.name for each in file.changed] == ["a"]


def said(*words, cwd):
    """The status of a command, and all that it printed."""
    done = run_here(*words, cwd=cwd)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("name", ["model.pt.seal.json", "ckptdoctor.seal.json"])
def test_a_deep_check_says_that_a_seal_is_damaged(tmp_path, name):
    """In the words of verify, as a warning, with the command that makes a new one; and audit names it as well."""
    torch.save({"w": torch.arange(4.0)}, tmp_path / "model.pt")
    (tmp_path / name).write_text("{")
    status, text = said("check", "--deep", "model.pt", cwd=tmp_path)
    assert status == 1
    assert f"warning F012 checksum-mismatch · its seal cannot be used: {name} is not an intact seal: it is" in text
    sealed = "." if name == "ckptdoctor.seal.json" else "model.pt"
    assert f"make a new one: ckptdoctor seal {sealed}\n" in text
    words = said("verify", sealed, cwd=tmp_path)[1]
    assert f"{name} is not an intact seal: it is not JSON. Once you know that " in words
    if sealed != ".":
        status, text = said("audit", ".", "--deep", "changed", cwd=tmp_path)
        assert "1 checkpoint is broken:\n  model.pt: " in text
        assert f"{name} is not an intact seal: it is not JSON. Once you" in text
    (tmp_path / name).unlink()
    assert said("seal", sealed, cwd=tmp_path)[0] == 0
    assert "F012" not in said("check", "--deep", "model.pt", cwd=tmp_path)[1]


def test_a_deep_check_of_shards_says_that_the_seal_of_their_folder_is_damaged(tmp_path):
    """Though no file of it is compared with it."""
    folder(tmp_path / "m")
    (tmp_path / "m" / "ckptdoctor.seal.json").write_text("{")
    assert "m/ckptdoctor.seal.json is not an intact seal" in said("check", "--deep", "m", cwd=tmp_path)[1]


def test_a_deep_check_blames_the_seal_where_it_contradicts_itself(tmp_path):
    """As verify does: the file is not called changed where its blocks are as they were sealed."""
    torch.save({"w": torch.arange(4.0)}, tmp_path / "model.pt")
    made = ckptdoctor.seal(tmp_path / "model.pt")
    text = Path(made.output).read_text()
    digest = made.seal.files[0].digest
    Path(made.output).write_text(text.replace(digest, "0" * 64))
    status, text = said("check", "--deep", "model.pt", cwd=tmp_path)
    why = "model.pt.seal.json contradicts itself: its digests of model.pt as a whole and of its parts cannot both be"
    assert (status, why in " ".join(text.split()), "SHA-256 is" in text) == (1, True, False), text
    assert why in said("verify", "model.pt", cwd=tmp_path)[1]
    assert why in said("graft", "model.pt", cwd=tmp_path)[1]


@pytest.mark.skipif(os.name == "nt", reason="making links takes rights there")
def test_links_to_folders_elsewhere_are_left_out_by_name(tmp_path):
    """seal and verify name each with the command for it; a file behind a link that is sealed is compared as before."""
    for name in ("c/a.safetensors", "c/sub/b.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_file({"w": torch.ones(4)}, tmp_path / name)
    (tmp_path / "c" / "inside").symlink_to("sub")
    assert "note" not in said("seal", "c", cwd=tmp_path)[1]
    (tmp_path / "c" / "sub").rename(tmp_path / "elsewhere")
    (tmp_path / "c" / "sub").symlink_to("../elsewhere")
    (tmp_path / "c" / "loop").symlink_to("..")
    status, text = said("verify", "c", cwd=tmp_path)
    assert (status, "as sealed · 2 files" in text, "note · sub" in text) == (0, True, False)
    note = "is a link to a folder elsewhere, which the seal leaves out: ckptdoctor"
    status, text = said("seal", "c", "--force", cwd=tmp_path)
    assert "c · 1 file · " in text
    for name in ("inside", "loop", "sub"):
        assert f"note · {name} {note} seal c/{name}\n" in text
    status, text = said("verify", "c", cwd=tmp_path)
    assert (status, f"note · sub {note} verify c/sub\n" in text) == (0, True)
    assert said("seal", "c/sub", cwd=tmp_path)[0] == 0
    flipped(tmp_path / "elsewhere" / "b.safetensors", -1)
    assert "  changed   w" in said("verify", "c/sub", cwd=tmp_path)[1]


@pytest.fixture
def sealed_run(tmp_path):
    """A folder with files at two depths, sealed as one; the working directory is above it."""
    for name in ("c/a.safetensors", "c/sub/b.safetensors", "c/sub/d.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_file({"w": torch.ones(4)}, tmp_path / name)
    assert said("seal", "c", cwd=tmp_path)[0] == 0
    return tmp_path


@pytest.mark.parametrize("name", ["c/a.safetensors", "c/sub/b.safetensors"])
def test_a_file_of_a_sealed_folder_is_compared_with_the_seal_of_the_folder(sealed_run, name):
    """It alone, all of it or one tensor; F012 names a command that works on it."""
    status, text = said("verify", name, cwd=sealed_run)
    assert (status, f"{name} · as sealed · 1 tensor" in text) == (0, True), text
    flipped(sealed_run / name, -1)
    for more in ([], ["--tensor", "w"]):
        status, text = said("verify", name, *more, cwd=sealed_run)
        assert (status, "  changed   w" in text) == (1, True), text
    status, text = said("check", "--deep", name, cwd=sealed_run)
    assert "F012" in text and "ckptdoctor.seal.json gives" in text and "ckptdoctor verify" in text
    other = "c/sub/d.safetensors"
    assert said("verify", other, cwd=sealed_run)[0] == 0


def test_a_folder_in_a_sealed_folder_is_compared_with_the_seal_above(sealed_run):
    """Its files alone: what is missing and new in it is listed, by its names in it."""
    assert "c/sub · as sealed · 2 files" in said("verify", "c/sub", cwd=sealed_run)[1]
    flipped(sealed_run / "c" / "a.safetensors", -1)
    assert said("verify", "c/sub", cwd=sealed_run)[0] == 0
    (sealed_run / "c" / "sub" / "b.safetensors").rename(sealed_run / "c" / "sub" / "e.safetensors")
    status, text = said("verify", ".", cwd=sealed_run / "c" / "sub")
    assert (status, "  missing   b.safetensors" in text, "  new       e.safetensors" in text) == (1, True, True)


def test_a_file_that_the_seal_of_its_folder_does_not_have_is_not_sealed_by_itself(sealed_run):
    """The command that is named seals the folder again; and a seal of one file is no new file of its folder."""
    save_file({"w": torch.ones(4)}, sealed_run / "c" / "new.safetensors")
    status, text = said("verify", "c/new.safetensors", cwd=sealed_run)
    assert status == 2
    assert "c/new.safetensors has no seal, and c/ckptdoctor.seal.json was made without it." in text
    assert said(*text.rstrip().split("ckptdoctor ")[-1].split(), cwd=sealed_run)[0] == 0
    assert said("verify", "c/new.safetensors", cwd=sealed_run)[0] == 0
    assert said("seal", "c/new.safetensors", cwd=sealed_run)[0] == 0
    assert said("verify", "c", cwd=sealed_run)[0] == 0


def test_a_damaged_seal_of_the_folder_is_said_for_a_file_in_it(sealed_run):
    """It is not taken for a file without a seal."""
    (sealed_run / "c" / "ckptdoctor.seal.json").write_text("{")
    status, text = said("verify", "c/sub/b.safetensors", cwd=sealed_run)
    assert (status, "c/ckptdoctor.seal.json is not an intact seal" in text) == (2, True)


def test_the_trash_of_prune_is_not_part_of_a_sealed_folder(tmp_path):
    """It is neither sealed, nor new in an older seal, nor missing once it is removed; nor is parity in it rebuilt."""
    pytest.importorskip("zfec")
    for step in (1, 2, 3):
        torch.save({"step": step, "w": torch.ones(4)}, tmp_path / f"step_{step}.pt")
    assert said("audit", ".", "-o", "../store.db", cwd=tmp_path)[0] == 0
    assert said("seal", ".", "--parity", "10%", cwd=tmp_path)[0] == 0
    status, text = said("prune", "../store.db", "--keep-last", "2", "--apply", cwd=tmp_path)
    assert (tmp_path / ".ckptdoctor-trash").is_dir(), text
    status, text = said("verify", ".", cwd=tmp_path)
    assert (status, "missing   step_1.pt" in text, "trash" in text) == (1, True, False)
    assert "trash" not in said("rebuild", ".", cwd=tmp_path)[1]
    assert ".: 2 files" in said("seal", ".", "--force", cwd=tmp_path)[1].replace(" · ", ": ", 1)
    shutil.rmtree(tmp_path / ".ckptdoctor-trash")
    assert said("verify", ".", cwd=tmp_path)[0] == 0
