from __future__ import annotations

import datetime
import os
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from ckptdoctor.checkpoint import Role
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest, substitution
from tests.builders import saving_tags, tagged
from tests.repair.checkpoints import every_way, load, prefixed, save, training
from tests.repair.same import assert_same
from tests.writing.helpers import leftovers

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


def fixed(path: Path, **asked) -> Outcome:
    """The outcome of a repair; the original is proven to be untouched."""
    before = path.read_bytes()
    try:
        return repair(plan(FixRequest(str(path), **asked)))
    finally:
        assert path.read_bytes() == before
        assert leftovers(path.parent) == []


def stripped(checkpoint: dict, prefix: str) -> dict:
    """What torch itself makes of a state dict, and param_names without the prefix; everything else as it is."""
    consume_prefix_in_state_dict_if_present(checkpoint["state_dict"], prefix)
    for group in checkpoint["optimizer"]["param_groups"]:
        group["param_names"] = [name.removeprefix(prefix) for name in group["param_names"]]
    return checkpoint


@KINDS
def test_strip_module_gives_what_torch_gives(tmp_path: Path, legacy: bool):
    """Keys, _metadata and param_names lose the prefix; all else is the same, bit for bit, however it is loaded."""
    path = save(training("module"), tmp_path / "run.pt", legacy)
    outcome = fixed(path, strip_module=True)
    assert outcome.written is not None
    assert outcome.plan.output == str(tmp_path / "run.fixed.pt")
    wanted = stripped(load(path), "module.")
    for loaded in every_way(outcome.plan.output)[: 1 if legacy else None]:
        assert_same(loaded(), wanted)
    assert outcome.proof is not None
    assert outcome.proof.identical == outcome.proof.storages > 10


@KINDS
@pytest.mark.parametrize(
    "tokens",
    [
        ("module", "_orig_mod", "module"),
        ("_orig_mod", "module"),
        ("module", "module"),
        ("module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"),
    ],
)
def test_wrappers_inside_wrappers_come_out_clean(tmp_path: Path, tokens: tuple[str, ...], legacy: bool):
    """In one step when asked to, and rule by rule when nothing is named: the same file contents either way."""
    path = save(training(*tokens), tmp_path / "run.pt", legacy)
    wanted = training()
    one = fixed(path, strip_module=True)
    assert_same(load(one.plan.output)["state_dict"], wanted["state_dict"])
    assert load(one.plan.output)["optimizer"]["param_groups"][0]["param_names"][0] == "conv1.weight"
    other = fixed(path, output=str(tmp_path / "other.pt"))
    assert_same(load(other.plan.output)["state_dict"], wanted["state_dict"])


@KINDS
def test_to_cpu_changes_tags_and_nothing_else(tmp_path: Path, legacy: bool):
    """The file loads without map_location; a string "cpu" elsewhere stays what it was."""
    contents = training(device="cuda:0")
    contents["config"] = {"device": "cuda:0", "other": "cpu"}
    path = save(contents, tmp_path / "run.pt", legacy)
    outcome = fixed(path, to_cpu=True)
    assert_same(load(outcome.plan.output, map_location=None), load(path))
    assert {storage.device for storage in outcome.plan.expected.storages} == {"cpu"}
    assert outcome.plan.steps[0].changes[0].pairs == (("cuda:0", "cpu"),)


@KINDS
def test_with_nothing_named_every_safe_fix_is_applied(tmp_path: Path, legacy: bool):
    """Prefix, tags and objects at once; checking the result finds none of them."""
    path = save(training("module", device="cuda:1", args=True), tmp_path / "run.pt", legacy)
    outcome = fixed(path)
    labels = {step.label for step in outcome.plan.steps}
    assert {"N401"} <= labels
    assert labels & {"D601", "D602"}
    assert outcome.proof is not None
    assert not labels & {finding.code for finding in outcome.proof.findings}
    result = load(outcome.plan.output, map_location=None, weights_only=True)
    assert_same(result["state_dict"], training()["state_dict"])
    assert result["args"] == {"lr": 0.1, "data": "cpu"}
    assert torch.equal(result["view"], load(path)["view"])


