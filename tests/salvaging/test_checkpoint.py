"""Whatever is whole in a broken checkpoint is saved, and nothing that is saved differs from the original."""

from __future__ import annotations

import random
import zipfile
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.utils.serialization import config

from ckptdoctor.checkpoint import FolderSource
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, RefusedError, UsageError
from ckptdoctor.salvaging.salvage import salvage
from tests.commands import run_here

WEIGHTS = {f"layer{i}.weight": torch.arange(900 + i, dtype=torch.float32) + i for i in range(12)}


def training():
    """A training checkpoint: weights, an optimizer with momenta, a list of tensors, and plain values."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(4)])
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(2, 20)).sum().backward()
    optimizer.step()
    lists = [torch.rand(100) for _ in range(3)]
    return {"epoch": 3, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "lists": lists}


def save_zip(path):
    torch.save(training(), path)


def save_legacy(path):
    torch.save(training(), path, _use_new_zipfile_serialization=False)


def save_flat(path):
    save_file(WEIGHTS, path)


def flat(value, path=()):
    """Every tensor in nested dicts and lists by its path."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {key: tensor for part, child in pairs for key, tensor in flat(child, (*path, part)).items()}


def loaded(path):
    return load_file(path) if str(path).endswith(".safetensors") else torch.load(path)


def cut(path, length, folder):
    broken = folder / f"cut{path.suffix}"
    broken.write_bytes(path.read_bytes()[:length])
    return broken


@pytest.mark.parametrize(
    ("name", "save"),
    [("a.pt", save_zip), ("a.pth", save_legacy), ("a.safetensors", save_flat)],
    ids=["zip", "legacy", "safetensors"],
)
@pytest.mark.parametrize("offsets", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_cut_anywhere_nothing_recovered_differs(name, save, offsets, tmp_path):
    """At each of many offsets: what is saved equals the original, and what is said to be saved is there."""
    path = tmp_path / name
    save(path)
    original = flat(loaded(path))
    size = path.stat().st_size
    saved = 0
    for length in sorted(random.Random(7).sample(range(1, size), offsets)):
        output = tmp_path / f"saved{path.suffix}"
        try:
            report = salvage(str(cut(path, length, tmp_path)), str(output), force=True)
        except CkptDoctorError as error:
            assert error.message and length < size * 0.5  # the headers come first: later something is always whole
            continue
        found = flat(loaded(output))
        assert all(torch.equal(tensor, original[key]) for key, tensor in found.items())
        assert len(found) == report.recovered and len(found) + len(report.lost) == len(original)
        saved += 1
    assert saved > offsets / 3


def test_a_file_that_lost_only_its_tail_comes_back_complete(tmp_path):
    """The directory of an archive is made anew from what stands at each record."""
    path = tmp_path / "a.pt"
    save_zip(path)
    data = path.read_bytes()
    broken = cut(path, data.index(b"PK\1\2") + 10, tmp_path)
    report = salvage(str(broken), str(tmp_path / "b.pt"))
    assert not report.lost and report.verified == report.recovered
    original, again = torch.load(path), torch.load(tmp_path / "b.pt", mmap=True)
    assert list(again) == list(original) and again["epoch"] == 3
    assert all(torch.equal(value, flat(again)[key]) for key, value in flat(original).items())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_in_the_middle_nothing_recovered_differs(tmp_path, data):
    """Overwritten bytes of an archive, with its directory or without, cost only the records that they hit."""
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path)
    bytes_ = bytearray(path.read_bytes())
    first = bytes_.index(b"FB", 1600)
    at = data.draw(st.integers(first, len(bytes_) - 900))
    length = data.draw(st.integers(1, 300))
    bytes_[at : at + length] = bytes([data.draw(st.sampled_from([0, 1, 0x50, 0xFF]))]) * length
    if data.draw(st.booleans()):
        del bytes_[-800:]
    broken = tmp_path / "broken.pt"
    broken.write_bytes(bytes_)
    report = salvage(str(broken), str(tmp_path / "b.pt"), force=True)
    found = torch.load(tmp_path / "b.pt")
    assert all(torch.equal(value, WEIGHTS[key]) for key, value in found.items())
    assert len(found) == report.recovered >= 9


