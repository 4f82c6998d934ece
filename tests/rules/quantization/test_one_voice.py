"""Only one rule speaks of keys that are quantised on one side."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.examine.file import check
from ckptdoctor.target.mapping import as_reference
from tests.repair.test_dequantizing import four
from tests.rules.quantization.test_torch import Net, deprecated, eager, prepared  # noqa: F401  # a fixture

PLAIN = {"w.weight": torch.zeros(64, 96), "norm.weight": torch.ones(3)}
NORM = {"norm.weight": torch.ones(3)}
GPTQ = {
    "w.qweight": torch.zeros(12, 64, dtype=torch.int32), "w.qzeros": torch.zeros(1, 8, dtype=torch.int32),
    "w.scales": torch.zeros(1, 64).half(), "w.g_idx": torch.zeros(96, dtype=torch.int32), **NORM,
}  # fmt: skip
FLOAT8 = {"w.weight": torch.zeros(64, 96).to(torch.float8_e4m3fn), "w.weight_scale_inv": torch.ones(1, 1), **NORM}
NF4 = {**{f"w.weight{key[1:]}": each for key, each in four((64, 96), True).items()}, **NORM}


@pytest.mark.parametrize(
    ("here", "there", "code"),
    [(NF4, PLAIN, "Q951"), (GPTQ, PLAIN, "Q953"), (PLAIN, GPTQ, "Q953"), (FLOAT8, PLAIN, "Q956")],
)
def test_no_other_rule_lists_the_keys(tmp_path: Path, here, there, code: str) -> None:
    """Neither as missing, unexpected or of another shape, nor as another model or dtype."""
    save_file(here, tmp_path / "q.safetensors", {"format": "pt"})
    report = check(str(tmp_path / "q.safetensors"), reference=as_reference(there))
    assert [each.code for each in report.findings] == [code]


@pytest.mark.parametrize(("make", "code"), [(eager, "Q954"), (lambda: prepared(True), "Q955")])
def test_no_other_rule_lists_those_of_torch(tmp_path: Path, make, code: str) -> None:
    """What stands in tuples included."""
    torch.save(make().state_dict(), tmp_path / "q.pt")
    report = check(str(tmp_path / "q.pt"), reference=as_reference(Net()))
    assert [each.code for each in report.findings if each.severity.rank] == [code]
