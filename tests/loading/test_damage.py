"""Damage ends load with an error that names the place, or, where that is wanted, everything else is there."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import warnings
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

import ckptdoctor
from ckptdoctor.crash import no_torch
from ckptdoctor.errors import CkptDoctorError, DamagedError, UnreadableError
from ckptdoctor.loading import Inert, load
from tests.formats.safetensors.forge import entry, file, raw
from tests.formats.safetensors.test_strictness import ODD_HEADERS, mutated, sound

# headers in front of eight bytes of data, and what of each is named
REFUSED = {
    "hole": ({"a": entry(0, 3), "b": entry(4, 8)}, 'before "b".*at byte', "safetensors rejects"),
    "overlap": ({"a": entry(0, 6), "b": entry(4, 8)}, '"b" begins 2 bytes before', "safetensors rejects"),
    "trailing": ({"a": entry(0, 6)}, "2 bytes follow the end of the last tensor at byte", "safetensors rejects"),
    "entry": ({"a": {"dtype": "f32"}, "b": entry(0, 8)}, 'the entry "a" has no shape', "safetensors rejects"),
    "length": ({"a": entry(0, 4, "F32", [2]), "b": entry(4, 8)}, '"a" needs 8 bytes', "safetensors rejects"),
    "metadata": ({"__metadata__": {"n": 1}, "a": entry(0, 8)}, '"n" is a number', "safetensors rejects"),
    "rank": ({"a": entry(0, 8, "U8", [1] * 64 + [8])}, '"a" has 65 dimensions', ""),
}


def said_by(call, *arguments, **named):
    """What a call gives, or the library's or our own refusal."""
    try:
        return call(*arguments, **named)
    except Exception as error:
        return error


def same(ours, theirs):
    """Whether both libraries gave the same tensors."""
    return sorted(ours) == sorted(theirs) and all(
        (ours[name].dtype, ours[name].shape) == (each.dtype, each.shape)
        and torch.equal(ours[name].contiguous().view(torch.uint8), each.contiguous().view(torch.uint8))
        for name, each in theirs.items()
    )


def agrees(path):
    """Whether load refuses what safetensors refuses, with a documented error, and else gives the same."""
    ours, theirs = said_by(load, path), said_by(load_file, path)
    assert not isinstance(ours, Exception) or isinstance(ours, CkptDoctorError), repr(ours)
    if isinstance(theirs, Exception):
        return isinstance(ours, CkptDoctorError)
    return isinstance(ours, dict) and same(ours, theirs)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_safetensors_refuses_is_refused_with_its_place(tmp_path, kind):
    """The error names the tensor or the byte, carries the byte, and says what to type next."""
    entries, *patterns = REFUSED[kind]
    path = tmp_path / "m.safetensors"
    path.write_bytes(file(entries, bytes(8)))
    with pytest.raises(DamagedError, match=patterns[0]) as caught:
        load(path)
    assert patterns[1] in caught.value.message
    assert "strict=False" in caught.value.message and f"ckptdoctor check {path}" in caught.value.message
    assert caught.value.offset is not None


@pytest.mark.parametrize("header", ODD_HEADERS)
def test_odd_headers_load_as_safetensors_loads_them(tmp_path, header):
    """Each corner of the header: refused by both, or the same tensors from both."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw(header, bytes(range(8))))
    assert agrees(path)


def test_mutated_headers_load_as_safetensors_loads_them(tmp_path):
    """A thousand seeded mutations of sound headers; no file that safetensors refuses is loaded."""
    random_ = random.Random(20261123)
    refused, path = 0, tmp_path / "m.safetensors"
    for _ in range(1000):
        data = raw(mutated(sound(random_), random_), random_.randbytes(random_.choice([8, 8, 8, 7, 9])))
        path.write_bytes(data)
        assert agrees(path), data
        refused += isinstance(said_by(load, path), Exception)
    assert 100 < refused < 900  # both verdicts were tried often enough


def test_shards_load_as_safetensors_loads_each_of_them(tmp_path):
    """A folder is refused where safetensors refuses one of its files, and is the union of them where it does not."""
    random_ = random.Random(20261124)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    save_file({"whole": torch.arange(4.0)}, tmp_path / names[0])
    refused = 0
    for _ in range(150):
        header = sound(random_)
        keys = [key for key in json.loads(header) if key != "__metadata__"]
        index = {"metadata": {}, "weight_map": {"whole": names[0], **dict.fromkeys(keys, names[1])}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        data = raw(mutated(header, random_), random_.randbytes(random_.choice([8, 8, 7, 9])))
        (tmp_path / names[1]).write_bytes(data)
        ours = said_by(load, tmp_path)
        assert not isinstance(ours, Exception) or isinstance(ours, CkptDoctorError), repr(ours)
        theirs = [said_by(load_file, tmp_path / name) for name in names]
        if any(isinstance(each, Exception) for each in theirs):
            assert isinstance(ours, CkptDoctorError), data
            refused += 1
        else:
            assert same(ours, {**theirs[1], **theirs[0]}), data
    assert 20 < refused < 145


def test_four_bit_floats_come_in_pairs(tmp_path):
    """F4 of safetensors is what safetensors gives: two numbers in one element."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"a": entry(0, 8, "F4", [2, 8])}, bytes(range(8))))
    assert agrees(path)
    assert load(path)["a"].shape == (2, 4)


