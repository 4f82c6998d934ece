"""What is worked out once for a run is what each of its files would show alone: reports are equal, whatever differs."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path

import pytest
import safetensors.torch
import torch

import ckptdoctor
from ckptdoctor.checkpoint import Mapping
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.formats.alike import likeness_of, remembering
from ckptdoctor.noun import replace
from ckptdoctor.rules.registry import all_rules
from tests.builders import build, save

PACKAGE = Path(ckptdoctor.__file__).parent
HEADERS = Settings(unpack=False)
TAUGHT = 4  # files of one kind after which others are known


def training(step, *, lr=None, loss=None):
    """What a training saves of a small network after so many steps."""
    torch.manual_seed(step)
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1 / (step + 1) if lr is None else lr)
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_schedulers": [{"last_epoch": step % 7, "_last_lr": [0.1 / (step + 1)], "gamma": 0.5}],
        "epoch": step % 50,
        "global_step": 1_000 + step,
        "loss": 1.0 / (step + 3) if loss is None else loss,
        "config": {"name": "small", "wide": True, "depth": (1, 2)},
        "callbacks": {"ModelCheckpoint": {"monitor": "val_loss", "current_score": 0.25 + step}},
    }


def saved(path, contents):
    """The path of a file that torch saved."""
    torch.save(contents, path)
    return str(path)


def examined(path):
    """The report on a file, without what depends on when and how it was read."""
    report = check(path, HEADERS)
    contents = report.checkpoint
    told = None if contents is None else replace(contents, bytes_read=0, tree=without_nan(contents.tree))
    return replace(report, seconds=0, bytes_read=0, checkpoint=told), contents


def without_nan(node):
    """The same tree with a text for NaN, which equals nothing."""
    if isinstance(node, Mapping):
        return replace(node, entries=tuple((key, without_nan(each)) for key, each in node.entries))
    return "NaN" if node != node else node


def known_again(paths):
    """How many of these files were known by others, once it is certain that nothing else about any of them differs."""
    with remembering():
        found = [examined(path) for path in paths]
        again = [contents is not None and likeness_of(contents) is not None for _, contents in found[-8:]]
    for path, (report, _) in zip(paths, found, strict=True):
        assert report == examined(path)[0], path
    return sum(again)


def with_pickle(data, change):
    """The bytes of a file of torch whose pickle was changed, with the checksums of the changed one."""
    name = data.index(b"data.pkl")
    begin = name + len(b"data.pkl") + struct.unpack_from("<H", data, data.rindex(b"PK\x03\x04", 0, name) + 28)[0]
    end = data.index(b"PK\x07\x08", begin)
    pickle = bytearray(data[begin:end])
    old = zlib.crc32(pickle)
    change(pickle)
    return (data[:begin] + bytes(pickle) + data[end:]).replace(
        struct.pack("<I", old), struct.pack("<I", zlib.crc32(pickle))
    )


def headers(data):
    """Where in a file of torch there is something else than values."""
    found, at = [], 0
    while (at := data.find(b"PK", at)) >= 0:
        found += range(at, min(len(data), at + 90))
        at += 1
    begin = data.index(b"data.pkl")
    return sorted({*found, *range(begin, data.index(b"PK\x07\x08", begin)), *range(len(data) - 400, len(data))})


@pytest.fixture
def taught(tmp_path):
    """Files of a run, of which others are known, and the folder in which more are made."""
    return [saved(tmp_path / f"model_step_{step}.pt", training(step)) for step in range(1, TAUGHT + 1)], tmp_path


def test_files_of_a_run_are_known_again(taught):
    """Other values, another step, rate and loss, another name of the same length: none is decoded again."""
    paths, folder = taught
    paths += [saved(folder / f"model_step_{step}.pt", training(step, loss=step * 1e30)) for step in range(5, 10)]
    paths += [saved(folder / f"model_other{step}.pt", training(step)) for step in range(5, 10)]
    assert known_again(paths) == 8


def test_numbers_that_are_written_in_another_way_are_read_alone(taught):
    """NaN, numbers of another length, other booleans and texts."""
    paths, folder = taught
    for number, loss in enumerate((float("nan"), float("inf"), -0.0, 3, 2**40, True, None, "low")):
        paths.append(saved(folder / f"model_loss_{number}.pt", training(3, loss=loss)))
        contents = training(3)
        contents["global_step"] = loss
        paths.append(saved(folder / f"model_more_{number}.pt", contents))
    assert known_again(paths) < 8


@pytest.mark.parametrize("number", [120, pytest.param(6_000, marks=pytest.mark.slow)])
def test_any_byte_of_the_headers_may_differ(taught, number):
    """Damage of one or two bytes anywhere shows as it does in a file alone."""
    paths, folder = taught
    data = Path(saved(folder / "model_step_5.pt", training(5))).read_bytes()
    drawn, places = random.Random(number), headers(data)
    for each in range(number):
        changed = bytearray(data)
        for _ in range(drawn.choice((1, 1, 2))):
            changed[drawn.choice(places)] ^= drawn.choice((1, 2, 128, 255))
        path = folder / f"damaged_{each}.pt"
        path.write_bytes(changed)
        paths.append(str(path))
    known_again(paths)


@pytest.mark.parametrize("number", [120, pytest.param(6_000, marks=pytest.mark.slow)])
def test_any_byte_of_the_pickle_may_differ(taught, number):
    """With the right checksum, so that nothing but the pickle tells of it."""
    paths, folder = taught
    data = Path(saved(folder / "model_step_5.pt", training(5))).read_bytes()
    drawn = random.Random(number)

    def change(pickle):
        for _ in range(drawn.choice((1, 1, 3))):
            pickle[drawn.randrange(len(pickle))] ^= drawn.choice((1, 2, 16, 128, 255))

    for each in range(number):
        path = folder / f"changed_{each}.pt"
        path.write_bytes(with_pickle(data, change))
        paths.append(str(path))
    known_again(paths)


def test_ends_that_differ(taught):
    """Cut off, longer, of another archive, with an end within its values, and zeros."""
    paths, folder = taught
    data = Path(saved(folder / "model_step_5.pt", training(5))).read_bytes()
    for number, changed in enumerate(
        (
            data[:-1],
            data + b"\0",
            data[:-22] + bytes(22),
            data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
            bytes(len(data)),
            data.replace(struct.pack("<f", 1.0), b"PK\x05\x06"),
        )
    ):
        path = folder / f"ended_{number}.pt"
        path.write_bytes(changed)
        paths.append(str(path))
    known_again(paths)


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_examples_of_rules(tmp_path, every):
    """Of each a few files that differ in values and numbers: what rules find is what they find alone."""
    examples = [(rule, example) for rule in all_rules() for example in (*rule.sick, *rule.healthy) if is_saved(example)]
    again = 0
    for number, (rule, example) in enumerate(examples[::every]):
        folder = tmp_path / f"{rule.code}-{number}"
        folder.mkdir()
        path = build(example, folder)
        paths = [str(path)]
        for at in range(5):
            more = path.with_name(f"{path.stem[:-1]}{at}{path.suffix}")
            contents = moved(example.contents, at) if example.container == "torch zip" else example.contents
            save(contents, more, container=example.container, metadata=example.metadata)
            paths.append(str(more))
        again += known_again(paths) > 0
    assert again > len(examples) // every // 2


def is_saved(example):
    """Whether an example is a file as torch or safetensors saves it."""
    return not (example.files or example.raw is not None or example.damage is not None or example.deep)


def moved(contents, by):
    """The same with other numbers at the ends of its dicts and lists."""
    if isinstance(contents, dict):
        return type(contents)((key, moved(value, by)) for key, value in contents.items())
    if isinstance(contents, list):
        return [moved(each, by) for each in contents]
    if isinstance(contents, float):
        return contents + by / 8
    return contents + by if type(contents) is int and 0 <= contents < 200 else contents


def test_files_of_safetensors_are_known_again(tmp_path):
    """Those with the same header are; metadata and names that differ are read."""
    paths = []
    for step in range(8):
        path = tmp_path / f"step_{step}.safetensors"
        tensors = {"a.weight": torch.rand(3, 2), "a.bias": torch.rand(3), f"b{step // 6}": torch.rand(1)}
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
        paths.append(str(path))
    for number, at in enumerate((0, 9, 20, 60, 100)):
        data = bytearray(Path(paths[4]).read_bytes())
        data[at] ^= 1
        (tmp_path / f"odd_{number}.safetensors").write_bytes(data)
        paths.append(str(tmp_path / f"odd_{number}.safetensors"))
    assert known_again(paths[:6]) == 4
    known_again(paths)


# where ``type(x) is int`` is asked of keys of dicts, or of JSON, neither of which is ever blind; and of arguments of
# tensors, where a blind number makes contents that are not as they should be, so that nothing is known by them
NOT_OF_VALUES = {
    *("checkpoint/tree.py", "facts/siblings.py", "rules/optimizer/remapping.py", "rules/adapter/config.py"),
    *("rules/adapter/adapter_rank_config_mismatch.py", "rules/metadata/config_weights_disagree.py"),
    *("rules/metadata/tokenizer_beyond_embedding.py", "rules/quantization/config.py"),
    *("rules/quantization/mixed_quant_dir.py", "formats/torch/read/storages.py", "formats/torch/read/values.py"),
    *("formats/torch/read/objects.py", "formats/torch/read/views.py"),
}


def test_nobody_asks_for_the_exact_class_of_a_number():
    """A blind number would not be one, without a trace (``checkpoint.blind``): ``isinstance`` is asked instead."""
    found = set()
    exact = re.compile(r"^[^`#]*\btype\([\w.]+\) (?:is|is not|in|==|!=) \(?(?:int|float)\b", re.MULTILINE)
    for room in ("checkpoint", "facts", "match", "rules", "diagnose", "formats/torch/read"):
        for path in (PACKAGE / room).rglob("*.py"):
            if exact.search(path.read_text(encoding="utf-8")):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == NOT_OF_VALUES
