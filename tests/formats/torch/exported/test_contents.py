"""Exported programs, held against the state dict that torch.export.load gives."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
import torch
from torch import nn

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Opaque, Special
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats import open_checkpoint, opened, read, write
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure

pytestmark = pytest.mark.filterwarnings("ignore")


class Net(nn.Module):
    """Ties, a view, buffers of both kinds, and constants."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.first.weight
        self.transposed = nn.Parameter(torch.rand(4, 5).t(), requires_grad=False)
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_buffer("short", torch.ones(2, dtype=torch.bfloat16))
        self.grid = torch.arange(3.0)

    def forward(self, x):
        made = self.norm(self.first(x)) + self.tied(x) + self.grid.sum() + self.passing.sum() + torch.tensor(2.5)
        return made + self.short.sum() + self.transposed.sum()


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Net().eval(), (torch.rand(2, 3),))


@pytest.fixture
def path(program, tmp_path):
    torch.export.save(program, tmp_path / "m.pt2")
    return tmp_path / "m.pt2"


def test_it_holds_the_state_dict_that_torch_gives(path):
    """The same keys in the same order, types, shapes, strides, values, Parameters and ties."""
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "torch.export program" and not checkpoint.notes
    assert [each.path for each in checkpoint.state_dicts] == [()]
    loaded, theirs = ckptdoctor.load(path), torch.export.load(path)
    assert_same(loaded, dict(theirs.state_dict))
    assert_same(loaded.constants, dict(theirs.constants))
    assert loaded["tied.weight"].data_ptr() == loaded["first.weight"].data_ptr()
    for key, value in theirs.state_dict.items():
        assert (type(loaded[key]), loaded[key].requires_grad) == (type(value), value.requires_grad)


def test_constants_are_attributes_of_the_state_dict(path):
    """They are part of the program, not of its weights."""
    constants = [tensor for tensor in open_checkpoint(path).tensors if tensor.path[0] == Special(".constants")]
    assert {tensor.key for tensor in constants} == {"grid", "passing", "lifted_tensor_0"}


def older(program, path, *, constants=True):
    """The layout of torch 2.1 to 2.7: files of torch.save in a zip archive."""
    weights, others = io.BytesIO(), io.BytesIO()
    torch.save(dict(program.state_dict), weights)
    torch.save(dict(program.constants), others)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.2")
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.pt", weights.getvalue())
        if constants:
            archive.writestr("serialized_constants.pt", others.getvalue())
    return path


def test_the_layout_of_before_holds_files_of_torch_save(program, tmp_path):
    """Extents count from the beginning of the whole file, and nothing is unpacked."""
    path = older(program, tmp_path / "m.pt2")
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "torch.export program" and not checkpoint.notes
    loaded = ckptdoctor.load(path)
    assert_same(loaded, dict(program.state_dict))
    assert_same(loaded.constants, dict(program.constants))
    tensor = next(tensor for tensor in checkpoint.tensors if tensor.key == "first.bias")
    extent, data = tensor.storage.extent, path.read_bytes()
    assert (
        data[extent.offset : extent.offset + extent.length]
        == program.state_dict["first.bias"].detach().numpy().tobytes()
    )


