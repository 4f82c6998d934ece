"""The distance of values of two checkpoints, compared with torch and float64."""

import math
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.differences import Verdict
from ckptdoctor.diffing.diff import diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.errors import StoppedError
from ckptdoctor.values import diff_bytes
from ckptdoctor.values.differences import bytes_to_compare, compare_values

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32]


@pytest.fixture
def compared(tmp_path):
    """Saves two contents, and gives how they differ."""

    def compare(a, b, **options):
        for name, contents in (("a.pt", a), ("b.pt", b)):
            torch.save(contents, tmp_path / name)
        return diff(DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), **options), compare_values)

    return compare


def transformer(layers=3):
    """The weights of a small transformer."""
    torch.manual_seed(0)
    state = {"embed.weight": torch.randn(300, 128)}
    for layer in range(layers):
        state |= {f"layers.{layer}.attn.{name}_proj.weight": torch.randn(128, 128) * 0.05 for name in "qkvo"}
        state |= {f"layers.{layer}.mlp.weight": torch.randn(160, 128), f"layers.{layer}.norm.bias": torch.randn(128)}
    return state | {"head.weight": torch.randn(10, 128), "head.bias": torch.randn(10)}


def changed(state, chosen, by=0.01):
    """The same with noise in what is chosen."""
    return {key: value + by * torch.randn_like(value) if chosen(key) else value for key, value in state.items()}


def only(found):
    """The values of the only tensor."""
    (pair,) = found.pairs
    return pair.values


def test_identical(compared):
    """The same bytes are equal, whatever they are, NaN included."""
    state = transformer() | {"nan": torch.full((5,), float("nan")), "empty": torch.empty(0, 3)}
    found = compared(state, state)
    assert found.same and found.summary == "identical, bit for bit"
    assert {pair.values.verdict for pair in found.pairs} == {Verdict.EQUAL}


def test_equal_files_need_no_torch(tmp_path):
    """torch is imported only where bytes differ."""
    import subprocess
    import sys

    for name in ("a.pt", "b.pt"):
        torch.save(transformer(), tmp_path / name)
    code = "import sys, ckptdoctor; found = ckptdoctor.diff('a.pt', 'b.pt', values=True)\n"
    code += "print(found.same, found.compared, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, torch.bool, torch.complex64, torch.complex128], ids=str)
def test_numbers_are_those_of_float64(compared, dtype):
    """Every figure is what float64 gives for the same values, for every dtype and over many chunks."""
    torch.manual_seed(1)
    high = 2 if dtype is torch.bool else 100
    a, b = (torch.randn(90, 1000) if dtype in FLOATS else torch.randint(0, high, (90, 1000)) for _ in range(2))
    if dtype.is_complex:
        a, b = torch.complex(a.float(), b.float()), torch.complex(b.float(), a.float())
    a, b = a.to(dtype), b.to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    one, other = a.to(wide), b.to(wide)
    apart = (one - other).abs()
    numbers = only(compared({"w": a}, {"w": b})).numbers
    assert numbers.elements == 90_000 and numbers.changed == int((apart != 0).sum())
    assert numbers.largest == pytest.approx(apart.max().item(), rel=1e-6)
    assert numbers.mean == pytest.approx(apart.mean().item(), rel=1e-5)
    assert numbers.relative == pytest.approx((apart.norm() / one.abs().norm()).item(), rel=1e-5)
    inner = torch.sum((one * other.conj()).real).item()
    assert numbers.cosine == pytest.approx(inner / (one.abs().norm() * other.abs().norm()).item(), abs=1e-5)


def test_not_a_number_and_infinity(compared):
    """NaN in the same places is no difference, on one side it is counted; infinities equal themselves."""
    a = torch.randn(1000)
    a[:5], a[5:8] = float("nan"), float("inf")
    b = a.clone()
    b[0], b[10], b[11] = 1.0, float("nan"), b[11] + 2
    numbers = only(compared({"w": a}, {"w": b})).numbers
    assert (numbers.nan_a, numbers.nan_b, numbers.odd, numbers.changed) == (5, 5, 2, 3)
    assert numbers.largest == pytest.approx(2.0)
    b[5] = -b[5]
    numbers = only(compared({"w": a}, {"w": b})).numbers
    assert numbers.largest == numbers.relative == float("inf")
    assert math.isnan(numbers.cosine)