def test_a_lenient_load_gives_what_can_be_given(tmp_path):
    """With strict=False the tensors beside a broken entry come back, it is an Inert with the reason, and one warns."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"a": {"dtype": "F32"}, "b": entry(0, 8)}, bytes(range(8))))
    with pytest.warns(UserWarning, match='m.safetensors is damaged: .*"a" has no shape') as caught:
        mine = load(path, strict=False)
    assert caught[0].filename == __file__
    assert bytes(mine["b"].tolist()) == bytes(range(8))
    assert isinstance(mine["a"], Inert) and "has no shape" in mine["a"].state["reason"]


def test_a_lenient_load_of_a_cut_file_gives_what_lies_in_front_of_the_cut(tmp_path):
    """Tensors that are whole come back; the others are Inert, with dtype, shape and the reason."""
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.arange(10.0), "b": torch.ones(10)}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DamagedError, match="Storage b "):
        load(path)
    with pytest.warns(UserWarning, match="is damaged"):
        mine = load(path, strict=False)
    assert torch.equal(mine["a"], torch.arange(10.0))
    assert mine["b"].state["shape"] == (10,)


def test_a_lenient_load_of_a_folder_leaves_out_what_is_missing(tmp_path):
    """The shards that are there are given, and the warning names the one that is not."""
    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(DamagedError, match="model-00002-of-00002"):
        load(tmp_path)
    with pytest.warns(UserWarning, match="model-00002-of-00002.safetensors is missing"):
        assert list(load(tmp_path, strict=False)) == ["a"]


def test_a_sound_file_loads_leniently_without_a_warning(tmp_path):
    """strict=False changes nothing where nothing is wrong."""
    save_file({"a": torch.ones(2)}, tmp_path / "m.safetensors")
    torch.save({"a": torch.ones(2), "device": torch.device("cuda:1")}, tmp_path / "m.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(load(tmp_path / "m.safetensors", strict=False)["a"], torch.ones(2))
        assert load(tmp_path / "m.pt", strict=False)["device"] == torch.device("cuda:1")


class Call:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def storage_of(*values, dtype=torch.float32):
    """A typed storage, as files name them."""
    return torch.tensor(values, dtype=dtype).storage()


def quantised(numbers, size, stride, scheme):
    """A quantised view of a storage of so many bytes."""
    storage = torch.quantize_per_tensor(torch.zeros(numbers), 0.1, 0, torch.qint8)._typed_storage()
    return Call(torch._utils._rebuild_qtensor, storage, 0, size, stride, scheme, False, {})


def sparse(layout, *parts):
    """A sparse tensor of these parts and shape."""
    return Call(torch._utils._rebuild_sparse_tensor, layout, parts)


AFFINE = (torch.per_tensor_affine, 0.1, 3)
CHANNELS = (torch.per_channel_affine, torch.ones(2).double(), torch.zeros(2).long(), 0)

# what files say that no writer writes, and what names it
DAMAGED = {
    "quantised view past its storage": lambda: quantised(4, (3, 4), (4, 1), AFFINE),
    "quantised view of an empty storage": lambda: quantised(0, (4,), (1,), AFFINE),
    "quantised by channel past its storage": lambda: quantised(4, (2, 4), (4, 1), CHANNELS),
    "quantised with channels that are not there": lambda: quantised(12, (3, 4), (4, 1), CHANNELS),
    "quantised along no axis": lambda: quantised(8, (2, 4), (4, 1), (*CHANNELS[:3], 7)),
    "quantised in a shape that fits no memory": lambda: quantised(4, (2**40, 4), (0, 1), (*AFFINE[:2], 2**70)),
    "view of an empty storage": lambda: Call(torch._utils._rebuild_tensor_v2, storage_of(), 0, (4,), (1,), False, {}),
    "sparse indices outside": lambda: sparse(
        torch.sparse_coo, torch.tensor([[5]]), torch.ones(1), torch.Size([2]), False
    ),
    "sparse indices of more dimensions": lambda: sparse(
        torch.sparse_coo, torch.zeros(3, 1).long(), torch.ones(1), torch.Size([2]), False
    ),
    "compressed rows that go backwards": lambda: sparse(
        torch.sparse_csr, torch.tensor([0, 2, 1]), torch.tensor([0]), torch.ones(1), torch.Size([2, 2])
    ),
    "size made of text": lambda: Call(torch.Size, ("a", "b")),
    "size beyond all numbers": lambda: Call(torch.Size, (2**70,)),
    "device made of text": lambda: Call(torch.device, "hello"),
    "device with a number beyond all": lambda: Call(torch.device, "cuda", -(10**5000)),
}


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:.*[Ss]parse.*:UserWarning", "ignore:Typed")
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_in_files_of_torch_names_its_key(tmp_path, kind, legacy):
    """What torch would raise something of its own for is DamagedError with the key; leniently the rest is given."""
    path = tmp_path / "m.pt"
    saved = {"fine": torch.arange(3.0), "outer": {"broken": DAMAGED[kind]()}}
    torch.save(saved, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(DamagedError, match="outer/broken"):
        load(path)
    with pytest.warns(UserWarning, match="outer/broken"):
        mine = load(path, strict=False)
    assert torch.equal(mine["fine"], torch.arange(3.0))
    assert isinstance(mine["outer"]["broken"], Inert)


def test_the_name_of_a_method_in_the_state_of_a_dict_replaces_nothing(tmp_path):
    """Attributes that a file sets on a state dict are set as unpickling does, whatever they are called."""

    class Dict(dict):
        def __reduce__(self):
            from collections import OrderedDict

            return OrderedDict, (), {"__class__": 1, "__dict__": {}, "extra": 2}, None, iter({"a": 1}.items())

    path = tmp_path / "m.pt"
    torch.save(Dict(), path)
    mine = load(path)
    assert dict(mine) == {"a": 1}
    assert mine.extra == 2


def test_a_deflated_record_that_declares_more_than_memory_has_is_damage(tmp_path):
    """No length that a file claims is handed to a library unseen."""
    torch.save({"a": torch.ones(4)}, tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt") as before, zipfile.ZipFile(tmp_path / "n.pt", "w") as after:
        for info in before.infolist():
            data = before.read(info)
            if info.filename.endswith("data.pkl"):
                data = data.replace(b"K\x04", pickle.dumps(1 << 61, 2)[2:-1], 1)
            after.writestr(info.filename, data, zipfile.ZIP_DEFLATED)
    with pytest.raises(DamagedError):
        load(tmp_path / "n.pt")


def test_a_file_that_cannot_be_mapped_is_unreadable(tmp_path, monkeypatch):
    """What the system says while a file is mapped is one sentence, too."""
    import mmap

    save_file({"a": torch.ones(2)}, tmp_path / "m.safetensors")

    def full(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", full)
    with pytest.raises(UnreadableError, match="cannot be mapped into memory: Cannot allocate memory"):
        load(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "call",
    [
        "load('m.pt')",
        "load('m.pt', strict=False)",
        "load_state_dict('m.pt', {'a': (2,)})",
    ],
)
def test_without_torch_one_error_says_how_to_install_it(tmp_path, call):
    """It is an ImportError and one of ours, with the command, and nothing of the inside in its trace."""
    torch.save({"a": torch.ones(2)}, tmp_path / "m.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "n.pt")
    code = (
        "import sys, traceback; sys.modules['torch'] = None\n"
        "import ckptdoctor\n"
        f"try: print('gave', ckptdoctor.{call})\n"
        "except ImportError as error:\n"
        "    print(isinstance(error, ckptdoctor.CkptDoctorError), error, error.__suppress_context__)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == f"True {no_torch()} True\n", result


@pytest.mark.parametrize(
    ("call", "printed"),
    [
        ("load('epoch.pt')", "{'epoch': 3}"),
        ("fix('m.pt', dtype='bf16').output", "m.fixed.pt"),
        ("diff('m.pt', 'n.pt', values=True).summary", "a changed (relative L2 1, cosine nan)"),
    ],
)
def test_what_needs_no_torch_does_without(tmp_path, call, printed):
    """Plain contents load where torch is not installed, values are cast, and compared."""
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "m.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "n.pt")
    code = f"import sys; sys.modules['torch'] = None; import ckptdoctor; print(ckptdoctor.{call})"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == f"{printed}\n"


def test_the_weights_for_a_net_are_taken_from_no_file_that_safetensors_refuses(tmp_path):
    """load_state_dict is as strict as load, and as lenient."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"a": entry(0, 4), "b": entry(6, 8)}, bytes(8)))
    with pytest.raises(DamagedError, match='in front of "b"'):
        ckptdoctor.load_state_dict(path, {"a": (4,), "b": (2,)})
    assert set(ckptdoctor.load_state_dict(path, {"a": (4,), "b": (2,)}, strict=False)) == {"a", "b"}
