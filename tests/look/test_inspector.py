"""Looks into one tensor of real files: the same numbers as torch loads, whatever the file, reading what is needed."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import zipfile

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import StoppedError
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.look.inspector import Inspector, Look, Picture, Refused, Window
from ckptdoctor.values.extremes import index_at, sample, spread
from ckptdoctor.values.preview import RANGE_PARTS, READ_WHOLE

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:ComplexHalf:UserWarning")


def opened(path):
    """An inspector into a file, and its tensors by key."""
    checkpoint = open_checkpoint(str(path))
    return Inspector(str(path), checkpoint), {tensor.key: tensor for tensor in checkpoint.tensors}


def saved(folder, contents, **options):
    """An inspector into a file of torch."""
    torch.save(contents, folder / "model.pt", **options)
    return opened(folder / "model.pt")


def plain(tensor):
    """The numbers that a tensor stands for, in a dtype that Python has."""
    if tensor.is_quantized:
        return tensor.dequantize()
    if str(tensor.dtype).startswith("torch.float8"):
        return tensor.float()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def same(values, wanted):
    """Whether the numbers are equal, NaN to NaN."""
    return [repr(each) for each in values] == [repr(each) for each in plain(wanted).reshape(-1).tolist()]


def kinds():
    """Tensors of many dtypes and layouts."""
    torch.manual_seed(0)
    found = {}
    for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex32"):
        wide = torch.randn(6, 7, dtype=torch.complex64) if "complex" in name else torch.randn(6, 7)
        found[name] = wide.to(getattr(torch, name))
    for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"):
        found[name] = torch.randint(0, 100, (6, 7)).to(getattr(torch, name))
    found["bool"] = torch.rand(6, 7) > 0.5
    found["special"] = torch.tensor([[math.nan, math.inf], [-math.inf, -0.0]])
    found["number"] = torch.tensor(2.5)
    found["line"] = torch.randn(100)
    found["turned"] = torch.randn(3, 5, 4).permute(2, 0, 1)
    found["gaps"] = torch.randn(300, 400)[::7, 3::9]
    found["expanded"] = torch.randn(5, 1).expand(5, 6)
    found["conj"] = torch.randn(4, 4, dtype=torch.complex64).conj()
    found["neg"] = torch.randn(4, 4, dtype=torch.complex64).conj().imag
    found["channels"] = torch.quantize_per_channel(
        torch.randn(5, 4), torch.tensor([0.5, 0.25, 1, 2, 4]), torch.tensor([0, 1, 2, 3, 4]), 0, torch.qint8
    )
    found["quantized"] = torch.quantize_per_tensor(torch.randn(5, 4), 0.25, 3, torch.quint8)
    return found


@pytest.mark.parametrize("old", [False, True], ids=["zip", "legacy"])
def test_windows_of_every_dtype_and_layout(tmp_path, old):
    """A box from the middle has the very values that torch has there."""
    contents = kinds()
    inspector, tensors = saved(tmp_path, contents, _use_new_zipfile_serialization=not old)
    for name, tensor in contents.items():
        box = [range(size // 3, size - size // 4) for size in tensor.shape]
        wanted = plain(tensor)[tuple([slice(each.start, each.stop) for each in box])]
        seen = inspector.window(tensors[name], box, Work())
        assert isinstance(seen, Window) and same(seen.values, wanted), name


def test_looks_at_every_dtype_and_layout(tmp_path):
    """Counts, least and greatest value, and the place of the largest are exact."""
    contents = kinds()
    inspector, tensors = saved(tmp_path, contents)
    for name, tensor in contents.items():
        values = plain(tensor)
        seen = inspector.look(tensors[name], Work())
        assert isinstance(seen, Look) and not seen.sampled and seen.looked == values.numel(), name
        real = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        finite = real.double()[real.double().isfinite()]
        assert (seen.values.min, seen.values.max) == (finite.min().item(), finite.max().item()), name
        assert sum(seen.bins) == finite.numel(), name
        below, above = sum(each[1] for each in seen.sizes), sum(each[2] for each in seen.sizes)
        assert (below, above) == ((finite < 0).sum().item(), (finite > 0).sum().item()), name
        first = seen.extremes[0]
        assert same([first.value], values[first.at]), name


def test_nan_comes_first_then_infinities(tmp_path):
    """In the list of values, and in those of rows and columns."""
    values = torch.randn(30, 40)
    values[3, 7], values[20, 30], values[21, 0] = math.nan, -math.inf, 100
    inspector, tensors = saved(tmp_path, {"w": values})
    seen = inspector.look(tensors["w"], Work())
    assert [each.at for each in seen.extremes[:3]] == [(3, 7), (20, 30), (21, 0)]
    rows, columns = seen.dimensions
    assert [each.at[0] for each in rows.worst[:3]] == [3, 20, 21]
    assert [each.at[1] for each in columns.worst[:3]] == [7, 30, 0]
    assert columns.worst[2].value == 100 and columns.worst[2].at == (21, 0)
    assert (seen.values.nan, seen.values.negative_inf) == (1, 1)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_other_archives(tmp_path, compression, big):
    """Deflated records, and the values of machines with the other byte order."""
    tensor = torch.randn(50, 6)
    torch.save({"flat": tensor, "gaps": tensor[::2, 1:]}, tmp_path / "plain.pt")
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(tmp_path / "plain.pt") as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            data = old.read(name)
            if big and name.endswith("byteorder"):
                data = b"big"
            elif big and "/data/" in name:
                data = b"".join([data[at : at + 4][::-1] for at in range(0, len(data), 4)])
            new.writestr(name, data)
    inspector, tensors = opened(path)
    seen = inspector.window(tensors["gaps"], [range(3, 20), range(1, 4)], Work())
    assert same(seen.values, tensor[::2, 1:][3:20, 1:4])


def test_safetensors_and_folders_of_shards(tmp_path):
    """One file, and several with an index."""
    first, second = torch.randn(5, 6).bfloat16(), torch.randn(40)
    safetensors.torch.save_file({"a": first}, tmp_path / "model-00001-of-00002.safetensors", {"format": "pt"})
    safetensors.torch.save_file({"b": second}, tmp_path / "model-00002-of-00002.safetensors", {"format": "pt"})
    index = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    inspector, tensors = opened(tmp_path)
    assert same(inspector.window(tensors["a"], [range(5), range(2, 4)], Work()).values, first[:, 2:4])
    assert same(inspector.window(tensors["b"], [range(30, 40)], Work()).values, second[30:])
    inspector, tensors = opened(tmp_path / "model-00001-of-00002.safetensors")
    assert inspector.look(tensors["a"], Work()).values.max == first.max().item()


def test_sparse_tensors_show_their_values(tmp_path):
    """What is inside is what is looked at."""
    inspector, tensors = saved(tmp_path, {"w": torch.eye(9).to_sparse() * 3})
    assert inspector.seen_as(tensors["w"]).shape == (9,)
    assert inspector.look(tensors["w"], Work()).values.min == 3


@pytest.mark.parametrize("kind", ["meta", "bits"])
def test_what_has_no_numbers_says_so(tmp_path, kind):
    """In words, not with an error."""
    values = torch.zeros(3, dtype=torch.uint8).view(torch.bits8) if kind == "bits" else torch.empty(3, device="meta")
    inspector, tensors = saved(tmp_path, {"w": values})
    for seen in (inspector.look(tensors["w"], Work()), inspector.seen_as(tensors["w"])):
        assert isinstance(seen, Refused) and seen.reason


def test_a_large_tensor_is_sampled_and_little_is_read(tmp_path):
    """Its statistics are near those of all of it, the places are those of whole rows, and a window reads a page."""
    values = torch.randn(3 * READ_WHOLE // 1024, 1024)
    inspector, tensors = saved(tmp_path, {"w": values})
    seen = inspector.look(tensors["w"], Work())
    assert seen.sampled and seen.looked < READ_WHOLE and seen.total == values.numel()
    assert abs(seen.values.std - 1) < 0.01
    for each in (*seen.extremes, *seen.dimensions[1].worst):
        assert values[each.at].item() == each.value
    assert seen.dimensions[1].worst[0].size > 4
    before = inspector._source.bytes_read
    inspector.window(tensors["w"], [range(20_000, 20_040), range(500, 510)], Work())
    assert inspector._source.bytes_read - before < 1 << 20
    assert inspector.picture(tensors["w"], [range(size) for size in values.shape], 0, (20, 40), "mean", Work()).sampled


def test_a_long_header_is_not_read_again(tmp_path):
    """Of a file that is open already as far as its headers go, nothing but values is read."""
    many = {f"layers.{number}.weight": torch.full((4,), float(number)) for number in range(2_000)}
    safetensors.torch.save_file(many, tmp_path / "model.safetensors")
    inspector, tensors = opened(tmp_path / "model.safetensors")
    window = inspector.window(tensors["layers.7.weight"], [range(4)], Work())
    assert isinstance(window, Window)
    assert inspector._source.bytes_read == 16


def test_a_look_that_nobody_waits_for_ends(tmp_path):
    """Stopped at once, and refused for no reason."""
    inspector, tensors = saved(tmp_path, {"w": torch.randn(1000, 1000)})

    def end(progress):
        raise StoppedError

    assert inspector.look(tensors["w"], Work(listener=end)) == Refused("")


def test_a_cut_or_overwritten_file_is_a_sentence(tmp_path):
    """The file is read, not mapped: whatever happens to it, the process lives."""
    inspector, tensors = saved(tmp_path, {"w": torch.randn(1000, 1000)})
    assert isinstance(inspector.window(tensors["w"], [range(1), range(1)], Work()), Window)
    os.truncate(tmp_path / "model.pt", 5000)
    seen = inspector.window(tensors["w"], [range(999, 1000), range(1)], Work())
    assert isinstance(seen, Refused) and "overwritten" in seen.reason
    torch.save({"w": torch.zeros(3)}, tmp_path / "model.pt")
    inspector = Inspector(str(tmp_path / "model.pt"), inspector._checkpoint)
    assert "changed" in inspector.look(tensors["w"], Work()).reason


def test_pictures(tmp_path):
    """Cells are means, or the largest by size with its sign; NaN stays NaN."""
    values = torch.arange(48.0).view(6, 8) - 24
    values[5, 7] = math.nan
    inspector, tensors = saved(tmp_path, {"w": values, "line": torch.arange(10.0)})
    whole = [range(6), range(8)]
    seen = inspector.picture(tensors["w"], whole, 0, (3, 4), "mean", Work())
    assert (seen.down, seen.across, len(seen.cells)) == (2, 2, 3)
    assert seen.cells[0][0] == values[:2, :2].mean().item() and math.isnan(seen.cells[2][3])
    seen = inspector.picture(tensors["w"], whole, 0, (3, 4), "absmax", Work())
    assert seen.cells[0][0] == -24 and seen.cells[2][0] == 17 and math.isnan(seen.cells[2][3])
    turned = inspector.picture(tensors["w"], whole, 1, (99, 99), "mean", Work())
    assert len(turned.cells) == 8 and turned.cells[3][2] == values[2, 3].item()
    line = inspector.picture(tensors["line"], [range(10)], None, (2, 4), "mean", Work())
    assert isinstance(line, Picture) and line.cells == ((0.5, 2.5, 4.5, 6.5), (8.5, None, None, None))


def test_integers_of_few_values_have_a_bin_each(tmp_path):
    """The histogram of labels has no gaps that are none."""
    inspector, tensors = saved(
        tmp_path, {"w": torch.arange(10).repeat(5), "same": torch.full((4,), 7.0), "f": torch.randn(50)}
    )
    assert inspector.look(tensors["w"], Work()).bins == (5,) * 10
    assert inspector.look(tensors["same"], Work()).bins == (4,)
    assert len(inspector.look(tensors["f"], Work()).bins) == RANGE_PARTS


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=4), st.integers(100, 10**6), st.integers(1, 600), st.randoms()
)
def test_samples(shape, most, reads, random):
    """Never more than about what was asked for, all within the tensor, each index once."""
    stride = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    picks = sample(shape, stride, most, reads)
    looked = math.prod([sum(map(len, runs)) for runs in picks])
    assert 1 <= looked <= max(most, 1) * 2
    for size, runs in zip(shape, picks, strict=True):
        assert all(0 <= run.start < run.stop <= size for run in runs)
        assert all(one.stop <= other.start for one, other in itertools.pairwise(runs))
        place = random.randrange(sum(map(len, runs)))
        assert any(index_at(runs, place) in run for run in runs)


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(1, 500))
def test_spreading(size, kept, runs):
    """As many indexes as wanted or a few less."""
    found = spread(size, kept, runs)
    assert len(found) <= max(runs, 1) and sum(map(len, found)) <= kept + runs


def test_pieces_of_a_distributed_checkpoint(tmp_path):
    """A tensor that was saved in pieces is read from as many as the box touches."""
    from dataclasses import replace

    from ckptdoctor.checkpoint import Checkpoint, Tensor

    values = torch.randn(10, 6)
    inspector, tensors = saved(tmp_path, {"a": values[:4].clone(), "b": values[4:].clone()})
    whole: Tensor = replace(
        tensors["a"],
        shape=(10, 6),
        stride=(6, 1),
        storage=None,
        chunks=(((0, 0), tensors["a"]), ((4, 0), tensors["b"])),
    )
    assert isinstance(inspector._checkpoint, Checkpoint)
    assert same(inspector.window(whole, [range(2, 7), range(1, 4)], Work()).values, values[2:7, 1:4])
    assert inspector.look(whole, Work()).values.max == values.max().item()


def test_numpy_waits_for_the_first_look(tmp_path):
    """Opening imports no NumPy; the first look does, and nothing imports torch."""
    torch.save({"w": torch.ones(3)}, tmp_path / "model.pt")
    code = (
        "import sys\n"
        "from ckptdoctor.checkpoint.progress import Work\n"
        "from ckptdoctor.formats import open_checkpoint\n"
        "from ckptdoctor.look.inspector import Inspector\n"
        "inspector = Inspector('model.pt', open_checkpoint('model.pt'))\n"
        "print('numpy' in sys.modules, 'torch' in sys.modules)\n"
        "inspector.look(inspector._checkpoint.tensors[0], Work())\n"
        "print('numpy' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "False"]