def test_infinity_on_one_side_is_an_infinite_distance(compared):
    """However near all other values are: neither is it none, nor do both point in one direction."""
    a = torch.randn(50, 50)
    b = a.clone()
    b[0, 0] = float("inf")
    found = compared({"w.weight": a, "v.weight": a}, {"w.weight": b, "v.weight": a + 1})
    numbers = {pair.name: pair.values.numbers for pair in found.pairs}["w.weight"]
    assert numbers.relative == float("inf")
    assert math.isnan(numbers.cosine)
    assert "infinity on one side only" in found.summary


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_very_large_values(compared, scale):
    """Squares that float32 cannot hold are computed in float64."""
    a, b = torch.randn(1000) * scale, torch.randn(1000) * scale
    numbers = only(compared({"w": a}, {"w": b})).numbers
    apart = (a.double() - b.double()).norm() / a.double().norm()
    assert numbers.relative == pytest.approx(apart.item(), rel=1e-5)


def test_another_dtype(compared):
    """A cast is told as such, and whether every value is exactly what converting gives."""
    state = transformer()
    half = {key: value.bfloat16() for key, value in state.items()}
    for a, b in ((state, half), (half, state)):
        found = compared(a, b)
        assert {pair.values.verdict for pair in found.pairs} == {Verdict.ROUNDED} and not found.same
        assert found.summary.startswith("same weights, different dtype (") and "exactly converted" in found.summary
    found = compared(state, changed(half, lambda key: key == "head.bias", 0.5))
    assert found.summary.startswith("identical except for the head (head)")


def test_a_layer_of_a_block_is_no_head(compared):
    """GPT-2 calls a layer of every block c_fc, which is also what heads are called."""
    state = {f"h.{block}.mlp.{name}.weight": torch.randn(4, 4) for block in (0, 1) for name in ("c_fc", "c_proj")}
    found = compared(state, changed(state, lambda key: key == "h.1.mlp.c_fc.weight", 0.5))
    assert "head" not in found.summary and "h.1.mlp" in found.summary
    state = {"features.0.weight": torch.randn(4, 4), "classifier.6.weight": torch.randn(4, 4)}
    found = compared(state, changed(state, lambda key: key.startswith("classifier"), 0.5))
    assert found.summary == "identical except for the head (classifier.6)"


def test_the_head_alone(compared):
    """Fine-tuning of the head alone is told in a sentence, also where it has another shape."""
    state = transformer()
    for head in (changed(state, lambda key: key.startswith("head.")), state | {"head.weight": torch.randn(4, 128)}):
        assert compared(state, head).summary == "identical except for the head (head)"


def test_one_layer(compared):
    """Whole modules that changed are named, and that the rest is bit-equal."""
    state = transformer()
    found = compared(state, changed(state, lambda key: key.startswith("layers.1.")))
    assert found.summary == "all of layers.1 changed; the rest is bit-identical"
    assert found.ranks.full and not found.ranks.low


def test_everything(compared):
    """Where everything changed, how far is said."""
    state = transformer()
    found = compared(state, changed(state, lambda key: True))
    assert found.summary.startswith("all 21 tensors changed (relative L2 0.0")


