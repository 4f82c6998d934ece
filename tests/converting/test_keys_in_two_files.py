"""A key in two shards: where the values differ nothing is made of it, and nothing calls it identical in silence."""

from __future__ import annotations

import json
import shlex

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.examine.file import check
from tests.commands import run_here
from tests.libraries import real, transformers

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def shards(folder, first, second, where):
    folder.mkdir()
    save_file(first, folder / ONE, {"format": "pt"})
    save_file(second, folder / TWO, {"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))


@pytest.fixture
def twice(tmp_path):
    """Two shards that both have a, with other values, next to what each has alone."""
    first, second = {"a": torch.zeros(2), "b": torch.ones(3)}, {"a": torch.ones(2), "c": torch.ones(4)}
    shards(tmp_path / "f", first, second, {"a": ONE, "b": ONE, "c": TWO})
    return tmp_path


@pytest.mark.parametrize(
    "way",
    [
        ["convert", "f", "out.pt"],
        ["convert", "f", "out.safetensors"],
        ["convert", "f", "out", "--to", "dcp"],
        ["merge", "f", "-o", "out.safetensors"],
        ["fix", "f", "--add-prefix", "m.", "-o", "out/"],
    ],
)
def test_nothing_is_made_of_values_that_differ(twice, way):
    """The key and both files are named, and nothing is written."""
    done = run_here(*way, cwd=twice)
    assert done.returncode != 0
    said = (done.stdout + done.stderr).decode()
    assert f'"a" is in {ONE} and in {TWO}, with different values. What to do: ckptdoctor check f' in " ".join(
        said.split()
    )
    assert [each.name for each in twice.iterdir()] == ["f"]


def test_what_is_left_out_may_differ(twice):
    """A key that is dropped is in no doubt."""
    done = run_here("fix", "f", "--drop", "a", "-o", "out.pt", cwd=twice)
    assert done.returncode == 0, done.stderr.decode()
    assert set(torch.load(twice / "out.pt")) == {"b", "c"}


def test_the_same_values_are_one(tmp_path):
    """The bytes are compared, and what both say is written once."""
    first, second = {"a": torch.ones(2), "b": torch.ones(3)}, {"a": torch.ones(2), "c": torch.ones(4)}
    shards(tmp_path / "f", first, second, {"a": ONE, "b": ONE, "c": TWO})
    done = run_here("convert", "f", "out.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert set(torch.load(tmp_path / "out.pt")) == {"a", "b", "c"}


def test_values_of_torch_that_are_no_tensors_count_too(tmp_path):
    """Numbers in two files of torch are compared as well."""
    for number, step in ((1, 3), (2, 4)):
        torch.save({"step": step, f"w{number}": torch.ones(2)}, tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
    done = run_here("convert", ".", "out.pt", cwd=tmp_path)
    assert done.returncode != 0 and b'"step" is in' in done.stderr + done.stdout


@pytest.mark.parametrize("options", [[], ["--values"]])
def test_diff_names_the_key(twice, options):
    """One of the values is compared; that is in the summary, and in every format."""
    first, second = {"a": torch.zeros(2), "b": torch.ones(3)}, {"c": torch.ones(4)}
    shards(twice / "g", first, second, {"a": ONE, "b": ONE, "c": TWO})
    text = run_here("diff", "g", "f", *options, cwd=twice)
    assert b"B has the same key in several files, and one of them was compared" in b" ".join(text.stdout.split())
    assert f"B: {ONE}, {TWO} both hold a".encode() in text.stderr
    said = json.loads(run_here("diff", "g", "f", *options, "--format", "json", cwd=twice).stdout)
    assert f"B: {ONE}, {TWO} both hold a" in json.dumps(said)


def advice(folder):
    """What check says to do about X806."""
    (finding,) = [each for each in check(str(folder)).findings if each.code == "X806"]
    return finding.advice


def test_the_printed_command_repairs_the_folder(twice):
    """A file with tensors of its own stays: only the key leaves it."""
    told = advice(twice / "f")
    assert "Each of the files has other tensors" in told
    words = shlex.split(told[told.index("ckptdoctor ") :])[1:]
    assert run_here(*words, cwd=twice).returncode == 0
    (fixed,) = (twice / "f").glob("*.fixed.safetensors")
    fixed.replace(twice / "f" / TWO)
    assert run_here("convert", "f", "out.pt", cwd=twice).returncode == 0
    assert torch.load(twice / "out.pt")["a"].tolist() == [0.0, 0.0]


def test_a_file_of_which_others_have_all_may_go(twice):
    """A merged file among its shards is named."""
    save_file({"a": torch.ones(2)}, twice / "f" / TWO, {"format": "pt"})
    wanted = f"Other files have all tensors of {TWO}: if it is left over, move it out of the folder."
    assert advice(twice / "f") == wanted


@real
def test_transformers_takes_the_value_of_the_last_file(tmp_path):
    """That is why the value that the index names is not simply taken."""
    from safetensors.torch import load_file

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=64, n_positions=8)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "m", max_shard_size="4KB")
    index = json.loads((tmp_path / "m" / INDEX).read_text())["weight_map"]
    key = "transformer.h.0.attn.c_attn.bias"
    last = sorted(set(index.values()))[-1]
    assert index[key] != last
    wrong = load_file(tmp_path / "m" / index[key])[key] + 1
    save_file({**load_file(tmp_path / "m" / last), key: wrong}, tmp_path / "m" / last, {"format": "pt"})
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m").state_dict()
    assert torch.equal(loaded[key], wrong)