def test_selected_rules_only(tmp_path: Path):
    """``--select D601`` retags and leaves the keys alone."""
    path = save(training("module", device="cuda:0"), tmp_path / "run.pt")
    outcome = fixed(path, selection=Selection(select=("D601",)))
    assert [step.label for step in outcome.plan.steps] == ["D601"]
    assert next(iter(load(outcome.plan.output)["state_dict"])).startswith("module.")


@KINDS
def test_where_nothing_asked_for_is_to_be_done_no_file_is_written(tmp_path: Path, legacy: bool):
    """Nothing to strip, nothing to retag, nothing that the rule finds."""
    path = save(training()["state_dict"], tmp_path / "model.pt", legacy)
    for asked in ({"strip_module": True, "to_cpu": True}, {"selection": Selection(select=("N401", "D"))}):
        assert fixed(path, **asked).written is None
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_healthy_file_is_not_written_again(tmp_path: Path):
    """With nothing named and nothing to fix there is no output."""
    path = save(training()["state_dict"], tmp_path / "model.pt")
    assert fixed(path).written is None
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_legacy_file_becomes_an_archive(tmp_path: Path):
    """C105, with nothing named: the same contents, in whatever way torch loads them."""
    path = save(training(), tmp_path / "run.pt", legacy=True)
    outcome = fixed(path, selection=Selection(select=("C105",)))
    assert outcome.plan.expected.format == "torch zip"
    for loaded in every_way(outcome.plan.output):
        assert_same(loaded(), load(path))
    assert outcome.proof is not None
    assert outcome.proof.identical == outcome.proof.storages


def test_keys_that_only_contain_module_are_not_touched(tmp_path: Path):
    """``encoder.mlp_module.layer0`` and ``encoder.module.conv`` stay; a prefix that is asked for goes."""
    weights = OrderedDict(
        (key, torch.zeros(2)) for key in ("encoder.mlp_module.layer0", "encoder.module.conv", "modules.w")
    )
    path = save(weights, tmp_path / "model.pt")
    assert fixed(path, strip_module=True).written is None
    outcome = fixed(path, renames=(substitution(r"^encoder\.module\.=encoder."),))
    assert list(load(outcome.plan.output)) == ["encoder.mlp_module.layer0", "encoder.conv", "modules.w"]


@KINDS
def test_prefixes_are_stripped_and_added(tmp_path: Path, legacy: bool):
    """With or without the dot; one undoes the other, byte for byte where no wrapper's entry is lost."""
    path = save(training()["state_dict"], tmp_path / "model.pt", legacy)
    there = fixed(path, add_prefix="net.backbone")
    assert_same(load(there.plan.output), prefixed_plain(load(path), "net.backbone."))
    back = fixed(Path(there.plan.output), strip_prefixes=("net.", "backbone"))
    assert Path(back.plan.output).read_bytes() == path.read_bytes()


def prefixed_plain(state_dict: OrderedDict, prefix: str) -> OrderedDict:
    made = OrderedDict((prefix + key, value) for key, value in state_dict.items())
    made._metadata = OrderedDict(((prefix + name).rstrip("."), value) for name, value in state_dict._metadata.items())
    return made


def test_a_prefix_that_no_key_has_is_refused_with_those_there_are(tmp_path: Path):
    """The nearest first."""
    path = save(training("model")["state_dict"], tmp_path / "model.pt")
    with pytest.raises(RefusedError, match=r'No key begins with "modle\."; there are model\., '):
        fixed(path, strip_prefixes=("modle",))
    with pytest.raises(RefusedError, match="matches no key"):
        fixed(path, renames=(substitution("xyz=abc"),))


def test_a_collision_is_refused_with_both_names_and_the_ways_out(tmp_path: Path):
    """Neither name is guessed."""
    weights = {"encoder.norm.weight": torch.zeros(1), "norm.weight": torch.ones(1), "encoder.fc": torch.ones(2)}
    path = save(weights, tmp_path / "model.pt")
    with pytest.raises(RefusedError) as caught:
        fixed(path, strip_prefixes=("encoder",))
    assert caught.value.message.split("\n") == [
        "--strip-prefix encoder. would give two keys one name",
        "  encoder.norm.weight  →  norm.weight",
        "  norm.weight          is already there",
        r"  instead: --rename 'encoder\.norm=enc_norm'",
    ]
    outcome = fixed(path, strip_prefixes=("encoder",), drop=("norm.weight",))
    assert_same(load(outcome.plan.output), {"norm.weight": torch.zeros(1), "fc": torch.ones(2)})
    outcome = fixed(path, output=str(tmp_path / "two.pt"), renames=(substitution(r"encoder\.norm=enc_norm"),))
    assert list(load(outcome.plan.output)) == ["enc_norm.weight", "norm.weight", "encoder.fc"]