def headers(path):
    """Where the bytes between the data of one record and of the next begin and end, behind the first record."""
    with zipfile.ZipFile(path) as archive:
        records = sorted(archive.infolist(), key=lambda record: record.header_offset)
    data = path.read_bytes()
    for record, following in pairwise(records):
        names = [int.from_bytes(data[record.header_offset + at :][:2], "little") for at in (26, 28)]
        yield record.header_offset + 30 + sum(names) + record.file_size, following.header_offset + 30


@pytest.mark.parametrize("value", [0, 0xFF, 0x50], ids=["zeros", "ones", "P"])
@pytest.mark.parametrize("alignment", [64, 4096])
def test_headers_between_tensors_cost_none_of_them(alignment, value, tmp_path):
    """The list of records has the place and the checksum of each: one header is lost, every other one, or all."""
    path = tmp_path / "a.pt"
    with config.patch("save.storage_alignment", alignment):
        torch.save(WEIGHTS, path)
    places = list(headers(path))
    for which in (places[:1], places[::2], places, [(0, 30)], [(0, 30), *places]):
        data = bytearray(path.read_bytes())
        for start, end in which:
            data[start:end] = bytes([value]) * (end - start)
        broken = tmp_path / "broken.pt"
        broken.write_bytes(data)
        report = salvage(str(broken), str(tmp_path / "b.pt"), force=True)
        found = torch.load(tmp_path / "b.pt")
        assert report.recovered == report.verified == len(WEIGHTS) and list(found) == list(WEIGHTS)
        assert all(torch.equal(tensor, WEIGHTS[key]) for key, tensor in found.items())


def test_a_list_that_names_another_tensor_is_not_believed(tmp_path):
    """Where a header is lost, the list alone says what a record is called: a name that is there twice is in doubt."""
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path)
    data = bytearray(path.read_bytes())
    start, end = list(headers(path))[6]  # before one of the storages
    name = data[end : data.index(b"FB", end)]
    assert name.startswith(b"a/data/")
    data[start:end] = bytes(end - start)
    at = data.rindex(name)
    other = b"3" if name[-1:] != b"3" else b"4"
    data[at + len(name) - 1 : at + len(name)] = other
    path.write_bytes(data)
    report = salvage(str(path), str(tmp_path / "b.pt"))
    found = torch.load(tmp_path / "b.pt")
    assert all(torch.equal(tensor, WEIGHTS[key]) for key, tensor in found.items())
    assert report.lost and len(found) == len(WEIGHTS) - len(report.lost)


def test_check_names_the_command_that_recovers_it(tmp_path):
    """The command, as it is printed, saves every tensor."""
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path)
    data = bytearray(path.read_bytes())
    start, end = list(headers(path))[5]
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    told = run_here("check", "a.pt", cwd=tmp_path).stdout.decode()
    command = told.partition("whose checksum is right: ckptdoctor ")[2].splitlines()[0].split()
    assert run_here(*command, cwd=tmp_path).returncode == 0
    assert len(torch.load(tmp_path / "a.salvaged.pt")) == len(WEIGHTS)


def test_optimizer_states_and_lists_keep_their_meaning(tmp_path):
    """A parameter's state goes as a whole, and lists keep their places."""
    path = tmp_path / "a.pt"
    save_zip(path)
    data = path.read_bytes()
    lists = torch.load(path)["lists"]
    broken = cut(path, data.index(lists[1].numpy().tobytes()) + 5, tmp_path)
    report = salvage(str(broken), str(tmp_path / "b.pt"))
    again = torch.load(tmp_path / "b.pt")
    assert torch.equal(again["lists"][0], lists[0]) and again["lists"][1:] == [None, None]
    assert report.left_out == (("lists", 1), ("lists", 2))
    broken = cut(path, data.index(training()["optimizer"]["state"][4]["exp_avg"].numpy().tobytes()), tmp_path)
    report = salvage(str(broken), str(tmp_path / "c.pt"))
    again = torch.load(tmp_path / "c.pt")
    assert set(again["optimizer"]["state"]) == {0, 1, 2, 3}
    assert any(each.share == 1 for each in report.lost)
    net = torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(4)])
    torch.optim.AdamW(net.parameters()).load_state_dict(again["optimizer"])


def test_zeros_that_a_download_left_are_not_recovered(tmp_path):
    """A file that was given its full size first ends in zeros: without a checksum they are no values."""
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.ones(50_000), "b": torch.ones(50_000)}, path)
    data = path.read_bytes()
    path.write_bytes(data[:250_000] + bytes(len(data) - 250_000))
    report = salvage(str(path), str(tmp_path / "b.safetensors"))
    assert list(load_file(tmp_path / "b.safetensors")) == ["a"]
    assert [each.path for each in report.partial] == [("b",)]


