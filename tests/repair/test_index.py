"""The index of a folder of shards, written anew."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import ckptdoctor
from ckptdoctor.cli.fix import command
from ckptdoctor.converting.repaired import carry_out
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.examine.file import check
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.writing import Literal, Recipe
from tests.libraries import real, transformers

INDEX = "model.safetensors.index.json"
FIXED = "model.safetensors.index.fixed.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
WHERE = {"a.weight": ONE, "a.bias": ONE, "b.weight": TWO, "b.bias": TWO}


def folder(path, where=None, total=48, extra=None, **metadata):
    """Two shards and an index that says ``where``; ``extra`` tensors are in the second."""
    path.mkdir(exist_ok=True)
    save_file({"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}, path / ONE, {"format": "pt"})
    second = {"b.weight": torch.full((2, 2), 2.0), "b.bias": torch.zeros(2), **(extra or {})}
    save_file(second, path / TWO, {"format": "pt"})
    said = {"metadata": {"total_size": total, **metadata}, "weight_map": WHERE if where is None else where}
    (path / INDEX).write_text(json.dumps(said))
    return path


def fixed(path, **options):
    """What became of it."""
    return repair(plan(FixRequest(str(path), **options)))


def codes(path):
    return [finding.code for finding in check(str(path)).findings]


def test_beside_the_old_one(tmp_path):
    """By default nothing that is there changes, and the new index is one that transformers reads as a variant."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO})
    before = (path / INDEX).read_bytes()
    outcome = fixed(path)
    assert outcome.plan.output == str(path / FIXED)
    assert (path / INDEX).read_bytes() == before
    assert json.loads((path / FIXED).read_text()) == {"metadata": {"total_size": 48}, "weight_map": WHERE}
    assert (outcome.proof.findings, outcome.report.replaces_original) == ((), False)
    with pytest.raises(WriteError, match="exists"):
        fixed(path, output=str(path / FIXED))


def test_in_place(tmp_path):
    """With force the folder is healthy at once, and what the old index said is kept."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO}, total=1)
    before = (path / INDEX).read_bytes()
    outcome = fixed(path, force=True)
    assert (outcome.plan.output, outcome.report.replaces_original) == (str(path / INDEX), True)
    assert (path / f"{INDEX}.bak").read_bytes() == before
    assert codes(path) == []
    assert fixed(path, force=True).written is None
    assert sorted(os.listdir(path)) == [ONE, TWO, INDEX, f"{INDEX}.bak"]


def test_an_index_that_was_kept_before_stays(tmp_path):
    """A second repair in place would take its name: it is refused, and nothing changes."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO})
    (path / f"{INDEX}.bak").write_text("precious", encoding="utf-8")
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    with pytest.raises(WriteError, match=r"index\.json\.bak, which already exists; move that away, or use -o"):
        fixed(path, force=True)
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


def test_elsewhere(tmp_path):
    """An output that is a folder takes the index under its own name; any other output is its name."""
    path = folder(tmp_path / "f", total=1)
    (tmp_path / "out").mkdir()
    assert fixed(path, output=str(tmp_path / "out")).plan.output == str(tmp_path / "out" / INDEX)
    assert fixed(path, output=str(tmp_path / "new.json")).plan.output == str(tmp_path / "new.json")
    assert (tmp_path / "new.json").read_bytes() == (tmp_path / "out" / INDEX).read_bytes()


@pytest.mark.parametrize(
    ("code", "where", "extra"),
    [
        ("X804", WHERE | {"a.bias": TWO}, {}),
        ("X805", WHERE, {"b.scale": torch.ones(2)}),
        ("X803", dict.fromkeys(WHERE, "model-00001-of-00003.safetensors"), {}),
    ],
)
def test_every_rule(code, where, extra, tmp_path):
    """Each of the rules about indexes is healed by its own repair."""
    path = folder(tmp_path / "f", where, extra=extra)
    assert code in codes(path)
    result = CliRunner().invoke(command, [str(path), "--select", code, "--force"], standalone_mode=False)
    assert result.exception is None
    assert codes(path) == []


@pytest.mark.parametrize("total", [48, 24])
def test_an_index_that_omits_a_whole_shard(total, tmp_path):
    """The tensors of the shard are reported, whatever the index counts, and the new index names them."""
    path = folder(tmp_path / "f", {key: TWO for key in WHERE if WHERE[key] == TWO}, total, total_parameters=12)
    found = {finding.code: finding for finding in check(str(path)).findings}
    assert list(found) == ["X805"]
    assert found["X805"].message == f"{INDEX} does not name a.bias, a.weight, which are in {ONE}"
    fixed(path, force=True)
    assert json.loads((path / INDEX).read_text()) == {
        "metadata": {"total_size": 48, "total_parameters": 12},
        "weight_map": WHERE,
    }
    assert codes(path) == []