@KINDS
def test_drop_takes_parts_of_the_tree_and_keys(tmp_path: Path, legacy: bool):
    """A whole optimizer with its storages, and keys by glob; everything else stays."""
    path = save(training(), tmp_path / "run.pt", legacy)
    outcome = fixed(path, drop=("optimizer", "head.*", "best"))
    wanted = load(path)
    del wanted["optimizer"], wanted["best"], wanted["state_dict"]["head.weight"], wanted["state_dict"]["head.bias"]
    for loaded in every_way(outcome.plan.output)[: 1 if legacy else None]:
        assert_same(loaded(), wanted)
    assert os.path.getsize(outcome.plan.output) < os.path.getsize(path)
    with pytest.raises(RefusedError, match=r"--drop hed\.\* matches nothing; the nearest names are head\.\w+, "):
        fixed(path, drop=("hed.*",))
    with pytest.raises(RefusedError, match="drop everything"):
        fixed(path, drop=("*",))


@KINDS
def test_keep_leaves_only_what_matches(tmp_path: Path, legacy: bool):
    """A key pattern thins its state dict; a path pattern thins everything beside it."""
    path = save(training(), tmp_path / "run.pt", legacy)
    outcome = fixed(path, keep=("conv1.*", "bn1.*"))
    wanted = load(path)
    for key in list(wanted["state_dict"]):
        if not key.startswith(("conv1", "bn1")):
            del wanted["state_dict"][key]
    assert_same(load(outcome.plan.output), wanted)
    outcome = fixed(path, output=str(tmp_path / "two.pt"), keep=("state_dict", "epoch"))
    wanted = load(path)
    assert_same(load(outcome.plan.output), {"state_dict": wanted["state_dict"], "epoch": 41})
    with pytest.raises(RefusedError, match=r"--keep hed\.\* matches nothing; the nearest names are head\.\w+, "):
        fixed(path, output=str(tmp_path / "three.pt"), keep=("epoch", "hed.*"))


def test_what_holds_no_names_is_no_obstacle(tmp_path: Path):
    """An object without attributes stays closed to patterns; an empty file has no names to offer."""
    path = save({"date": datetime.date(2026, 1, 1), "a": torch.ones(2), "b": torch.zeros(2)}, tmp_path / "run.pt")
    assert_same(load(fixed(path, drop=("b",)).plan.output), {"date": datetime.date(2026, 1, 1), "a": torch.ones(2)})
    with pytest.raises(RefusedError, match=r"--keep a matches nothing; \(root\) is empty\."):
        fixed(save({}, tmp_path / "empty.pt"), keep=("a",))


@KINDS
def test_a_part_becomes_the_whole(tmp_path: Path, legacy: bool):
    """``--root state_dict``, and then the options that follow speak of it."""
    path = save(training("module"), tmp_path / "run.pt", legacy)
    outcome = fixed(path, root="state_dict", strip_module=True)
    for loaded in every_way(outcome.plan.output)[: 1 if legacy else None]:
        assert_same(loaded(), stripped(load(path), "module.")["state_dict"])
    assert [each.role for each in outcome.plan.expected.state_dicts] == [Role.MODEL]


@KINDS
def test_options_combine_in_their_order(tmp_path: Path, legacy: bool):
    """Root, drop, strip, rename, add, to-cpu: each sees what the one before left."""
    path = save(training("module", device="cuda:0"), tmp_path / "run.pt", legacy)
    outcome = fixed(
        path,
        root="state_dict",
        drop=("module.none",),
        strip_module=True,
        renames=(substitution("^head=classifier"),),
        add_prefix="model",
        to_cpu=True,
    )
    labels = [step.label.split()[0] for step in outcome.plan.steps]
    assert labels == ["--root", "--drop", "--strip-module", "--rename", "--add-prefix", "--to-cpu"]
    loaded = load(outcome.plan.output, map_location=None)
    assert {"model.classifier.weight", "model.mlp_module.2.weight"} <= set(loaded)
    assert "model.none" not in loaded
    assert loaded["model.classifier.weight"].data_ptr() == loaded["model.mlp_module.2.weight"].data_ptr()


