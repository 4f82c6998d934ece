"""Prefixes that fit a target equally well: check names each with its command, and calls none of them safe."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.cli.main import run

PAIRS = [
    *(("generator", "discriminator"), ("student", "teacher"), ("online", "target"), ("query_encoder", "ctx_encoder")),
    *(("net", "averaged"), ("model", "ema_model"), ("module.student", "module.teacher"), ("a.encoder", "b.encoder")),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the files are."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def net():
    """Weights of a small network."""
    return {"conv.weight": torch.rand(4, 3, 3, 3), "fc.weight": torch.rand(2, 4), "fc.bias": torch.rand(2)}


def under(prefix, weights):
    """The same keys behind a prefix."""
    return {f"{prefix}.{key}": value for key, value in weights.items()}


def findings(capsys, here, target):
    """What check says of one file for the other."""
    torch.save(here, "sick.pt")
    torch.save(target, "target.pt")
    run(["check", "sick.pt", "--like", "target.pt", "--format", "json"])
    return json.loads(capsys.readouterr().out)["files"][0]["findings"]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_both_prefixes_are_named_and_neither_is_safe(one, other, capsys):
    """Each is named with a command, and no repair strips or drops one of them."""
    found = findings(capsys, {**under(one, net()), **under(other, net())}, net())
    said = next(each for each in found if each["name"] in ("enclosing-prefix", "base-model-prefix"))
    assert f'"{one}." and "{other}." fit target.pt equally well' in said["advice"]
    assert said["commands"] == [
        f"ckptdoctor fix sick.pt --keep '{each}.*' --auto --like target.pt" for each in (one, other)
    ]
    fixes = [each["fix"]["command"] for each in found if each["fix"] is not None]
    assert fixes in ([], ["ckptdoctor fix sick.pt --strip-module"])


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_each_command_takes_its_part(one, other, capsys):
    """What comes out is that part, under the names of the target."""
    here = {**under(one, net()), **under(other, net())}
    found = findings(capsys, here, net())
    for prefix, command in zip((one, other), next(each["commands"] for each in found if each["commands"]), strict=True):
        assert run([*shlex.split(command)[1:], "-o", "well.pt", "--force"]) == 0
        well = torch.load("well.pt", weights_only=True)
        assert all(torch.equal(value, here[f"{prefix}.{key}"]) for key, value in well.items())


def test_parts_under_other_names_are_rivals_too(capsys):
    """A wrapper inside the keys, or a leaf of another name, hides no rival; not with --unsafe-fixes either."""
    here = {**under("student", net()), **under("teacher", net())}
    renamed = {key.replace("conv.weight", "_orig_mod.conv.gamma"): value for key, value in here.items()}
    said = next(each for each in findings(capsys, renamed, net()) if each["commands"])
    assert '"student." and "teacher."' in said["advice"]
    assert run(["fix", "sick.pt", "--auto", "--like", "target.pt", "--unsafe-fixes"]) == 1
    assert "more than one part fits target.pt" in capsys.readouterr().out


def test_one_part_that_is_there_twice_is_named_by_what_the_other_has(capsys):
    """Where the rest of the target fits as it is, the command keeps that beside the part."""
    rest = {"conv.weight": torch.rand(4, 3, 3, 3)}
    here = {**rest, "main.fc.weight": torch.rand(2, 4), "extra.fc.weight": torch.rand(2, 4)}
    said = next(each for each in findings(capsys, here, {**rest, "fc.weight": torch.rand(2, 4)}) if each["commands"])
    kept = [set(re.findall("--keep ('.*?')", each)) for each in said["commands"]]
    assert kept == [{"'conv.*'", "'main.*'"}, {"'conv.*'", "'extra.*'"}]
    for name, command in zip(("main", "extra"), said["commands"], strict=True):
        assert run([*shlex.split(command)[1:], "-o", "well.pt", "--force"]) == 0
        assert torch.equal(torch.load("well.pt")["fc.weight"], here[f"{name}.fc.weight"])


def test_a_prefix_of_the_target_has_rivals_too(capsys):
    """Bare weights for a target with two such parts: which of them they are the file does not tell."""
    found = findings(capsys, net(), {**under("student", net()), **under("teacher", net())})
    said = next(each for each in found if each["commands"])
    assert said["commands"] == [f"ckptdoctor fix sick.pt --add-prefix {each}." for each in ("student", "teacher")]
    assert all(each["fix"] is None for each in found)


def test_equal_parts_are_no_rivals(capsys):
    """The same tensors behind two prefixes: either will do."""
    weights = net()
    found = findings(capsys, {**under("online", weights), **under("target", weights)}, net())
    assert next(each["fix"]["safety"] for each in found if each["code"] == "N409") == "safe"


def test_equal_bytes_are_no_rivals_for_a_repair(capsys):
    """Copies without checksums, which safetensors has none of: fix reads them, and leaves one out."""
    weights = net()
    copies = {**under("online", weights), **under("target", {key: value.clone() for key, value in weights.items()})}
    save_file(copies, "sick.safetensors", metadata={"format": "pt"})
    torch.save(net(), "target.pt")
    assert run(["fix", "sick.safetensors", "--like", "target.pt", "-o", "well.pt"]) == 0
    assert torch.equal(torch.load("well.pt")["fc.weight"], weights["fc.weight"])


def test_a_part_that_names_tell_has_no_rival(capsys):
    """``enc`` is the encoder of the target, whatever else has its shapes."""
    here = {**under("enc", net()), **under("probe", net())}
    found = findings(capsys, here, under("encoder", net()))
    assert not any(each["commands"] for each in found if each["code"] != "R002")


@pytest.mark.parametrize("target", [True, False])
def test_each_of_several_sets_has_its_command(target, capsys):
    """Raw and averaged weights in dicts of their own, with and without a target."""
    torch.save({"model": net(), "model_ema": net(), "epoch": 3}, "sick.pt")
    torch.save(net(), "target.pt")
    run(["check", "sick.pt", "--format", "json", *(["--like", "target.pt"] if target else [])])
    commands = [
        line for each in json.loads(capsys.readouterr().out)["files"][0]["findings"] for line in each["commands"]
    ]
    more = " --auto --like target.pt" if target else ""
    assert sorted(set(commands)) == [f"ckptdoctor fix sick.pt --root {name}{more}" for name in ("model", "model_ema")]
    assert [run([*shlex.split(each)[1:], "-o", "well.pt", "--force"]) for each in sorted(set(commands))] == [0, 0]