def test_an_index_that_omits_a_shard_and_more(tmp_path):
    """Both places are named: the files that it names, and the one that it does not."""
    where = {"b.weight": TWO}
    (finding,) = check(str(folder(tmp_path / "f", where))).findings
    assert finding.message == f"{INDEX} does not name b.bias, a.bias, a.weight, which are in its files and in {ONE}"


def test_an_index_that_is_no_json(tmp_path):
    """Numbered shards that are all there say what it should be."""
    path = folder(tmp_path / "f")
    (path / INDEX).write_bytes(b"{")
    fixed(path, force=True)
    assert json.loads((path / INDEX).read_text())["weight_map"] == WHERE
    (path / INDEX).write_bytes(b"{")
    (path / ONE).unlink()
    assert fixed(path).written is None


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"weight_map": WHERE | {"a.bias": TWO}}, "a.bias is in"),
        ({"weight_map": WHERE | {"a.bias": "none.safetensors"}}, r"none\.safetensors is missing"),
        ({"weight_map": dict.fromkeys(WHERE, "none.safetensors")}, r"names none\.safetensors, which is missing"),
        ({"weight_map": {key: WHERE[key] for key in WHERE if key != "a.bias"}}, r"does not name a\.bias"),
        ({"weight_map": WHERE | {"c": ONE}}, "names c, which is in none of the files"),
        ({"weight_map": WHERE, "metadata": {"total_size": 47}}, "counts 47 bytes of tensors, but there are 48"),
        ("weight_map", "has no weight_map"),
    ],
)
def test_an_index_that_is_not_right_is_thrown_away(tmp_path, said, wrong):
    """Whatever the writer got wrong: a tensor in another shard, in one that is not there, too few, too many, a size."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO}, total=1)
    planned = plan(FixRequest(str(path)))
    recipe = Recipe(planned.recipe.source, (Literal(json.dumps(said).encode()),))
    with pytest.raises(WriteError, match=rf"The new index is not right either \(.*{wrong}.*\), and was discarded"):
        repair(replace(planned, recipe=recipe))
    assert sorted(os.listdir(path)) == [ONE, TWO, INDEX]


def test_an_index_under_which_a_tensor_is_another_is_thrown_away(tmp_path):
    """A shard that has changed since the plan was made holds other tensors."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO})
    planned = plan(FixRequest(str(path)))
    save_file({"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2).half()}, path / ONE, {"format": "pt"})
    with pytest.raises(WriteError, match=r"a\.bias.* would be another tensor"):
        repair(planned)
    assert not (path / FIXED).exists()


def test_what_the_old_one_says_besides(tmp_path):
    """Its other metadata stays, and numbers that programs compute are computed."""
    path = folder(tmp_path / "f", total=1, total_parameters=3, by="me")
    fixed(path, force=True)
    assert json.loads((path / INDEX).read_text())["metadata"] == {"total_size": 48, "total_parameters": 12, "by": "me"}


@pytest.mark.parametrize("sick", ["twice", "missing", "nowhere"])
def test_what_no_index_can_say(sick, tmp_path):
    """A tensor in two shards, one in none, a shard that is missing: nothing is offered, and nothing is done."""
    extra = {"a.bias": torch.zeros(2)} if sick == "twice" else {}
    where = WHERE | {"b.bias": ONE} | ({"c": TWO} if sick == "nowhere" else {})
    path = folder(tmp_path / "f", where, extra=extra)
    if sick == "missing":
        (path / ONE).unlink()
    assert all(finding.fix is None for finding in check(str(path)).findings)
    assert fixed(path).written is None


def test_the_shards_stay_as_they_are(tmp_path):
    """Repairs of what is in them are left, and refused where they are asked for by name."""
    path = tmp_path / "f"
    folder(path)
    save_file({"module.a": torch.ones(2)}, path / ONE)
    save_file({"module.b": torch.ones(2)}, path / TWO)
    (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"module.a": TWO, "module.b": ONE}}))
    outcome = fixed(path)
    assert [step.label for step in outcome.plan.steps] == ["X804"]
    assert [finding.code for finding in outcome.proof.findings] == ["N401", "M970"][: len(outcome.proof.findings)]
    assert all(finding.fix is None for finding in outcome.proof.findings)
    with pytest.raises(RefusedError, match=r"folder of several files(?s:.*) --strip-module -o .*f\.fixed/"):
        fixed(path, strip_module=True)
    said = CliRunner().invoke(command, [str(path), "--strip-module", "-o", f"{path}.fixed/"])
    assert said.exit_code == 0, said.output
    assert sorted(ckptdoctor.load(f"{path}.fixed")) == ["a", "b"]