def test_model_and_ema_are_both_renamed(tmp_path: Path):
    """Optimizer internals never are."""
    run = training("module")
    run["ema"] = prefixed(training()["state_dict"], "module")
    path = save(run, tmp_path / "run.pt")
    result = load(fixed(path, strip_module=True).plan.output)
    assert list(result["ema"]) == list(result["state_dict"])
    assert not any(key.startswith("module.") for key in result["ema"])
    assert_same(result["optimizer"]["state"], load(path)["optimizer"]["state"])


def test_safetensors_keys_are_renamed_in_the_header_alone(tmp_path: Path):
    """The data section is copied byte for byte, metadata included."""
    tensors = {f"module.{key}": value.clone() for key, value in training()["state_dict"].items()}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt", "note": "ü"})
    outcome = fixed(path, strip_module=True)
    result = load_file(outcome.plan.output)
    assert_same({key: result[key] for key in sorted(result)}, {k[7:]: tensors[k] for k in sorted(tensors)})
    with safe_open(outcome.plan.output, "pt") as file:
        assert file.metadata() == {"format": "pt", "note": "ü"}
    assert outcome.proof is not None
    assert outcome.proof.identical == outcome.proof.storages


def test_safetensors_gets_its_missing_format(tmp_path: Path):
    """M971, with nothing named."""
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(3)}, path)
    outcome = fixed(path)
    with safe_open(outcome.plan.output, "pt") as file:
        assert file.metadata() == {"format": "pt"}


@KINDS
def test_bloated_storages_shrink_and_ties_stay(tmp_path: Path, legacy: bool):
    """A705: slices of large tensors are saved with all of them; values, ties and strides survive the fix."""
    base = torch.arange(100_000, dtype=torch.float32)
    grid = torch.arange(40_000, dtype=torch.int16).view(200, 200)
    contents = {
        "a": base[10:20],
        "same": base[10:20],
        "b": base[50_000:50_100].view(10, 10).t(),
        "row": grid[3],
        "strided": grid[:40:2, ::50],
        "empty": base[7:7],
    }
    path = save(contents, tmp_path / "slices.pt", legacy)
    outcome = fixed(path, selection=Selection(select=("A705",)))
    assert outcome.proof is not None
    assert outcome.proof.shrunk > 0
    result = load(outcome.plan.output)
    for key, tensor in contents.items():
        assert torch.equal(result[key], tensor), key
        assert result[key].stride() == tensor.stride()
    assert result["a"].data_ptr() == result["same"].data_ptr()
    assert os.path.getsize(outcome.plan.output) < os.path.getsize(path) / 3


@KINDS
def test_slices_that_are_transposed_too_are_traced_to_their_bytes(tmp_path: Path, legacy: bool):
    """A705 and A707 at once: shrunk first, then put in order; what was made of which bytes is still proven."""
    base, other = torch.arange(100_000, dtype=torch.float32), torch.arange(90_000.0)
    contents = {"a": base[5:10], "t": other[50_000:50_600].view(20, 30).t(), "c": torch.arange(12.0).view(3, 4).t()}
    contents["wide"] = torch.arange(12.0).to(torch.complex128).view(3, 4).t()
    contents["expanded"] = torch.arange(3, dtype=torch.int8).view(3, 1).expand(3, 5)
    path = save(contents, tmp_path / "slices.pt", legacy)
    outcome = fixed(path, selection=Selection(select=("A705", "A707")), unsafe=True)
    assert {step.label for step in outcome.plan.steps} == {"A705", "A707"}
    assert outcome.proof is not None
    assert (outcome.proof.storages, outcome.proof.shrunk, outcome.proof.remade) == (5, 1, 3)
    result = load(outcome.plan.output)
    for key, tensor in contents.items():
        assert torch.equal(result[key], tensor), key
        assert result[key].is_contiguous() or key == "expanded"  # whose elements others see too: it is left alone


KEYS = st.lists(st.sampled_from("abcmodule"), min_size=1, max_size=3).map(".".join)


