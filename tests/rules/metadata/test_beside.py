"""M972 and M974–M979: metadata, configs and texts around the weights."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ckptdoctor import formats
from ckptdoctor.brief import in_full
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Safety, SetMetadata, TextMetadata
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.builders import build
from tests.libraries import real, transformers
from tests.rules.examined import find_one, found, loads, safetensors_error, sick


@pytest.mark.parametrize("example", sick("M972"), ids=lambda example: example.title)
def test_metadata_that_is_not_text(tmp_path, example):
    """safetensors refuses it in these words; C110 does not say it again."""
    finding = find_one(example, tmp_path, "M972")
    path = build(example, tmp_path)
    assert finding.torch_says[0] in safetensors_error(path)
    assert "step" in finding.message
    assert found(path, "C110") == []


def test_many_entries_that_are_not_text(tmp_path):
    """A flood is a few findings, all of one rule."""
    text = json.dumps({"__metadata__": {str(index): index for index in range(100)}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    assert len(found(path, "M972")) < 10
    assert found(path, "C110") == []


def test_both_kinds_of_faults_are_told_apart(tmp_path):
    """The metadata by one rule, an unknown dtype by the other."""
    text = b'{"__metadata__":{"step":1},"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}'
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    assert len(found(path, "M972")) == len(found(path, "C110")) == 1


@pytest.fixture
def saved(tmp_path):
    """A small Llama as transformers saves it."""
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=50,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def change(folder, **fields):
    """Give the config other values."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2) + "\n")


@real
def test_a_config_of_another_vocabulary(saved):
    """transformers refuses the sizes; the finding names the line to change, and changing it fixes the problem."""
    weights = saved / "model.safetensors"
    assert found(weights, "M974") == found(weights, "M975") == []
    change(saved, vocab_size=51)
    (finding,) = found(weights, "M974")
    with pytest.raises(RuntimeError, match="ize"):
        transformers.LlamaForCausalLM.from_pretrained(saved)
    lines = (saved / "config.json").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "vocab_size" in line)
    assert f'write "vocab_size": 50 in line {number} of {saved / "config.json"}' in finding.advice
    change(saved, vocab_size=50)
    assert found(weights, "M974") == []


@real
def test_a_config_of_another_dtype(saved):
    """Information, with the line to change."""
    name = "dtype" if "dtype" in json.loads((saved / "config.json").read_text()) else "torch_dtype"
    change(saved, **{name: "bfloat16"})
    (finding,) = found(saved / "model.safetensors", "M975")
    assert finding.severity is Severity.INFO
    assert f'write "{name}": "float32" in line ' in finding.advice


def test_a_checkpoint_to_resume_from(tmp_path):
    """Anything beside the states tells of the run; a scheduler knows its epoch."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    path = tmp_path / "a.pt"
    for more, said in (({}, 1), ({"epoch": 3}, 0), ({"args": {}}, 0), ({"scheduler": scheduler.state_dict()}, 0)):
        torch.save({**states, **more}, path)
        assert len(found(path, "M976")) == said
    torch.save(model.state_dict(), path)
    assert found(path, "M976") == []


@pytest.mark.parametrize("example", sick("M977"), ids=lambda example: example.title)
def test_a_secret_is_never_shown(tmp_path, example):
    """Neither it nor the user's name stands anywhere in the finding."""
    finding = find_one(example, tmp_path, "M977")
    assert "abcdefgh" not in in_full(finding)
    assert "correcthorse" not in in_full(finding)
    assert "maria" not in in_full(finding)


def test_a_secret_is_removed(tmp_path):
    """From plain data and from metadata, and nothing else with it."""
    path = build(sick("M977")[0], tmp_path)
    request = FixRequest(str(path), output=str(tmp_path / "o.pt"), selection=Selection(select=("M977",)), unsafe=True)
    repair(plan(request))
    assert loads(tmp_path / "o.pt")["args"] == {"lr": 0.1, "hub_token": "(removed)"}
    assert b"abcdefgh" not in (tmp_path / "o.pt").read_bytes()
    path = build(sick("M977")[2], tmp_path)
    out = tmp_path / "o.safetensors"
    repair(plan(FixRequest(str(path), output=str(out), selection=Selection(select=("M977",)), unsafe=True)))
    assert b"correcthorse" not in out.read_bytes()
    assert list(load_file(out)) == ["w"]


