"""Shards examine a store in parts, and their databases make one; every byte is read where that is asked for."""

from __future__ import annotations

import os
import time

import pytest
import safetensors.torch
import torch

import ckptdoctor
from ckptdoctor.errors import UsageError
from tests.commands import run_here
from tests.runs.generated import flipped, in_safetensors, saved, weights, write
from tests.stores.asked import audited, checkpoints, generated, rows, table


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of each kind of run."""
    folder = tmp_path_factory.mktemp("store") / "runs"
    return folder, generated(folder, range(24, 34))


@pytest.mark.parametrize("of", [2, 5])
def test_shards_make_the_same_table(store, of, tmp_path):
    """Row for row, whatever the number of parts and their order; no checkpoint is in two of them."""
    audited(store[0], output=tmp_path / "whole.db")
    parts = [tmp_path / f"{number}.db" for number in range(of)]
    listed = [audited(store[0], output=path, shard=(at + 1, of)).listed for at, path in enumerate(parts)]
    assert run_here("audit", "--merge", *reversed(parts), "-o", "all.db", cwd=tmp_path).returncode == 1
    assert table(tmp_path / "all.db") == table(tmp_path / "whole.db")
    assert sum(listed) == len(checkpoints(tmp_path / "all.db")) and all(listed)


def test_a_shard_forgets_only_what_is_its_own(tmp_path):
    """What another shard found stays, where both write into one database one after the other."""
    for at in range(12):
        write(tmp_path / "x" / f"step_{at}.pt", saved(weights(at)))
    for number in (1, 2):
        audited(tmp_path / "x", output=tmp_path / "a.db", shard=(number, 2))
    assert len(checkpoints(tmp_path / "a.db")) == 12
    (tmp_path / "x" / "step_3.pt").unlink()
    removed = [audited(tmp_path / "x", output=tmp_path / "a.db", shard=(number, 2)).removed for number in (1, 2)]
    assert sorted(removed) == [0, 1] and len(checkpoints(tmp_path / "a.db")) == 11


def test_what_is_merged_later_counts(tmp_path):
    """Of a checkpoint in several databases, with all its files and findings; none of them is changed."""
    path = tmp_path / "x" / "step_1.pt"
    write(path, saved({"model": weights()}))
    audited(tmp_path / "x", output=tmp_path / "old.db")
    write(path, saved({"module.a": weights()["layers.0.weight"]}))
    audited(tmp_path / "x", output=tmp_path / "new.db")
    before = {name: (tmp_path / name).read_bytes() for name in ("old.db", "new.db")}
    ckptdoctor.audit([tmp_path / "old.db", tmp_path / "new.db"], tmp_path / "all.db", merge=True)
    assert table(tmp_path / "all.db") == table(tmp_path / "new.db")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_part_that_cannot_be_is_refused(tmp_path):
    """In a sentence, which says that parts count from 1."""
    (tmp_path / "x").mkdir()
    for said in ("0/8", "9/8", "3", "a/b"):
        result = run_here("audit", "x", "--shard", said, cwd=tmp_path)
        assert result.returncode == 2 and f'"{said}" is not' in result.stderr.decode()
    with pytest.raises(UsageError, match="count from 1"):
        ckptdoctor.audit(tmp_path / "x", tmp_path / "a.db", shard=(0, 8))


def test_every_byte_is_read_where_it_is_asked_for(tmp_path):
    """Damage that no header shows; levels that were proven; contents of safetensors as those of torch files."""
    good, bad = tmp_path / "x" / "step_1.pt", tmp_path / "x" / "step_2.pt"
    for path in (good, bad):
        write(path, saved(weights()))
    at = bad.read_bytes().find(weights()["layers.0.weight"].numpy().tobytes()[:64])
    flipped(bad, at + 5)
    write(tmp_path / "x" / "model.safetensors", in_safetensors())
    assert audited(tmp_path / "x", output=tmp_path / "a.db").examined == 3
    headers = {os.path.basename(path): each for path, each in checkpoints(tmp_path / "a.db").items()}
    assert {each["level"] for each in headers.values()} == {0} and headers["model.safetensors"]["weights"] is None

    found = audited(tmp_path / "x", output=tmp_path / "a.db", deep="changed")
    assert (found.examined, audited(tmp_path / "x", output=tmp_path / "a.db", deep="changed").examined) == (3, 0)
    deep = {os.path.basename(path): each for path, each in checkpoints(tmp_path / "a.db").items()}
    assert (deep["step_1.pt"]["levels"], deep["model.safetensors"]["levels"], deep["step_2.pt"]["levels"]) == (7, 5, 0)
    assert (deep["step_2.pt"]["level"], deep["step_2.pt"]["health"]) == (None, "broken")
    assert "(F009 " in deep["step_2.pt"]["trouble"]
    codes = {each["code"] for each in rows(tmp_path / "a.db", "SELECT * FROM findings WHERE path = ?", str(bad))}
    assert "F009" in codes
    assert deep["model.safetensors"]["weights"] == deep["step_1.pt"]["weights"]


def test_float32_that_bfloat16_holds_is_counted(tmp_path):
    """To the byte, as the last 16 bits of each weight say: of whole storages, once, and not of optimizers."""
    half = torch.rand(40, 40).bfloat16().float()
    outside = torch.tensor([1e38, -0.0, 2.0**-126, 1e-40]).bfloat16().float()
    almost = half.clone()
    almost.view(torch.int32)[7, 9] |= 1
    shared = torch.rand(100).bfloat16().float()
    optimizer = {"state": {0: {"exp_avg": half.clone()}}, "param_groups": [{"params": [0], "betas": (0.9, 0.99)}]}
    files = {
        "a.pt": ({"model": {"w": half, "tied": half, "view": half[:3]}, "optimizer": optimizer, "step": 1}, 3_200),
        "b.pt": ({"x": almost, "y": outside}, 8),
        "c.pt": ({"x": half.bfloat16(), "y": half.double(), "z": torch.tensor([1.0, float("nan")] * 32)}, 0),
        "d.pt": ({"x": shared[:50], "y": shared[50:]}, 200),
    }
    for name, (contents, _) in files.items():
        write(tmp_path / "x" / name, saved(contents))
    write(tmp_path / "x" / "e.safetensors", safetensors.torch.save({"x": half, "y": almost}))
    wanted = {name: nbytes for name, (_, nbytes) in files.items()} | {"e.safetensors": 3_200}

    def told(database):
        return {os.path.basename(path): row["wasted_bytes"] for path, row in checkpoints(database).items()}

    audited(tmp_path / "x", output=tmp_path / "a.db")
    assert told(tmp_path / "a.db") == dict.fromkeys(wanted)
    result = run_here("audit", "x", "--deep", "-o", "a.db", "--jobs", "1", cwd=tmp_path)
    assert told(tmp_path / "a.db") == wanted
    assert b"4 checkpoints have float32 weights that bfloat16 holds exactly: 6.6 kB less" in result.stdout
    page = tmp_path / "page.html"
    run_here("report", "a.db", "-o", str(page), cwd=tmp_path)
    assert "Float32 for nothing" in page.read_text() and "6.6 kB" in page.read_text()


def test_deep_may_stand_in_front_of_a_store(tmp_path):
    """Alone it means what has changed; a sample is one in twenty, and all are read again."""
    for at in range(40):
        write(tmp_path / "x" / f"step_{at}.pt", saved({"w": weights(at)["layers.0.bias"]}))
    assert audited(tmp_path / "x", output=tmp_path / "a.db").examined == 40
    sample = audited(tmp_path / "x", output=tmp_path / "a.db", deep="sample").examined
    assert sample < 12 and audited(tmp_path / "x", output=tmp_path / "a.db", deep="sample").examined == 0
    result = run_here("audit", "--deep", "x", "-o", "a.db", "--jobs", "1", cwd=tmp_path)
    assert f"{40 - sample} examined, {sample} unchanged, headers and bytes (changed)" in result.stdout.decode()
    assert audited(tmp_path / "x", output=tmp_path / "a.db", deep="all").examined == 40


def test_no_more_is_read_than_was_allowed(tmp_path):
    """A file of 3 MB takes a second at 3 MB/s, however fast the disk is; what is no rate is refused."""
    write(tmp_path / "x" / "step_1.pt", saved({"w": torch.rand(750_000)}))
    started = time.monotonic()
    result = run_here("audit", "x", "--deep", "--limit-rate", "3MB/s", "--jobs", "1", cwd=tmp_path)
    assert result.returncode == 0 and time.monotonic() - started > 1
    assert run_here("audit", "x", "--deep", "--limit-rate", "fast", cwd=tmp_path).stderr.startswith(
        b'error: --limit-rate: "fast" is not a size.'
    )
