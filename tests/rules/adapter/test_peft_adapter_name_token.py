"""L901: the adapter's name in its keys."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.edits import Safety
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.libraries import real
from tests.rules.adapter.nets import adapted, loaded, lora, saved
from tests.rules.examined import found

pytestmark = real

CODE = "L901"
TOKENS = torch.tensor([[1, 2, 3]])


def _named(folder: Path, name: str = "adapter_model.bin", **options: object) -> tuple[Path, object]:
    """An adapter made of the state dict, as scripts do, with the config that peft writes."""
    model = adapted(lora(**options))
    saved(model, folder)
    (folder / "adapter_model.safetensors").unlink()
    parts = {key: value for key, value in model.state_dict().items() if "lora_" in key or "modules_to_save" in key}
    torch.save(parts, folder / name)
    return folder / name, model


def test_peft_does_not_find_the_keys_under_another_name(tmp_path: Path) -> None:
    """The adapter stays as it was initialised; after the fix it is the one that was trained."""
    path, model = _named(tmp_path, use_dora=True, modules_to_save=["lm_head"])
    (finding,) = found(path, CODE)
    assert finding.severity is Severity.WARNING
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    repair(plan(FixRequest(str(path), str(fixed / path.name))))
    (fixed / "adapter_config.json").write_bytes((tmp_path / "adapter_config.json").read_bytes())
    assert not found(fixed / path.name, CODE)
    again, warned = loaded(fixed, name="another")
    assert not [each for each in warned if "missing adapter keys" in each]
    given, wanted = again.state_dict(), model.state_dict()
    for key, value in wanted.items():
        if "lora_" in key:
            assert torch.equal(given[key.replace(".default", ".another")], value)


def test_the_warning_is_peft_s_own(tmp_path: Path) -> None:
    """Without the fix peft warns, or finds nothing, under another name."""
    path, model = _named(tmp_path)
    again, warned = loaded(tmp_path, name="another")
    assert any("missing adapter keys" in each for each in warned)
    key = "base_model.model.layers.0.q_proj.lora_B.{}.weight"
    assert not torch.equal(again.state_dict()[key.format("another")], model.state_dict()[key.format("default")])
    assert path.exists()


def test_a_file_for_load_state_dict_is_only_worth_knowing(tmp_path: Path) -> None:
    """Under another name the file may be meant for the model with the adapter."""
    path, _ = _named(tmp_path, "lora.pt")
    (finding,) = found(path, CODE)
    assert finding.severity is Severity.INFO
    assert finding.fix is not None
    assert finding.fix.safety is Safety.UNSAFE


def test_of_several_adapters_one_has_to_be_chosen(tmp_path: Path) -> None:
    """Two would become one: both are named, and nothing is offered."""
    model = adapted()
    model.add_adapter("other", lora(r=3))
    path = tmp_path / "adapter_model.bin"
    torch.save({key: value for key, value in model.state_dict().items() if "lora_" in key}, path)
    (finding,) = found(path, CODE)
    assert '"default" and "other"' in finding.message
    assert finding.fix is None
    assert finding.commands == tuple([f"ckptdoctor fix FILE --keep '*.{name}.*'" for name in ("default", "other")])
    one = tmp_path / "one"
    one.mkdir()
    repair(plan(FixRequest(str(path), str(one / path.name), keep=("*.default.*",))))
    (finding,) = found(one / path.name, CODE)
    assert finding.fix is not None
