"""``fix`` of what torch.load and safetensors do not load as it is: converted, or refused with the command that does."""

from __future__ import annotations

import gzip
import pickle
import shlex
import shutil
import tarfile
import warnings
import zipfile

import numpy
import pytest
import torch

from ckptdoctor.cli.main import run
from tests.dtypes import needs_dtype
from tests.libraries import real

MADE = ["script.pt", "program.pt2", "arrays.pkl", "arrays.pt", "tensors.pkl", "tensors.pt", "arrays.npz"]
PACKED = ["packed.tar", "packed.tar.gz", "packed.pt.gz", "packed.zip"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One network in each of these files, as the libraries write them; and the weights that are the target."""
    folder = tmp_path_factory.mktemp("files")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    state = model.state_dict()
    torch.save(state, folder / "target.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own format of old deprecated
        torch.jit.save(torch.jit.script(model), folder / "script.pt")
    torch.export.save(torch.export.export(model, (torch.randn(1, 4),)), folder / "program.pt2")
    arrays = {key: value.numpy() for key, value in state.items()}
    for name, contents in (("arrays", arrays), ("tensors", dict(state))):
        for suffix in (".pkl", ".pt"):
            (folder / f"{name}{suffix}").write_bytes(pickle.dumps(contents))
    numpy.savez(folder / "arrays.npz", **arrays)
    for name, mode in (("packed.tar", "w"), ("packed.tar.gz", "w:gz")):
        with tarfile.open(folder / name, mode) as archive:
            archive.add(folder / "target.pt", "model.pt")
    (folder / "packed.pt.gz").write_bytes(gzip.compress((folder / "target.pt").read_bytes()))
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.write(folder / "target.pt", "model.pt")
    return folder


@pytest.fixture
def fixed(files, tmp_path, monkeypatch, capsys):
    """The status of ``fix`` of one of the files, and what it says."""
    monkeypatch.chdir(tmp_path)

    def fix(name, *options):
        shutil.copy(files / name, tmp_path)
        shutil.copy(files / "target.pt", tmp_path)
        capsys.readouterr()
        status = run(["fix", name, *options])
        return status, capsys.readouterr().out

    return fix


@pytest.mark.parametrize("options", [(), ("--auto", "--like", "target.pt"), ("--select", "M971")])
@pytest.mark.parametrize("name", MADE)
def test_the_command_that_converts_is_the_next_step(name, options, fixed, tmp_path):
    """Nothing is called healthy: the status is 1, and the last line makes a file with the very weights."""
    status, said = fixed(name, *options)
    assert status == 1
    assert "nothing to repair" not in said
    command = said.splitlines()[-1].removeprefix("next · ")
    assert run(shlex.split(command)[1:]) == 0
    assert run(["fix", shlex.split(command)[-1], "--like", "target.pt", "-o", "well.pt"]) == 0
    result = tmp_path / "well.pt"
    if result.exists():
        wanted = torch.load("target.pt")
        assert all(torch.equal(value, wanted[key]) for key, value in torch.load(result).items())


@pytest.mark.parametrize("output", ["o.safetensors", "o.pt"])
@pytest.mark.parametrize("name", [*MADE, *PACKED])
def test_an_output_is_written_where_one_is_named(name, output, fixed):
    """With a target and ``-o`` it is converted, or unpacked, at once."""
    status, said = fixed(name, "--like", "target.pt", "-o", output)
    assert (status, "wrote" in said) == (0, True), said


@pytest.mark.parametrize("options", [(), ("--auto", "--like", "target.pt")])
@pytest.mark.parametrize("name", PACKED)
def test_what_is_packed_is_unpacked(name, options, fixed):
    """The target would not load the archive, though what is in it fits."""
    status, said = fixed(name, *options)
    assert (status, "wrote packed.pt" in said) == (0, True), said


@pytest.mark.parametrize("name", PACKED)
def test_what_stays_packed_is_not_healthy(name, fixed):
    """Where something else was asked for, the next step says how it is unpacked."""
    status, said = fixed(name, "--select", "M971")
    assert (status, said.splitlines()[-1]) == (1, f"next · ckptdoctor fix {name} --select C102")


@needs_dtype("float8_e8m0fnu")
def test_tensors_that_torch_cannot_give_their_values(tmp_path, monkeypatch, capsys):
    """torch.load fails for them in every mode: the step is a conversion, and no word is of weights_only."""
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.rand(4).to(torch.float8_e8m0fnu).requires_grad_()}, "a.pt")
    assert run(["fix", "a.pt"]) == 1
    said = capsys.readouterr().out
    assert "weights_only" not in said
    assert said.splitlines()[-1] == "next · ckptdoctor convert a.pt a.safetensors"
    assert run(["convert", "a.pt", "a.safetensors"]) == 0


@real
def test_what_accelerate_saves_is_no_error(tmp_path, capsys):
    """Its random states hold arrays of NumPy, which it allows itself: P202 is a remark, in the folder and alone."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(2, 2)
    accelerator.prepare(net, torch.optim.SGD(net.parameters()))
    accelerator.save_state(str(tmp_path / "state"))
    for path in (tmp_path / "state", tmp_path / "state" / "random_states_0.pkl"):
        assert run(["check", str(path)]) == 0
        said = capsys.readouterr().out
        assert "info P202" in said
        assert "repair" not in said