@pytest.mark.parametrize("output", ["new/", "new.safetensors", "new.pt"])
@pytest.mark.parametrize("options", [[], ["--select", "X804", "--strip-module"]])
def test_with_an_output_of_their_own_shards_and_index_are_repaired_together(tmp_path, options, output):
    """The folder that is written is healthy, and so is a file; the index of the old one stays as it is."""
    path = tmp_path / "f"
    folder(path)
    save_file({"module.a": torch.ones(2)}, path / ONE)
    save_file({"module.b": torch.full((2,), 3.0)}, path / TWO)
    (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"module.a": TWO, "module.b": ONE}}))
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    said = CliRunner().invoke(command, [str(path), *options, "-o", f"{tmp_path}/{output}"], standalone_mode=False)
    assert said.exception is None and "X804" in said.stdout and "index.json.bak" not in said.stdout
    got = ckptdoctor.load(str(tmp_path / output.rstrip("/")))
    assert {key: value.tolist() for key, value in got.items()} == {"a": [1.0, 1.0], "b": [3.0, 3.0]}
    assert codes(tmp_path / output) == []
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


def test_the_command_that_repairs_shards_and_index_is_told(tmp_path):
    """Where the folder itself cannot be repaired, what is named writes another; it does what it says."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO})
    with pytest.raises(RefusedError, match=r"f\.fixed/$") as told:
        fixed(path, selection=Selection(("X804",)), add_prefix="net.")
    words = shlex.split(told.value.message.splitlines()[-1])
    assert words[:2] == ["ckptdoctor", "fix"]
    assert CliRunner().invoke(command, words[2:]).exit_code == 0
    assert sorted(ckptdoctor.load(f"{path}.fixed")) == sorted(f"net.{key}" for key in WHERE)


@pytest.mark.parametrize("where", [dict.fromkeys(WHERE, "model-00001-of-00003.safetensors"), {"a.bias": ONE}, None])
def test_whatever_is_wrong_with_the_index_a_folder_of_its_own_has_a_right_one(tmp_path, where):
    """The index of another save, one that names too little, and one that is no JSON; of shards that stay shards."""
    path = folder(tmp_path / "f", where, total=1)
    if where is None:
        (path / INDEX).write_bytes(b"{")
    repaired = plan(FixRequest(str(path), f"{tmp_path}/new/"))
    assert repaired.index is None and [step.name for step in repaired.steps]
    carry_out(repaired)
    assert codes(tmp_path / "new") == []
    got, wanted = ckptdoctor.load(str(tmp_path / "new")), load_file(path / ONE) | load_file(path / TWO)
    assert got.keys() == wanted.keys() and all(torch.equal(got[key], wanted[key]) for key in got)


def test_a_file_beside_the_shards(tmp_path):
    """A numbered file that no index names does not come into it."""
    path = folder(tmp_path / "f", WHERE | {"a.bias": TWO})
    save_file({"other": torch.ones(2)}, path / "model-00003-of-00002.safetensors")
    fixed(path, force=True)
    assert json.loads((path / INDEX).read_text())["weight_map"] == WHERE


def test_shards_of_torch(tmp_path):
    """pytorch_model.bin in parts has an index of the same kind."""
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    torch.save(
        {"a": torch.ones(2), "s": torch.eye(2).to_sparse(), "m": torch.ones(2, device="meta")}, tmp_path / names[0]
    )
    torch.save({"b": torch.ones(2)}, tmp_path / names[1])
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": dict.fromkeys("asmb", names[1])}))
    fixed(tmp_path, force=True)
    assert json.loads(index.read_text())["weight_map"] == {**dict.fromkeys("asm", names[0]), "b": names[1]}


@real
def test_transformers_loads_it(tmp_path):
    """What could not be loaded is loaded, in place or as a variant."""
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=64, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "m", max_shard_size="4KB")
    index = tmp_path / "m" / INDEX
    said = json.loads(index.read_text())
    files = sorted(set(said["weight_map"].values()))
    said["weight_map"] = dict.fromkeys(said["weight_map"], files[0])
    index.write_text(json.dumps(said))
    fixed(tmp_path / "m")
    variant = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m", variant="fixed").state_dict()
    assert all(torch.equal(variant[key], value) for key, value in model.state_dict().items())
    fixed(tmp_path / "m", force=True)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m").state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())


def test_what_is_said(tmp_path):
    """The name of the new index, what is next, and that the old one is kept."""
    folder(tmp_path / "f", total=1)
    said = CliRunner().invoke(command, [str(tmp_path / "f")], standalone_mode=False).stdout
    assert said.splitlines()[-1] == f"next · mv {tmp_path}/f/{FIXED} {tmp_path}/f/{INDEX}"
    said = CliRunner().invoke(command, [str(tmp_path / "f"), "--force"], standalone_mode=False).stdout
    assert f"the old one is kept as {tmp_path}/f/{INDEX}.bak" in said
    assert said.splitlines()[-1] == f'next · AutoModel.from_pretrained("{tmp_path}/f/")'


@pytest.mark.parametrize("sick", ["no index", "no metadata"])
@real
def test_shards_that_transformers_does_not_load(sick, tmp_path):
    """It requires an index, and metadata in that; with the new index it loads every tensor."""
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=64, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "m", max_shard_size="4KB")
    index = tmp_path / "m" / INDEX
    said = json.loads(index.read_text())
    index.unlink()
    if sick == "no metadata":
        index.write_text(json.dumps({"weight_map": said["weight_map"]}))
    with pytest.raises((OSError, KeyError), match=r"no file named|metadata"):
        transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m")
    assert codes(tmp_path / "m") == ["X804"]
    result = CliRunner().invoke(command, [str(tmp_path / "m"), "--force"], standalone_mode=False)
    assert result.exception is None
    assert result.stdout.splitlines()[-1] == f'next · AutoModel.from_pretrained("{tmp_path}/m/")'
    assert (tmp_path / "m" / f"{INDEX}.bak").exists() is (sick == "no metadata")
    assert json.loads(index.read_text())["weight_map"] == said["weight_map"] and codes(tmp_path / "m") == []
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m").state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())


def test_paths_into_the_folder_are_names_in_it(tmp_path):
    """They are followed, and one that only begins like the folder's is not."""
    path = folder(tmp_path / "f")
    for where, found in ((tmp_path / "f", []), (tmp_path / "f2", ["X801", "X803"])):
        table = {key: str(where / file) for key, file in WHERE.items()}
        (path / INDEX).write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": table}))
        assert sorted(set(codes(path))) == found