@given(
    keys=st.lists(KEYS, min_size=1, max_size=8, unique=True),
    tokens=st.lists(st.sampled_from(["module", "_orig_mod", "model"]), max_size=3),
    nested=st.booleans(),
    legacy=st.booleans(),
    pick=st.integers(0, 5),
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_repair_is_what_torch_sees(tmp_path: Path, keys, tokens, nested: bool, legacy: bool, pick: int):
    """Random keys, wrappers, layouts and options: the loaded result is the loaded original, changed as asked."""
    weights = prefixed_plain(with_metadata(keys), "".join(f"{token}." for token in tokens))
    path = save({"state_dict": weights, "epoch": 3} if nested else weights, tmp_path / "random.pt", legacy)
    change, asked = [
        (lambda key: f"net.{key}", {"add_prefix": "net"}),
        (lambda key: key.replace("a", "xx"), {"renames": (substitution("a=xx"),)}),
        (lambda key: f"{key}.end", {"renames": (substitution(r"$=.end"),)}),
        (lambda key: ".".join(reversed(key.split("."))), {}),
        (lambda key: key.removeprefix("module."), {"strip_prefixes": ("module",)}),
        (lambda key: key, {"strip_module": True}),
    ][pick]
    try:
        outcome = fixed(path, output=str(tmp_path / "out.pt"), force=True, **asked)
    except RefusedError:
        return
    if outcome.written is None or pick in (3, 5):
        return
    result, original = load(outcome.plan.output), load(path)
    result, original = (result["state_dict"], original["state_dict"]) if nested else (result, original)
    assert list(result) == [change(key) for key in original]
    assert [tensor.tolist() for tensor in result.values()] == [tensor.tolist() for tensor in original.values()]


def with_metadata(keys: list[str]) -> OrderedDict:
    made = OrderedDict((key, torch.full((index + 1,), float(index))) for index, key in enumerate(keys))
    made._metadata = OrderedDict({"": {"version": 1}})
    for key in keys:
        made._metadata.setdefault(key.rpartition(".")[0], {"version": 2})
    return made


def test_the_output_is_refused_when_it_exists_and_the_original_when_it_is_the_output(tmp_path: Path):
    """Both stay as they were; with force the original is replaced by the verified repair."""
    path = save(training("module"), tmp_path / "run.pt")
    (tmp_path / "run.fixed.pt").write_bytes(b"mine")
    with pytest.raises(WriteError, match="already exists"):
        fixed(path, strip_module=True)
    with pytest.raises(WriteError, match="is the original itself"):
        fixed(path, strip_module=True, output=str(path))
    assert (tmp_path / "run.fixed.pt").read_bytes() == b"mine"
    repair(plan(FixRequest(str(path), strip_module=True, output=str(path), force=True)))
    assert "conv1.weight" in load(path)["state_dict"]


def test_a_file_with_several_names_is_not_replaced(tmp_path: Path):
    """The other name would keep the old contents: both stay as they are."""
    path = save(training("module"), tmp_path / "run.pt")
    os.link(path, tmp_path / "best.pt")
    before = path.read_bytes()
    with pytest.raises(WriteError, match="hard links"):
        fixed(path, output=str(path), force=True, strip_module=True)
    assert path.read_bytes() == before and os.path.samefile(path, tmp_path / "best.pt")


def test_a_file_that_changed_after_the_plan_is_not_repaired(tmp_path: Path):
    """The plan was made for other bytes."""
    path = save(training("module"), tmp_path / "run.pt")
    planned = plan(FixRequest(str(path), strip_module=True))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(WriteError, match="changed"):
        repair(planned)
    assert os.listdir(tmp_path) == ["run.pt"]


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_and_their_scales_move_to_the_cpu(tmp_path: Path):
    """A per-channel quantized tensor has a storage of its own and parts with theirs: all are retagged, and verified."""
    values = torch.arange(12.0).reshape(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3)
    with saving_tags():
        quantized = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
        torch.save({"q": tagged(quantized, "cuda:0"), "w": tagged(torch.ones(2), "cuda:0")}, tmp_path / "q.pt")
    outcome = fixed(tmp_path / "q.pt", to_cpu=True)
    result = torch.load(outcome.plan.output, weights_only=True)
    assert torch.equal(result["q"].int_repr(), quantized.int_repr())