def repacked(path, change):
    """The archive with ``change`` done to its records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return path


def test_a_file_of_torch_save_for_each_model_is_read_too(program, path):
    """As torch 2.8 wrote them."""

    def change(records):
        for name in [name for name in records if "/data/weights/" in name]:
            del records[name]
        buffer = io.BytesIO()
        torch.save(dict(program.state_dict), buffer)
        records["m/data/weights/model.pt"] = buffer.getvalue()

    assert_same(ckptdoctor.load(repacked(path, change)), dict(program.state_dict))


def listed(path, change):
    """The archive with ``change`` done to its list of weights."""

    def edit(records):
        name = "m/data/weights/model_weights_config.json"
        config = json.loads(records[name])
        change(config["config"])
        records[name] = json.dumps(config).encode()

    return repacked(path, edit)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sizes", [{"as_int": -1}]),
        ("sizes", [{"as_expr": {"expr_str": "s0"}}]),
        ("sizes", [{"as_int": 1 << 62}]),
        ("sizes", "many"),
        ("strides", [{"as_int": 1}] * 70),
        ("dtype", 99),
        ("layout", 1),
        ("device", None),
    ],
)
def test_a_weight_that_cannot_be_is_left_out_with_a_note(field, value, path):
    """The others are shown."""
    checkpoint = open_checkpoint(
        listed(path, lambda config: config["first.bias"]["tensor_meta"].update({field: value}))
    )
    assert "first.bias" not in checkpoint.state_dicts[0].keys and "norm.bias" in checkpoint.state_dicts[0].keys
    assert [note.kind for note in checkpoint.notes] == [NoteKind.TENSOR_ODD]


def test_a_view_beyond_its_record_is_a_note(path):
    """And loading it is an error, not a read of other bytes."""
    longer = listed(path, lambda config: config["first.bias"]["tensor_meta"].update({"sizes": [{"as_int": 400}]}))
    assert [note.kind for note in open_checkpoint(longer).notes] == [NoteKind.TENSOR_OUT_OF_BOUNDS]
    with pytest.raises(DamagedError):
        ckptdoctor.load(longer)


def test_a_pickled_weight_is_read_as_a_file_of_its_own(path):
    """Tensors of classes of their own are saved so; other objects are named, never made."""

    def change(records):
        name = "m/data/weights/model_weights_config.json"
        config = json.loads(records[name])
        buffer = io.BytesIO()
        torch.save(torch.arange(4.0), buffer)
        records["m/data/weights/own"] = buffer.getvalue()
        config["config"]["first.bias"].update(path_name="own", use_pickle=True)
        config["config"]["norm.bias"].update(path_name="gone", use_pickle=True, tensor_meta=None)
        records[name] = json.dumps(config).encode()

    repacked(path, change)
    assert ckptdoctor.load(path)["first.bias"].tolist() == [0, 1, 2, 3]
    assert isinstance(dict(open_checkpoint(path).tree.entries)["norm.bias"], Opaque)


def test_several_models_have_a_state_dict_each(path):
    """Under their names."""

    def change(records):
        for name in [name for name in records if "model" in name]:
            records[name.replace("model", "second")] = records[name]
        records["m/models/second.json"] = records.pop("m/second/model.json", records["m/models/model.json"])
        for kind in ("weights", "constants"):
            records[f"m/data/{kind}/second_{kind}_config.json"] = records[f"m/data/{kind}/model_{kind}_config.json"]

    places = {each.path for each in open_checkpoint(repacked(path, change)).state_dicts}
    assert {("model",), ("second",)} <= places


def test_a_program_without_weights_is_named_and_not_read(path):
    """A compiled one has them in its library."""

    def change(records):
        for name in [name for name in records if "/data/" in name]:
            del records[name]

    with opened(repacked(path, change)) as (_, container):
        assert (container.format, container.readable) == ("torch.export program", False)


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"config": 3}', b"[" * 100_000])
def test_a_list_that_is_none_is_damage(text, path):
    """Whatever JSON it is."""
    broken = repacked(path, lambda records: records.update({"m/data/weights/model_weights_config.json": text}))
    with pytest.raises(DamagedError, match="list of weights"):
        open_checkpoint(broken)


def test_it_is_not_repaired_but_converted(path):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(path) as (source, container),
        pytest.raises(RefusedError, match=r"torch.export program, which cannot be repaired in place"),
    ):
        write(wanted_of(read(source, container), [Drop((("short",),))]), source)


@PLACES
@pytest.mark.parametrize("old", [True, False])
def test_a_mangled_archive_is_read_or_refused(old, places, tmp_path):
    """Cut at many bytes, and with many bytes changed."""
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    if old:
        older(program, tmp_path / "m.pt2")
    else:
        torch.export.save(program, tmp_path / "m.pt2")
    endure((tmp_path / "m.pt2").read_bytes(), tmp_path, places)
