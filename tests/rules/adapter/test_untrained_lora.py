"""An adapter that was never trained is told by its values."""

import torch

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from tests.libraries import peft, real

pytestmark = real


def codes(folder):
    report = check(str(folder / "adapter_model.safetensors"), Settings(deep=True))
    return [finding.code for finding in report.findings]


def test_an_adapter_as_peft_makes_it_is_told_until_it_is_trained(tmp_path):
    """One step of an optimizer makes the difference."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    model = peft.get_peft_model(net, peft.LoraConfig(r=2, target_modules=["0", "2"]))
    model.save_pretrained(tmp_path / "fresh")
    assert "L904" in codes(tmp_path / "fresh")
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    model(torch.rand(5, 4)).square().sum().backward()
    optimizer.step()
    model.save_pretrained(tmp_path / "trained")
    assert "L904" not in codes(tmp_path / "trained")
