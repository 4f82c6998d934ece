"""Edits of tensors: what is refused, what is found out, and what large files cost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import at
from ckptdoctor.edits import (
    Convert,
    Edit,
    Fill,
    Fuse,
    Reshape,
    Split,
    Transpose,
)
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.repair.repair import repair
from ckptdoctor.writing import Generated, Literal, Recipe
from tests.repair.applying import planned, repaired
from tests.repair.arranging import FORMATS, edited, loaded, random, same, written
from tests.repair.checkpoints import save


def refusal(path: Path, *edits: Edit) -> str:
    """What both say: the nouns, and the format."""
    with pytest.raises(RefusedError) as caught:
        planned(path, edits)
    from ckptdoctor.checkpoint import FileSource

    with FileSource(path) as source, pytest.raises(RefusedError):
        formats.write(wanted_of(formats.read(source, formats.examine(source)), edits), source)
    return caught.value.message


@FORMATS
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Transpose(("w",), (0, 1, 2)), "cannot become"),
        (Transpose(("nowhere",)), "nowhere"),
        (Reshape(("w",), (5,)), "which is not"),
        (Split(("w",), (("a", 0, 1), ("b", 2, 4))), "exactly once"),
        (Split(("w",), (("a", 0, 3), ("b", 2, 4))), "exactly once"),
        (Split(("w",), (("x", 0, 4),)), "already exists"),
        (Split(("w",), (("a", 0, 4),), 2), "no dimension 2"),
        (Fuse((("w",), ("x",)), "a"), "cannot be joined to"),
        (Fuse((("w",), ("y",)), "a"), "cannot be joined to"),
        (Fuse((("w",), ("w",)), "a"), "with itself"),
        (Fuse((("w",), ("v",)), "a", 0, ((0, 0, 4), (1, 0, 3))), "exactly once"),
        (Fuse((("w",), ("v",)), "a", 0, ((0, 0, 4), (2, 0, 4))), "names missing tensors"),
        (Fuse((("w",), ("v",)), "x"), "already exists"),
        (Fill(("x",), "int64", (), 0), "already exists"),
        (Fill(("a",), "text", (), 0), "cannot"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, suffix: str, edit: Edit, words: str):
    """With a sentence that says what is wrong, and before anything is written."""
    contents = {"w": torch.ones(4, 4), "v": torch.zeros(4, 4), "x": torch.ones(4), "y": torch.ones(4, 4).half()}
    assert words in refusal(written(contents, tmp_path, suffix), edit)


def test_packed_elements_are_not_put_in_another_order(tmp_path: Path):
    """Two of them share a byte; another shape is fine."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(4, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, path)
    assert "cannot be reordered" in refusal(path, Transpose(("w",)))
    assert repaired(path, [Reshape(("w",), (8,))]).proof is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8),
        lambda: torch.empty(3, 3, device="meta"),
    ],
    ids=["sparse", "quantized", "meta"],
)
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_odd_tensors_are_refused(tmp_path: Path, make: Callable[[], torch.Tensor]):
    """Sparse, quantized and meta tensors have no elements that lie in rows."""
    path = save({"w": make(), "x": torch.ones(3, 3)}, tmp_path / "model.pt")
    refusal(path, Transpose(("w",)))
    refusal(path, Split(("w",), (("a", 0, 1), ("b", 1, 3))))


def test_legacy_files_are_edited_and_get_new_tensors_once_they_are_archives(tmp_path: Path):
    """Their list of storages cannot grow by what is in no file yet, says the refusal."""
    contents = {"w": random((4, 6), torch.float32), "x": random((3,), torch.int64)}
    path = save(contents, tmp_path / "model.pt", legacy=True)
    parts = (("a", 0, 2), ("b", 2, 6))
    result = loaded(repaired(path, [Transpose(("w",)), Split(("w",), parts)]).plan.output)
    assert same(result["b"], contents["w"].t()[2:])
    assert same(result["x"], contents["x"])
    with pytest.raises(RefusedError, match="C105"):
        planned(path, [Fill(("n",), "int64", (), 0)])
    converted = repaired(path, [Convert("torch zip"), Transpose(("w",)), Fill(("n",), "int64", (), 7)])
    result = loaded(converted.plan.output)
    assert same(result["w"], contents["w"].t())
    assert result["n"] == 7