@real
def test_an_index_with_paths_into_its_own_folder(tmp_path):
    """transformers follows them, and so does ckptdoctor; a path to elsewhere is still not followed."""
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=64, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "m", max_shard_size="4KB")
    wanted = ckptdoctor.load(tmp_path / "m")
    index = tmp_path / "m" / INDEX
    said = json.loads(index.read_text())
    said["weight_map"] = {key: str(tmp_path / "m" / file) for key, file in said["weight_map"].items()}
    index.write_text(json.dumps(said))
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m").state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())
    assert codes(tmp_path / "m") == []
    got = ckptdoctor.load(tmp_path / "m")
    assert got.keys() == wanted.keys() and all(torch.equal(got[key], wanted[key]) for key in got)
    (tmp_path / "m").rename(tmp_path / "elsewhere")
    assert "X801" in codes(tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["model", "model.fp16", "diffusion_pytorch_model", "other"])
def test_a_new_index_has_the_name_that_is_looked_for(name, tmp_path):
    """Where there is none it is written at once, and nothing is said to be kept; of other shards none is missed."""
    stem, dot, variant = name.partition(".")
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.ones(2)}, tmp_path / f"{name}-00001-of-00002.safetensors", {"format": "pt"})
    save_file({"b": torch.ones(2)}, tmp_path / f"{name}-00002-of-00002.safetensors", {"format": "pt"})
    assert codes(tmp_path) == ([] if name == "other" else ["X804"])
    if name != "other":
        result = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False)
        assert result.exception is None and ".bak" not in result.stdout
        assert result.stdout.splitlines()[-1] == f'next · AutoModel.from_pretrained("{tmp_path}/")'
        assert (tmp_path / f"{stem}.safetensors.index{dot}{variant}.json").is_file()
    (tmp_path / "config.json").unlink()
    for index in tmp_path.glob("*.index*.json"):
        index.unlink()
    assert codes(tmp_path) == []