def test_a_secret_in_an_object_is_told_without_a_fix(tmp_path):
    """Objects are not changed inside; the finding is the same."""
    import argparse

    torch.save({"w": torch.zeros(2), "args": argparse.Namespace(token="hf_" + "a" * 34)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "M977")
    assert finding.fix is None
    assert finding.keys == (("args", "token"),)


def test_the_padding_comes_back(tmp_path):
    """The values of a header without padding begin at a multiple of eight bytes again."""
    path = build(sick("M978")[1], tmp_path)
    out = tmp_path / "out.safetensors"
    repair(plan(FixRequest(str(path), output=str(out), selection=Selection(select=("M978",)))))
    assert int.from_bytes(out.read_bytes()[:8], "little") % 8 == 0
    assert torch.equal(load_file(path)["weight"], load_file(out)["weight"])


def test_files_as_their_libraries_write_them_are_healthy(tmp_path):
    """None of these rules says anything that would fail a job."""
    save_file({"w": torch.zeros(5)}, tmp_path / "model.safetensors", {"format": "pt"})
    torch.save({"model": {"w": torch.zeros(5)}, "epoch": 3, "args": {"lr": 0.1, "seed": 7}}, tmp_path / "model.pt")
    for name in ("model.safetensors", "model.pt"):
        assert {finding.code for finding in check(str(tmp_path / name)).findings} <= {"W301", "O754"}


@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "indented"])
def test_metadata_becomes_text(tmp_path, indent):
    """Numbers, booleans and lists as their JSON, null not at all; safetensors reads the copy."""
    metadata = {
        "format": "pt",
        "step": 10,
        "done": True,
        "none": None,
        "size": [1, {"a": "é"}],
        "lr": 1e-3,
        "name": "é",
    }
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    text = json.dumps({"__metadata__": metadata, "w": entry}, indent=indent, ensure_ascii=False).encode()
    path, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(8)))
    with pytest.raises(Exception, match=r"metadata|expected a string"):
        safe_open(path, "pt").__enter__()
    fixes = [finding.fix for finding in found(path, "M972")]
    assert {fix.safety for fix in fixes} == {Safety.SAFE}
    repair(plan(FixRequest(str(path), output=str(out), selection=Selection(select=("M972",)))))
    with safe_open(out, "pt") as made:
        told = made.metadata()
        assert {key: told[key] for key in ("format", "step", "done", "lr", "name")} == {
            "format": "pt", "step": "10", "done": "true", "lr": "0.001", "name": "é"
        }  # fmt: skip
        assert json.loads(told["size"]) == metadata["size"]
        assert "none" not in told
        assert bytes(made.get_tensor("w").view(torch.uint8).tolist()) == bytes(range(8))


@pytest.mark.parametrize(
    "header",
    [
        '{"__metadata__":{"step":1},"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}',
        '{"__metadata__":[1],"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        '{"__metadata__":{"step":1,"step":2},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    ],
    ids=["a wrong entry as well", "no object", "twice"],
)
def test_no_other_header_is_repaired(tmp_path, header):
    """Only where nothing else is wrong; the writer refuses the rest, whoever asks."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    assert all(finding.fix is None for finding in found(path, "M972"))
    with formats.opened(str(path)) as (source, container):
        checkpoint = formats.read(source, container)
        for edits in ([TextMetadata((("step", "1"),))], [SetMetadata("step", "1")]):
            with pytest.raises((RefusedError, UnprovenError)):
                formats.write(wanted_of(checkpoint, edits), source)


def test_metadata_far_behind_is_left(tmp_path):
    """What the first bytes of the file do not show is not repaired."""
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    text = json.dumps({"x" * 5000: entry, "__metadata__": {"step": 1}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    assert [finding.fix for finding in found(path, "M972")] == [None]


@real
def test_tokens_that_were_added_without_a_row_for_them(saved):
    """The model fails on them with the quoted words; with rows for them nothing is said."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    inner = Tokenizer(WordLevel({f"w{number}": number for number in range(50)}, unk_token="w0"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0")
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(saved)
    (finding,) = found(saved / "model.safetensors", "M979")
    assert 'tokenizer.json has a token beyond the embeddings: 50 ("<new>")' in finding.message
    assert [each.code for each in check(str(saved)).findings if each.code == "M979"] == ["M979"]
    model = transformers.LlamaForCausalLM.from_pretrained(saved)
    with pytest.raises(IndexError) as raised:
        model(torch.tensor([tokenizer("<new>")["input_ids"]]))
    assert finding.torch_says == (f"IndexError: {raised.value}",)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(saved)
    assert found(saved / "model.safetensors", "M979") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 9_000,
        '{"added_tokens": ' + "[" * 9_000,
        '{"added_tokens": [{"id": "9", "content": 3}, 7, null]}',
        "\0\udcff",
    ],
)
def test_a_tokenizer_that_makes_no_sense_says_nothing(tmp_path, text):
    """Whatever stands in its files, the weights are examined all the same."""
    save_file({"model.embed_tokens.weight": torch.ones(8, 4)}, tmp_path / "model.safetensors")
    for name in ("tokenizer.json", "added_tokens.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(text, "utf-8", "surrogateescape")
    assert found(tmp_path / "model.safetensors", "M979") == []