@pytest.mark.parametrize("change", [lambda data: data[::-1], lambda data: bytes(len(data))])
def test_other_elements_in_the_output_are_found_out(tmp_path: Path, change: Callable[[bytes], bytes]):
    """A writer that makes other bytes than the edit says: its output is thrown away."""
    path = written({"w": random((16, 16), torch.float32), "x": torch.ones(3)}, tmp_path, ".pt")
    plan = planned(path, [Transpose(("w",))])
    assert plan.recipe is not None
    made = [
        Literal(change(b"".join(each.chunks()))) if isinstance(each, Generated) and each.length == 16 * 16 * 4 else each
        for each in plan.recipe.segments
    ]
    assert sum(new is not old for new, old in zip(made, plan.recipe.segments, strict=True)) == 1
    with pytest.raises(WriteError, match="differ in the output"):
        repair(replace(plan, recipe=Recipe(plan.recipe.source, tuple(made))))


@pytest.mark.slow
def test_thousands_of_tensors_are_edited_at_once(tmp_path: Path):
    """Ten thousand fills and a thousand transposes take seconds, not hours."""
    contents = {f"layer{index}.weight": torch.ones(1, 2) for index in range(10_000)}
    path = written(contents, tmp_path, ".safetensors")
    fills = [Fill((f"layer{index}.n",), "int64", (), 0) for index in range(10_000)]
    turns = [Transpose((f"layer{index}.weight",)) for index in range(1000)]
    result = edited(contents, tmp_path, ".safetensors", *fills, *turns)
    assert len(result) == 20_000
    assert path.exists()


LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from ckptdoctor.edits import Transpose
from tests.repair.applying import repaired
limit = {limit} << 20
# what is written to, not what is reserved: glibc reserves 64 MB of addresses for every thread that allocates
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData:"))
resource.setrlimit(resource.RLIMIT_DATA, (used + limit, used + limit))
repaired(Path({path!r}), [Transpose(("w",))])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the test asks the kernel for its memory")
@pytest.mark.parametrize(
    ("suffix", "columns", "limit"),
    [
        (".pt", 2_500, 80),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((".safetensors", 2_500, 80), (".pt", 5_000, 128))),
        pytest.param(".safetensors", 5_000, 128, marks=pytest.mark.slow),
    ],
)
def test_a_large_transpose_takes_little_memory(tmp_path: Path, suffix: str, columns: int, limit: int):
    """200 MB in a process that may use 128 MB more than it does at the start, and 100 MB in 80 more."""
    tensor = torch.arange(10_000 * columns, dtype=torch.int32).reshape(10_000, columns)
    path = written({"w": tensor}, tmp_path, suffix)
    code = LIMITED.format(root=str(Path(__file__).parents[2]), path=str(path), limit=limit)
    subprocess.run([sys.executable, "-c", code], check=True)
    assert torch.equal(loaded(path.with_suffix(f".fixed{suffix}"))["w"], tensor.t())


def test_the_nouns_say_what_is_written(tmp_path: Path):
    """Shapes, keys and sizes as the plan shows them before anything is written."""
    path = written({"w": torch.ones(2, 6), "x": torch.ones(3)}, tmp_path, ".pt")
    expected = planned(path, [Transpose(("w",)), Split(("w",), (("a", 0, 2), ("b", 2, 6)))]).expected
    assert [(each.key, each.shape, each.stride) for each in expected.tensors] == [
        *(("a", (2, 2), (2, 1)), ("b", (4, 2), (2, 1)), ("x", (3,), (1,))),
    ]
    assert sorted(each.nbytes for each in expected.storages) == [12, 16, 32]
    assert at(expected.tree, ("b",)) is expected.tensors[1]
