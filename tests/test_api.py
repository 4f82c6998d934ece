import importlib.metadata
import subprocess
import sys

import pytest
import torch
from torch import nn

import ckptdoctor
from ckptdoctor import errors


@pytest.fixture
def path(tmp_path):
    """A DataParallel checkpoint."""
    path = tmp_path / "model.pt"
    torch.save({"module.fc.weight": torch.ones(2, 3), "module.fc.bias": torch.zeros(2)}, path)
    return path


def test_every_public_name_exists():
    """Each name of __all__ can be had, is listed by dir(), and nothing else is promised."""
    assert all(getattr(ckptdoctor, name) is not None for name in ckptdoctor.__all__)
    assert set(ckptdoctor.__all__) <= set(dir(ckptdoctor))
    assert set(ckptdoctor._HOMES) | {"__version__"} == set(ckptdoctor.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ckptdoctor.nonsense


def test_the_version_is_the_installed_one():
    """The version is told by the package's metadata."""
    assert ckptdoctor.__version__ == importlib.metadata.version("ckptdoctor")


def test_open_reads_headers(path):
    """open gives the checkpoint by path, as text or as a path object."""
    for name in (path, str(path)):
        checkpoint = ckptdoctor.open(name)
        assert [tensor.key for tensor in checkpoint.tensors] == ["module.fc.weight", "module.fc.bias"]


def test_check_gives_findings(path):
    """check finds what is wrong and obeys its choices."""
    assert "N401" in [finding.code for finding in ckptdoctor.check(path).findings]
    assert ckptdoctor.check(path, select=["D"]).findings == ()
    assert ckptdoctor.check(path, like=path, select=["module-prefix"]).findings == ()
    with pytest.raises(errors.UsageError):
        ckptdoctor.check(path, select=["Q999"])


class Net(nn.Module):
    def __init__(self, out=2):
        super().__init__()
        self.fc = nn.Linear(3, out)


def test_check_against_a_model_or_a_mapping(path):
    """A module, its state dict, shapes and a Reference say the same of the file."""
    net = Net()
    shapes = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    expected = {key: ckptdoctor.Expected(shape) for key, shape in shapes.items()}
    for reference in (net, net.state_dict(), shapes, ckptdoctor.Reference("mine", expected)):
        report = ckptdoctor.check(path, model=reference)
        assert (report.coverage.keys, report.coverage.steps[-1].keys) == (0, 2)
        assert not [finding for finding in report.findings if finding.code.startswith("R")]
    assert "W311" in [finding.code for finding in ckptdoctor.check(path, model=Net(5)).findings]
    with pytest.raises(errors.UsageError, match="different targets"):
        ckptdoctor.check(path, like=path, model=net)
    with pytest.raises(errors.UsageError, match="the path of a file goes to like="):
        ckptdoctor.check(path, model=str(path))


def test_check_against_shapes_does_without_torch(path):
    """A mapping of shapes needs no torch."""
    code = (
        "import ckptdoctor, sys\n"
        f"report = ckptdoctor.check({str(path)!r}, model={{'fc.weight': (2, 3), 'fc.bias': (2,)}})\n"
        "print(report.coverage.steps[-1].keys, 'torch' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["2", "False"]


def test_load_state_dict_is_what_a_model_takes(path):
    """load_state_dict gives what the net's own takes, and says why where nothing can be done."""
    net = Net()
    net.load_state_dict(ckptdoctor.load_state_dict(path, net), strict=True)
    assert torch.equal(net.fc.weight, torch.ones(2, 3))
    with pytest.raises(errors.RefusedError, match=r"fc\.weight \[2, 3\] for \[5, 3\]"):
        ckptdoctor.load_state_dict(path, Net(5))


def test_check_of_a_missing_file_is_a_report(tmp_path):
    """A file that cannot be examined gives a report whose error says why."""
    assert "No such file" in ckptdoctor.check(tmp_path / "missing.pt").error


def test_fix_writes_a_verified_file(path):
    """fix writes a new file that torch loads under the bare keys."""
    report = ckptdoctor.fix(path, strip_module=True)
    assert list(torch.load(report.output)) == ["fc.weight", "fc.bias"]


def test_load_gives_plain_python(path):
    """load gives the contents as plain Python with CPU tensors."""
    assert torch.equal(ckptdoctor.load(path)["module.fc.weight"], torch.ones(2, 3))
