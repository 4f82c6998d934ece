"""D601 cuda-tag, D602 cuda-index-out-of-range, D603 mixed-device-tags and D604 foreign-backend-tag."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch

from ckptdoctor.edits import Retag, Safety
from ckptdoctor.rules.examples import T
from tests import builders
from tests.rules import nouns

RULES = ("D601", "D602", "D603", "D604")


def _model(*devices: str) -> dict[str, object]:
    return {f"layer{number}.weight": T((2, 2), device=device) for number, device in enumerate(devices)}


def _codes(contents: object) -> list[str]:
    return [found.code for rule in RULES for found in nouns.findings(rule, contents)]


def _torch_says(tag: str, path: Path) -> str:
    builders.save({"weight": T((2, 2), device=tag)}, path)
    with pytest.raises(RuntimeError) as caught:
        torch.load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("devices", "codes"),
    [
        (["cpu", "cpu"], []),
        (["meta", "cpu"], []),
        (["cuda:0", "cuda:0"], ["D601"]),
        (["cuda", "cuda:0"], ["D601"]),
        (["cuda:1", "cuda:1"], ["D602"]),
        (["cuda:0", "cuda:1"], ["D602", "D603"]),
        (["cuda:0", "cpu"], ["D601", "D603"]),
        (["mps", "mps"], ["D604"]),
        (["cuda:0", "xla:0"], ["D601", "D603", "D604"]),
        (["cuda:x", "cuda:x"], ["D604"]),
        (["cuda", "cuda"], ["D601"]),
        (["cuda:7", "cuda:7"], ["D602"]),
        (["cuda:٣", "cuda:٣"], ["D604"]),
        (["cudax", "cudax"], ["D604"]),
        (["", ""], ["D604"]),
        (["cuda:99999999999", "cuda:99999999999"], ["D604"]),
        (["cuda:" + "9" * 5000] * 2, ["D604"]),
    ],
)
def test_one_finding_for_each_cause(devices: list[str], codes: list[str]) -> None:
    """Which rules speak is told by the tags; no storage is counted as D601 and D602 at once."""
    assert _codes(_model(*devices)) == codes


def test_storages_are_counted_without_generator_states() -> None:
    """The state of a generator is not among the tagged storages."""
    contents = {"a.weight": T((2, 2), device="cuda:0"), "rng": T((5056,), "uint8", "cuda:0")}
    [found] = nouns.findings("D601", contents)
    assert found.message == "1 storage is tagged cuda:0"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without CUDA")
def test_d601_quotes_torch(tmp_path: Path) -> None:
    """What D601 quotes is what torch says without CUDA, word for word."""
    [found] = nouns.findings("D601", _model("cuda:0"))
    assert found.torch_says == (_torch_says("cuda:0", tmp_path / "x.pt"),)


def test_d602_quotes_torch(tmp_path: Path) -> None:
    """What D602 quotes is what torch says where there are fewer GPUs, word for word."""
    [found] = nouns.findings("D602", _model("cuda:2"))
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "device_count", lambda: 2),
    ):
        assert found.torch_says == (_torch_says("cuda:2", tmp_path / "x.pt"),)
    assert found.message == "1 storage is tagged cuda:2: loading needs 3 GPUs"


@pytest.mark.parametrize("tag", ["mps", "xla:0", "npu:1", "hpu", "hpu:0", "xpu:0", "mtia:0", "privateuseone:0", "ipu"])
def test_d604_quotes_torch(tag: str, tmp_path: Path) -> None:
    """What D604 quotes is what torch says to each backend that is not there, word for word."""
    [found] = nouns.findings("D604", _model(tag))
    assert found.torch_says == (_torch_says(tag, tmp_path / "x.pt"),)


def test_the_repair_names_the_tags_that_change() -> None:
    """D602 retags every CUDA device, so that D601 has nothing left to say."""
    [found] = nouns.findings("D602", _model("cuda:0", "cuda:1", "cpu"))
    assert found.fix is not None
    assert found.fix.edits == (Retag("cpu", ("cuda:0", "cuda:1")),)
    assert (found.fix.safety, found.fix.option) == (Safety.SAFE, "--to-cpu")
    assert found.keys == (("layer1.weight",),)


def test_counts_have_separators() -> None:
    """Thousands are separated in what people read."""
    [found] = nouns.findings("D601", _model(*["cuda:0"] * 1124))
    assert found.message == "1,124 storages are tagged cuda:0"


def test_many_tags_are_counted_rather_than_listed() -> None:
    """A file with hundreds of device tags gets a short message and a complete repair."""
    [found] = nouns.findings("D604", _model(*[f"xla:{number}" for number in range(300)]))
    assert "xla:0, xla:1, xla:2, xla:3 and 296 others" in found.message
    assert len(found.torch_says) == 3
    assert found.fix is not None
    [edit] = found.fix.edits
    assert isinstance(edit, Retag)
    assert edit.devices is not None
    assert len(edit.devices) == 300


def test_the_healthy_mix_of_a_training_is_no_mix() -> None:
    """Step counters, averages and generator states on the CPU belong there, and scalars may lie anywhere."""
    contents = {
        "model": {**_model("cuda:0", "cuda:0"), "scale": T(())},
        "ema": _model("cpu", "cpu"),
        "optimizer": {"state": {0: {"step": T(()), "exp_avg": T((2, 2), device="cuda:0")}}, "param_groups": []},
        "rng_state": T((5056,), "uint8"),
    }
    assert _codes(contents) == ["D601"]


def test_a_buffer_left_behind_is_listed() -> None:
    """D603 lists the rare side: what most likely never moved."""
    [found] = nouns.findings("D603", {"model": _model("cuda:0", "cuda:0", "cpu")})
    assert found.message == "the weights of model are on 2 devices: cuda:0 (2 tensors) and cpu (1)"
    assert found.keys == (("model", "layer2.weight"),)
    assert found.fix is not None
    assert found.fix.edits == (Retag("cpu", ("cuda:0",)),)
