"""C104, C106–C109, C112, C114 and C115: other containers, told by what they are, with the words of torch."""

from __future__ import annotations

import pickle

import numpy
import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.builders import build
from tests.rules.examined import find_one, found, safetensors_error, sick, torch_error

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    pytest.mark.filterwarnings("ignore:'torch.load' received a zip file"),
    pytest.mark.filterwarnings("ignore:Detected pickle protocol"),
]


def one(path, code):
    """The only finding of a rule in a file."""
    (finding,) = found(path, code)
    return finding


def said(path):
    """All that torch says of a file, with weights_only and without."""
    return torch_error(path) + torch_error(path, weights_only=False)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_torch_did_not_write(tmp_path, protocol):
    """Each protocol; the lines are torch's, and the command that converts the file is named."""
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps({"mean": numpy.zeros(3, "float32"), "epoch": 3}, protocol))
    finding = one(path, "C104")
    assert finding.severity is Severity.ERROR
    assert all(line in said(path) for line in finding.torch_says)
    assert finding.commands == (f"ckptdoctor convert FILE {tmp_path / 'model.safetensors'}",)


def test_a_pickle_under_its_own_name_is_a_warning(tmp_path):
    """Nobody promised torch a checkpoint there."""
    assert find_one(sick("C104")[1], tmp_path, "C104").severity is Severity.WARNING


def test_a_version_of_tomorrow(tmp_path):
    """The line is torch's own."""
    finding = find_one(sick("C106")[0], tmp_path, "C106")
    assert finding.torch_says[0] in torch_error(build(sick("C106")[0], tmp_path))
    assert found(build(sick("C106")[0], tmp_path), "P207") == []


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A real TorchScript archive."""
    path = tmp_path_factory.mktemp("script") / "1" / "model.pt"
    path.parent.mkdir()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    return path


def test_a_script_module(script):
    """An error for who wants a state dict; the words are torch's."""
    finding = one(script, "C107")
    assert finding.severity is Severity.ERROR
    assert finding.torch_says[0] in torch_error(script)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ('platform: "pytorch_libtorch"\n', True),
        ('name: "net"\nbackend: "pytorch"\n', True),
        ('backend: "python"\n', False),
        ('backend: "onnxruntime"\n# platform: "pytorch_libtorch"\n', False),
        ("", False),
    ],
)
def test_a_repository_of_triton(script, config, wanted):
    """Where the server asks for a script module it is only information, and a checkpoint would be the error."""
    (script.parent.parent / "config.pbtxt").write_text(config)
    assert (one(script, "C107").severity is Severity.INFO) is wanted
    assert found(script, "C108") == []


def test_a_checkpoint_where_a_script_is_wanted(tmp_path):
    """The words are those of torch.jit.load; a model in Python beside it takes a state dict."""
    finding = find_one(sick("C108")[0], tmp_path, "C108")
    path = build(sick("C108")[0], tmp_path)
    with pytest.raises(RuntimeError, match=r"constants\.pkl") as caught:
        torch.jit.load(path)
    assert finding.torch_says[0] in str(caught.value)
    (path.parent / "model.py").write_text("class Net: pass\n")
    assert found(path, "C108") == []


def test_an_exported_program(tmp_path):
    """As torch.export.save writes it."""
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), path)
    finding = one(path, "C109")
    assert finding.torch_says[0] in said(path)
    assert find_one(sick("C109")[1], tmp_path, "C109").torch_says == ()


def test_a_header_of_more_than_100_megabytes(tmp_path):
    """safetensors refuses it in these words."""
    finding = find_one(sick("C112")[0], tmp_path, "C112")
    assert finding.torch_says[0] in safetensors_error(build(sick("C112")[0], tmp_path))


@pytest.mark.parametrize("length", [100_000_001, 2**63])
def test_a_header_that_is_not_there(tmp_path, length):
    """A length that the file does not have is damage, not a header that is too big."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
    assert found(path, "C112") == []


@pytest.mark.parametrize("example", sick("C114"), ids=lambda example: example.title)
def test_files_of_other_frameworks(tmp_path, example):
    """The finding explains the file, so that it is no error of its own; the lines are torch's."""
    path = build(example, tmp_path)
    report = check(str(path))
    assert [finding.code for finding in report.findings] == ["C114"]
    assert report.error is None
    assert report.findings[0].advice
    assert all(line in said(path) for line in report.findings[0].torch_says)


def test_a_foreign_file_under_a_name_of_torch_is_told_once(tmp_path):
    """C101 names the contents as well."""
    path = tmp_path / "model.bin"
    path.write_bytes(sick("C114")[0].raw)
    assert [finding.code for finding in check(str(path)).findings] == ["C101"]


def test_arrays_of_numpy(tmp_path):
    """The command that makes tensors of them is named."""
    numpy.savez(tmp_path / "weights.npz", w=numpy.zeros(3))
    numpy.save(tmp_path / "w.npy", numpy.zeros(3))
    for name in ("weights.npz", "w.npy"):
        assert one(tmp_path / name, "C114").commands[0].startswith("ckptdoctor convert FILE ")


def test_pictures_are_no_framework(tmp_path):
    """What holds no weights at all stays an error of one sentence."""
    (tmp_path / "model.pt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    report = check(str(tmp_path / "model.pt"))
    assert report.findings == ()
    assert report.error is not None and "PNG" in report.error


def test_twins_that_differ(tmp_path):
    """Both files of a model in one folder: information, and a warning where they cannot hold the same."""
    weights = {"w": torch.zeros(500_000)}
    torch.save(weights, tmp_path / "pytorch_model.bin")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    for name in ("pytorch_model.bin", "model.safetensors"):
        finding = one(tmp_path / name, "C115")
        assert finding.severity is Severity.INFO
        assert "model.safetensors" in finding.cause
    save_file({"w": torch.zeros(2_000_000)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert one(tmp_path / "pytorch_model.bin", "C115").severity is Severity.WARNING
    torch.save(weights, tmp_path / "best.pt")
    assert found(tmp_path / "best.pt", "C115") == []
