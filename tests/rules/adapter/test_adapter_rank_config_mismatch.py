"""L908: adapter_config.json against the tensors beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.libraries import real
from tests.rules.adapter.nets import adapted, loaded, lora, saved
from tests.rules.examined import found

pytestmark = real

CODE = "L908"
CONFIG = "adapter_config.json"


def _changed(folder: Path, **fields: Any) -> None:
    """Write other fields into the config, laid out as peft does."""
    config = json.loads((folder / CONFIG).read_text()) | fields
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True))


def _corrected(folder: Path, advice: str) -> None:
    """Do to the config what the finding says, at the line that it gives."""
    match = re.search(r'write ("\w+": .*) in line (\d+) of ', advice)
    assert match is not None
    lines = (folder / CONFIG).read_text().splitlines()
    number = int(match[2]) - 1
    name = match[1].partition(":")[0]
    assert lines[number].strip().startswith(name)
    indent = len(lines[number]) - len(lines[number].lstrip())
    stop = number
    while lines[stop].rstrip()[-1] in "[{" or (stop > number and lines[stop].startswith(" " * (indent + 1))):
        stop += 1
    lines[number : stop + 1] = [f"{' ' * indent}{match[1]},"]
    (folder / CONFIG).write_text("\n".join(lines))


def test_another_rank_is_refused_by_peft_and_corrected(tmp_path: Path) -> None:
    """The line of torch is the one that peft's error holds, and with the corrected line it loads."""
    path = saved(adapted(lora(r=2)), tmp_path)
    _changed(tmp_path, r=3)
    with pytest.raises(RuntimeError) as caught:
        loaded(tmp_path)
    (finding,) = found(path, CODE)
    (line,) = finding.torch_says
    assert line.split(": ", 1)[1] in str(caught.value)
    _corrected(tmp_path, finding.advice)
    loaded(tmp_path)
    assert not found(path, CODE)


def test_ranks_of_single_layers_are_written_out(tmp_path: Path) -> None:
    """The usual rank, and the exceptions by their full names."""
    path = saved(adapted(lora(target_modules=["q_proj", "v_proj"], rank_pattern={"layers.1.q_proj": 3})), tmp_path)
    assert not found(path, CODE)
    _changed(tmp_path, r=5, rank_pattern={})
    one, two = found(path, CODE)
    assert 'write "r": 2 in line' in one.advice
    assert 'write "rank_pattern": {"layers.1.q_proj": 3} in line' in two.advice
    _corrected(tmp_path, one.advice)
    (two,) = found(path, CODE)
    _corrected(tmp_path, two.advice)
    assert not found(path, CODE)
    loaded(tmp_path)


def test_layers_that_are_not_named_are_told(tmp_path: Path) -> None:
    """peft would leave their tensors out; with the corrected line they are there again."""
    model = adapted(lora(target_modules=["q_proj", "v_proj"]))
    path = saved(model, tmp_path)
    _changed(tmp_path, target_modules=["q_proj"])
    again, _ = loaded(tmp_path)
    assert len(again.state_dict()) < len(model.state_dict())
    (finding,) = found(path, CODE)
    assert "layers.0.v_proj (and 1 other layer)" in finding.message
    _corrected(tmp_path, finding.advice)
    again, _ = loaded(tmp_path)
    assert len(again.state_dict()) == len(model.state_dict())
    assert not found(path, CODE)


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_pattern": {"(a+)+$": 3}, "r": 9},
        {"target_modules": "(.*)*x", "r": 2},
        {"target_modules": ["(a|a)*b"], "r": 2},
        {"target_modules": ["all-linear"], "r": 2},
        {"target_parameters": ["x"], "r": 9},
        {"r": "two"},
        {"r": True},
        {"r": 9, "rank_pattern": [1]},
        {"peft_type": "ADALORA", "r": 9},
        {"peft_type": ["LORA"], "r": 9},
    ],
)
def test_what_is_counted_in_another_way_is_left_alone(fields: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is said of regular expressions, which are not run, nor of what is no number."""
    path = saved(adapted(lora(r=2)), tmp_path)
    _changed(tmp_path, **fields)
    assert not found(path, CODE)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass"), "null"])
def test_a_config_that_is_none_is_no_trouble(text: str | bytes, tmp_path: Path) -> None:
    """Damage in the config leaves the adapter alone."""
    path = saved(adapted(), tmp_path)
    (tmp_path / CONFIG).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert not found(path, CODE)