def test_changed_bytes_lose_their_tensor_alone(tmp_path):
    """What does not match its checksum, and has more than one flipped bit, is not saved, and the reason is told."""
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path)
    data = bytearray(path.read_bytes())
    data[data.index(WEIGHTS["layer3.weight"].numpy().tobytes()) + 100] ^= 255
    path.write_bytes(data)
    report = salvage(str(path), str(tmp_path / "b.pt"))
    assert [(each.path, each.damage) for each in report.lost] == [(("layer3.weight",), "does not match its checksum")]
    assert list(torch.load(tmp_path / "b.pt")) == [key for key in WEIGHTS if key != "layer3.weight"]


def test_bytes_behind_the_end_are_cut_off(tmp_path):
    """A safetensors file with something appended comes back as it was."""
    path = tmp_path / "a.safetensors"
    save_file(WEIGHTS, path)
    data = path.read_bytes()
    path.write_bytes(data + b"appended")
    assert not salvage(str(path), str(tmp_path / "b.safetensors")).lost
    assert (tmp_path / "b.safetensors").read_bytes() == data


@pytest.mark.slow
def test_large_files_are_saved_in_little_memory(tmp_path):
    """Values are copied range by range: what Python holds does not grow with the file."""
    import tracemalloc

    path = tmp_path / "a.pt"
    torch.save({f"w{i}": torch.full((8 << 20,), float(i)) for i in range(4)}, path)
    broken = cut(path, 100 << 20, tmp_path)
    tracemalloc.start()
    report = salvage(str(broken), str(tmp_path / "b.pt"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.recovered == 3 and peak < 24 << 20


def test_what_cannot_be_saved_is_said(tmp_path):
    """Without headers nothing has a name; with no whole tensor there is nothing to write; other files are none."""
    path = tmp_path / "a.pt"
    torch.save({"w": torch.rand(1000)}, path)
    with pytest.raises(DamagedError, match=r"nothing describes the storages"):
        salvage(str(cut(path, 100, tmp_path)), str(tmp_path / "b.pt"))
    with pytest.raises(RefusedError, match="its only tensor is not intact"):
        salvage(str(cut(path, 2000, tmp_path)), str(tmp_path / "b.pt"))
    (tmp_path / "x.pt").write_bytes(b"hello world, this is no checkpoint at all")
    with pytest.raises(NotACheckpointError):
        salvage(str(tmp_path / "x.pt"), str(tmp_path / "b.pt"))
    assert FolderSource(tmp_path).names == ("a.pt", "cut.pt", "x.pt")


@pytest.mark.parametrize(("save", "name"), [(save_zip, "x.safetensors"), (save_legacy, "x.sft"), (save_flat, "x.pt")])
def test_an_output_named_for_another_format_is_refused(save, name, tmp_path):
    """A salvaged file keeps its format, so a name that promises another is refused with the two ways that do it."""
    path = tmp_path / ("whole.safetensors" if save is save_flat else "whole.pt")
    save(path)
    broken = cut(path, path.stat().st_size * 9 // 10, tmp_path)
    with pytest.raises(UsageError, match=rf"{name}: salvage keeps the format of .* ckptdoctor convert .*{name}$"):
        salvage(str(broken), str(tmp_path / name))
    assert not (tmp_path / name).exists()


def test_a_wrong_suffix_of_the_file_itself_is_kept(tmp_path):
    """A file of torch that is called .safetensors is salvaged under such a name, as it always had one."""
    save_zip(tmp_path / "whole.safetensors")
    broken = cut(tmp_path / "whole.safetensors", -200, tmp_path)
    assert salvage(str(broken)).output == str(tmp_path / "cut.salvaged.safetensors")


def fixed_in_place(path, times):
    """Names grew too long for the pickle in front of the storages, so that a new one is behind them; so many times."""
    torch.save({f"layer{number}": torch.full((700,), float(number)) for number in range(3)}, path)
    for _ in range(times):
        options = ("--in-place", "--add-prefix", "a.long.prefix." * 30, "--force", "-q")
        assert run_here("fix", path.name, *options, cwd=path.parent).returncode == 0
    return path.read_bytes()


@pytest.mark.parametrize("times", [1, 2])
def test_a_pickle_at_the_end_counts_once_it_is_complete(times, tmp_path):
    """Cut in it, the names are those before the changes in place, and that is said."""
    path = tmp_path / "a.pt"
    data = fixed_in_place(path, times)
    new, place = list(torch.load(path)), data.rindex(b"a/data.pkl", 0, data.index(b"PK\1\2")) - 30
    complete = data.index(b"PK\7\x08", place) + 16
    older = ["layer0", "layer1", "layer2"]
    for length in (place, place + 40, place + 90, complete - 17, complete - 1, complete, complete + 50, len(data) - 1):
        report = salvage(str(cut(path, length, tmp_path)), str(tmp_path / "b.pt"), force=True)
        found = torch.load(tmp_path / "b.pt")
        assert [tensor[0].item() for tensor in found.values()] == [0.0, 1.0, 2.0]
        assert list(found) == (new if length >= complete else older), length
        assert len(report.notes) == (place < length < complete)
        assert all("so all names are those before these changes" in note for note in report.notes)


def test_a_pickle_at_the_end_that_names_other_storages_is_not_believed(tmp_path):
    """Two pickles that contradict each other describe nothing."""
    path, other = tmp_path / "a.pt", tmp_path / "other" / "a.pt"
    other.parent.mkdir()
    torch.save({"w": torch.ones(5)}, path)
    torch.save({"w": torch.ones(6)}, other)
    data, its = path.read_bytes(), other.read_bytes()
    broken = tmp_path / "broken.pt"
    broken.write_bytes(data[: data.index(b"PK\1\2")] + its[: its.index(b"PK\3\4", 4)])
    with pytest.raises(CkptDoctorError, match=r"has no a/data\.pkl"):
        salvage(str(broken), str(tmp_path / "b.pt"))


def test_a_damaged_name_of_a_record_loses_nothing(tmp_path):
    """In any header, also of the folder that all records are in: the list at the end of the archive has it as well."""
    path, saved = tmp_path / "whole.pt", {"a": torch.arange(9.0), "b": torch.ones(4)}
    torch.save(saved, path)
    whole = path.read_bytes()
    names = [
        (info.header_offset + 30, len(info.filename))
        for info in zipfile.ZipFile(path).infolist()
        if not info.filename.rpartition("/")[2].startswith(".")
    ]
    for start, length in names:
        for at in range(start, start + length, 3):
            broken = bytearray(whole)
            broken[at] ^= 0x1B
            (tmp_path / "broken.pt").write_bytes(broken)
            report = salvage(str(tmp_path / "broken.pt"), str(tmp_path / "saved.pt"), force=True)
            assert not report.lost
            found = torch.load(tmp_path / "saved.pt")
            assert all(torch.equal(found[key], value) for key, value in saved.items())


@pytest.mark.parametrize("sealed", ["m.safetensors", "."])
def test_a_seal_is_the_checksum_of_a_file_without_any(tmp_path, sealed):
    """The tensor that is not as it was sealed is left out, and all others are verified; so is a file that is intact."""
    path = tmp_path / "m.safetensors"
    save_file(WEIGHTS, path)
    assert run_here("seal", sealed, cwd=tmp_path).returncode == 0
    done = run_here("salvage", "m.safetensors", cwd=tmp_path)
    assert (done.returncode, b"every one verified by its checksum" in done.stdout) == (0, True), done.stdout
    raw = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(raw[:8], "little")
    at = raw.index(WEIGHTS["layer7.weight"].numpy().tobytes(), begin) + 401
    raw[at] ^= 1
    path.write_bytes(raw)
    done = run_here("salvage", "m.safetensors", "-o", "s.safetensors", cwd=tmp_path)
    text = done.stdout.decode()
    assert (done.returncode, "11 of 12 tensors recovered" in text) == (1, True), text
    assert "every one verified by its checksum" in text and "is not as it was sealed" in text
    kept = load_file(tmp_path / "s.safetensors")
    assert kept.keys() == WEIGHTS.keys() - {"layer7.weight"}
    assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in kept.items())


def test_a_seal_that_is_damaged_is_no_checksum(tmp_path):
    """It is said that it cannot be used, and nothing is called verified."""
    save_file(WEIGHTS, tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors.seal.json").write_text("{")
    text = run_here("salvage", "m.safetensors", cwd=tmp_path).stdout.decode()
    assert "there are no checksums to verify them" in text
    assert "note · m.safetensors.seal.json is not an intact seal: it is not JSON." in text