def test_running_statistics_alone(compared):
    """Statistics of norms that moved are no change of weights."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    net(torch.randn(2, 3, 4, 4))
    found = compared(before, net.state_dict())
    assert found.summary == "identical except for running statistics and counters (3 tensors)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rank", [1, 8, 20])
def test_merged_adapters_are_told_by_their_rank(compared, dtype, rank):
    """A merged LoRA changes projections by a low rank, which rounding to bfloat16 does not hide."""
    state = transformer()
    merged = {
        key: value + (torch.randn(128, rank) @ torch.randn(rank, 128)) * 0.02 if "_proj" in key else value
        for key, value in state.items()
    }
    found = compared(*({key: value.to(dtype) for key, value in each.items()} for each in (state, merged)))
    assert {each.rank for each in found.ranks.low} == {rank} and not found.ranks.full
    assert found.summary.startswith(f"low-rank change in attention projections (12 tensors; rank {rank} at most in")
    assert found.summary.endswith("the rest is bit-identical")


def test_a_dense_change_has_no_low_rank(compared):
    """Noise is not taken for a low rank, nor is what rounding alone explains."""
    state = {key: value for key, value in transformer().items() if "_proj" in key}
    half = {key: value.bfloat16() for key, value in state.items()}
    for by in (1e-3, 1e-4, 1.0):
        found = compared(half, {key: value.bfloat16() for key, value in changed(state, lambda key: True, by).items()})
        assert not found.ranks.low and found.ranks.full


def test_tolerances(compared):
    """What is within the tolerances is the same, and what is not is counted."""
    a, b = torch.ones(100), torch.ones(100)
    b[:3] += 0.01
    assert compared({"w": a}, {"w": b}, atol=0.02).same
    assert compared({"w": a}, {"w": b}, rtol=0.02).same
    found = compared({"w": a}, {"w": b}, atol=0.001)
    assert not found.same and only(found).numbers.beyond == 3
    assert compared({"w": a}, {"w": b}, atol=0.02).summary == "equal within the tolerances"


def test_tied_tensors_are_compared_once(compared, monkeypatch):
    """Tensors that are one in both files are read once, and told under both names."""
    table = torch.randn(50, 8)
    read = []
    same = diff_bytes.Blocks.same
    monkeypatch.setattr(diff_bytes.Blocks, "same", lambda self, run: read.append(run) or same(self, run))
    found = compared({"wte": table, "lm_head": table}, {"wte": table, "lm_head": table})
    assert found.same and len(read) == 1
    found = compared({"wte": table, "lm_head": table}, {"wte": table.clone(), "lm_head": table + 1})
    assert [pair.values.verdict for pair in found.pairs] == [Verdict.EQUAL, Verdict.CHANGED]


def test_renamed_by_content(compared):
    """Tensors whose names say nothing are found by what they hold; what is there twice tells nothing."""
    torch.manual_seed(0)
    same = torch.ones(40)
    a = {f"conv{i}.weight": torch.randn(8, 5) for i in range(4)} | {"p": same, "q": same.clone()}
    b = {f"z{i}": value for i, value in enumerate(reversed(list(a.values())[:4]))} | {"r": same, "s": same.clone()}
    found = compared(a, b)
    pairs = {pair.name: pair.name_b for pair in found.pairs if a[pair.name].shape == (8, 5)}
    assert pairs == {f"conv{i}.weight": f"z{3 - i}" for i in range(4)} and all(pair.settled for pair in found.pairs)


def test_layouts_of_memory_do_not_matter(compared):
    """Strided views, channels-last and transposed tensors are compared by their elements."""
    a = torch.randn(6, 5, 7, 7)
    for b in (a.contiguous(memory_format=torch.channels_last), a.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)):
        assert compared({"w": a}, {"w": b}).same and compared({"w": b}, {"w": b}).same
        assert only(compared({"w": a}, {"w": b + 1})).numbers.largest == pytest.approx(1, rel=1e-5)
    base = torch.randn(40)
    assert compared({"w": base[::2]}, {"w": base[::2].clone()}).same


def test_an_expanded_view_takes_no_time(compared):
    """A view that shows one element a billion times is not compared."""
    huge = torch.zeros(1).expand(1 << 40)
    found = compared({"w": huge}, {"w": huge})
    assert only(found).verdict is Verdict.NOT_COMPARED and not found.same
    assert found.summary == "1 of 1 tensor could not be compared"


@pytest.mark.filterwarnings(
    "ignore:Sparse:UserWarning", "ignore:.*beta state:UserWarning", "ignore:.*are deprecated:UserWarning"
)
def test_sparse_and_quantized(compared):
    """Sparse tensors are compared by places and values, quantized ones by their bytes."""
    dense = torch.randn(6, 6).relu()
    other = dense.clone()
    other[dense > 0] += 1
    assert compared({"w": dense.to_sparse()}, {"w": dense.to_sparse()}).same
    assert only(compared({"w": dense.to_sparse()}, {"w": other.to_sparse()})).numbers.largest == pytest.approx(1)
    one, two = (torch.quantize_per_tensor(each, 0.1, 0, torch.qint8) for each in (dense, other))
    assert compared({"w": one}, {"w": one}).same
    assert only(compared({"w": one}, {"w": two})).verdict is Verdict.OTHER_BYTES


def test_float4_has_no_figures(tmp_path):
    """Packed dtypes are compared by their bytes alone."""
    header = b'{"w":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}}   '
    for name, data in (("a", b"\1\2\3\4"), ("b", b"\1\2\3\5")):
        (tmp_path / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    pair = str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")
    assert only(diff(DiffRequest(*pair), compare_values)).verdict is Verdict.OTHER_BYTES
    assert diff(DiffRequest(pair[0], pair[0]), compare_values).same


def test_safetensors_and_compressed_and_old_files(tmp_path):
    """The container does not matter to values: safetensors, the old format of torch, deflated records."""
    state = transformer()
    torch.save(state, tmp_path / "a.pt")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    save_file(state, tmp_path / "b.safetensors")
    with zipfile.ZipFile(tmp_path / "a.pt") as source, zipfile.ZipFile(tmp_path / "packed.pt", "w", 8) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    for other in ("old.pt", "b.safetensors", "packed.pt"):
        found = diff(DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / other)), compare_values)
        assert found.same, (other, found.summary)


def test_big_endian_files(tmp_path):
    """Values of a big-endian machine are the same values."""
    state = {"w": torch.randn(100), "n": torch.arange(9)}
    torch.save(state, tmp_path / "a.pt")
    torch.save({key: value.clone() for key, value in state.items()}, tmp_path / "b.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as source, zipfile.ZipFile(tmp_path / "b.pt", "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name:
                width = 4 if name.endswith("/0") else 8
                data = b"".join(data[i : i + width][::-1] for i in range(0, len(data), width))
            target.writestr(name, data)
    assert diff(DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt")), compare_values).same


def test_optimizer_states(compared):
    """Moments that differ are told beside the weights."""
    net = torch.nn.Linear(30, 20)
    optimizer = torch.optim.AdamW(net.parameters())

    def state():
        copied = {key: value.clone() for key, value in net.state_dict().items()}
        moments = optimizer.state_dict()
        return {"model": copied, "optimizer": {**moments, "state": {k: dict(v) for k, v in moments["state"].items()}}}

    net(torch.rand(4, 30)).sum().backward()
    optimizer.step()
    a, b = state(), state()
    b["optimizer"]["state"][0]["exp_avg"] = b["optimizer"]["state"][0]["exp_avg"] + 1
    found = compared(a, b)
    assert found.summary == "identical, bit for bit; 1 of 6 tensors other than the weights differs"


def test_another_shape_with_the_same_values(compared):
    """The same values in another shape are equal, but not the same."""
    found = compared({"w": torch.arange(12.0)}, {"w": torch.arange(12.0).view(3, 4)})
    assert only(found).verdict is Verdict.EQUAL and not found.same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [(40, 90), (64, 64), (700, 300)], ids=str)
def test_transposed_matrices(compared, dtype, shape):
    """A matrix with rows and columns exchanged is told by its values, square ones and cast ones too."""
    torch.manual_seed(0)
    a = torch.randn(shape) if dtype != torch.int8 else torch.randint(-99, 99, shape, dtype=torch.int8)
    for b in (a.t().contiguous(), a.t(), a.t().contiguous().to(dtype)):
        found = compared({"fc.weight": a, "norm": torch.ones(3)}, {"fc.weight": b, "norm": torch.ones(3)})
        (pair, _) = found.pairs
        assert pair.transposed and pair.settled and not found.same
        assert "1 matrix transposed" in found.summary and found.summary.startswith("same weights, ")


def test_what_is_not_transposed(compared):
    """Other values in a transposed shape, a square matrix with noise, and equal ones are not taken for transposed."""
    torch.manual_seed(0)
    a = torch.randn(50, 50)
    for one, other in (
        (torch.randn(40, 90), torch.randn(90, 40)),
        (a, a + 0.01 * torch.randn_like(a)),
        (a, torch.randn(50, 50)),
        (a + a.t(), (a + a.t()).t()),
        (torch.arange(6.0).view(6, 1), torch.arange(6.0).view(1, 6)),
    ):
        assert not any(pair.transposed for pair in compared({"w": one}, {"w": other}).pairs)
    close = compared({"w": torch.ones(3, 5)}, {"w": torch.full((5, 3), 1.01)}, atol=0.1)
    assert close.pairs[0].transposed and only(close).verdict is Verdict.CLOSE


def test_how_far_it_is(tmp_path):
    """Bytes of both sides are counted up to their total, and whoever waits can end it."""
    state = transformer()
    for name, contents in (("a.pt", state), ("b.pt", changed(state, lambda key: "layers" in key))):
        torch.save(contents, tmp_path / name)
    request = DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))
    heard = []
    found = diff(
        request, lambda *all: compare_values(*all[:3], Work(listener=lambda progress: heard.append(progress.done)))
    )
    assert max(heard) == bytes_to_compare(found) == 2 * sum(value.nbytes for value in state.values())

    def end(progress):
        raise StoppedError

    with pytest.raises(StoppedError):
        diff(request, lambda *all: compare_values(*all[:3], Work(listener=end)))


def test_contents_that_are_looked_for_count(tmp_path):
    """Tensors without a counterpart are read once, and count for that."""
    state = {f"a{i}": torch.randn(50, 20) for i in range(4)}
    torch.save(state, tmp_path / "a.pt")
    torch.save({f"b{i}": value for i, value in enumerate(state.values())}, tmp_path / "b.pt")
    request = DiffRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))
    heard, totals = [], []

    def measure(found, a, b, work):
        totals.append(bytes_to_compare(found))
        return compare_values(found, a, b, Work(listener=lambda progress: heard.append(progress.done)))

    assert len(diff(request, measure).pairs) == 4
    assert max(heard) == totals[0]


@pytest.mark.slow
def test_files_are_not_held(tmp_path):
    """The peak of memory does not grow with the files: it is far less than one of them."""
    import subprocess
    import sys

    for name, by in (("a.pt", 0), ("b.pt", 1)):
        torch.save({f"w{i}": torch.full((4_000_000,), float(i + by)) for i in range(10)}, tmp_path / name)
    code = (
        "import resource, torch\n"
        "import ckptdoctor\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert not ckptdoctor.diff('a.pt', 'b.pt', values=True).same\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 80_000  # kB; each file has 160 MB
