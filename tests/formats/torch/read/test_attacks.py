from __future__ import annotations

import pickle

import pytest
import torch

from ckptdoctor.checkpoint import Cycle, Elided, Mapping, NoteKind, Opaque, Special, Tensor, at, walk
from ckptdoctor.formats.torch.read import tree
from tests.formats.torch.read.support import Saved, contents_of_bytes, load, save
from tests.work import counted, growth

TENSOR = save(torch.arange(6.0).view(2, 3)).data
HUGE = 1 << 70


def tensor_pickle(offset=0, size=(2, 3), stride=(3, 1), numel=6, key="0", kind="FloatStorage", location="cpu"):
    """A pickle of {"x": a tensor} with anything for its numbers."""
    return b"".join([b"\x80\x02}", pickled("x"), *tensor_ops(offset, size, stride, numel, key, kind, location), b"s."])


def pickled(value):
    """The opcodes of a plain value alone."""
    return pickle.dumps(value, 2)[2:-1]


def tensor_ops(offset, size, stride, numel, key, kind, location):
    yield b"ctorch._utils\n_rebuild_tensor_v2\n(("
    yield pickled("storage") + b"ctorch\n%s\n" % kind.encode()
    yield pickled(key) + pickled(location) + pickled(numel) + b"tQ"
    yield pickled(offset) + pickled(size) + pickled(stride) + b"\x89"
    yield b"ccollections\nOrderedDict\n)RtR"


def test_the_pickle_of_the_tests_is_sound():
    """With true numbers the hand-made pickle is a tensor without a note."""
    got = contents_of_bytes(tensor_pickle())
    assert isinstance(at(got.tree, ("x",)), Tensor)
    assert got.notes == ()


@pytest.mark.parametrize(
    "numbers",
    [
        {"offset": 1},
        {"offset": 1 << 62},
        {"size": (2, 4)},
        {"stride": (1 << 40, 1)},
        {"numel": 5},
        {"numel": 0},
        {"size": (1 << 30, 1 << 30), "stride": (0, 1)},
    ],
)
def test_a_view_past_its_storage_is_noted(numbers):
    """The tensor is shown, and a note says by its path that it reaches too far."""
    got = contents_of_bytes(tensor_pickle(**numbers))
    assert isinstance(at(got.tree, ("x",)), Tensor)
    assert [note.kind for note in got.notes] == [NoteKind.TENSOR_OUT_OF_BOUNDS]
    assert got.notes[0].message.startswith("x reaches to element ")


@pytest.mark.parametrize(
    "numbers",
    [
        {"offset": -1},
        {"offset": HUGE},
        {"offset": 1.0},
        {"offset": True},
        {"offset": None},
        {"size": (-2, 3)},
        {"size": (HUGE, 3)},
        {"size": (1 << 62, 1 << 62), "stride": (0, 0)},
        {"size": (2,)},
        {"size": 7},
        {"size": ("2", 3)},
        {"size": [2, 3]},
        {"size": (1,) * 65, "stride": (1,) * 65},
        {"stride": (-1, 1)},
        {"stride": (HUGE, 1)},
        {"stride": (1 << 62, 1 << 62), "size": (3, 3)},
        {"numel": -1},
        {"numel": HUGE},
        {"numel": "6"},
        {"numel": 10**4299},
        {"kind": "NoStorage"},
        {"kind": "Tensor"},
        {"key": None},
        {"key": (1, 2)},
        {"location": 3},
    ],
)
def test_numbers_that_no_tensor_has_make_an_object_with_a_note(numbers):
    """Nothing is raised: the call is shown as it is, and a note says what is impossible about it."""
    got = contents_of_bytes(tensor_pickle(**numbers))
    node = at(got.tree, ("x",))
    assert isinstance(node, Opaque)
    assert node.class_name == "torch._utils._rebuild_tensor_v2"
    assert [note.kind for note in got.notes] == [NoteKind.TENSOR_ODD]
    assert got.notes[0].message.startswith("x cannot be a tensor: ")
    assert all(tensor.rebuild == "torch.FloatStorage" for tensor in got.tensors)


def two_tensors(**other):
    first = {
        "offset": 0,
        "size": (2,),
        "stride": (1,),
        "numel": 6,
        "key": "0",
        "kind": "FloatStorage",
        "location": "cpu",
    }
    ops = [*tensor_ops(**first), *tensor_ops(**{**first, **other})]
    return contents_of_bytes(b"\x80\x02" + b"".join(ops) + b"\x86.")


@pytest.mark.parametrize("other", [{"kind": "HalfStorage"}, {"location": "cuda:0"}, {"numel": 7}])
def test_one_storage_described_twice_is_noted_once(other):
    """A second statement that differs in dtype, device or length is told; the first one counts, as for torch."""
    got = two_tensors(**other)
    assert [note.kind for note in got.notes] == [NoteKind.TENSOR_ODD]
    assert "storage 0 is described twice" in got.notes[0].message
    assert len(got.storages) == 1
    assert got.tensors[1].dtype.name == "float32"


def test_equal_statements_are_no_contradiction():
    """Two tensors on one storage are the usual case."""
    assert two_tensors().notes == ()


STORAGE = pickled("storage") + b"ctorch\nFloatStorage\n" + pickled("0") + pickled("cpu")


@pytest.mark.parametrize(
    "identity",
    [
        b"K\x05",
        pickled("0"),
        b"]" + pickled("0") + b"a",
        b"(" + STORAGE + b"K\x06Nt",
        b"(" + STORAGE + b"t",
        b"(" + pickled("module") + b"cm\nC\n" + pickled("file") + pickled("source") + b"t",
        b"(" + pickled("other") + b"ctorch\nFloatStorage\n" + pickled("0") + pickled("cpu") + b"K\x06t",
        b"(" + STORAGE.replace(pickled("0"), b"C\x010") + b"K\x06t",
    ],
)
def test_references_that_torch_does_not_know_are_noted(identity, tmp_path):
    """A persistent id that is no tuple of five parts, or whose key is no text: by its key path, and as an error."""
    data = b"\x80\x03}" + pickled("x") + identity + b"Qs."
    got = contents_of_bytes(data)
    assert [note.kind for note in got.notes] == [NoteKind.TENSOR_ODD]
    assert got.notes[0].message == "x is a reference that torch does not know; torch rejects the file"
    for weights_only in (True, False):
        with pytest.raises(Exception):  # noqa: B017  # each is refused in other words
            load(Saved(data, {"0": bytes(24)}), weights_only=weights_only)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    ("change", "torch_reads"),
    [
        (b"}" + pickled("dtype") + b"ctorch\nfloat16\nsb", [True, False]),  # another dtype for the same bytes
        (b"K\x00G\x40\x22" + bytes(6) + b"s", [False]),  # the first element is 9
    ],
    ids=["BUILD", "SETITEM"],
)
def test_a_storage_that_is_changed_is_noted(change, torch_reads):
    """What is done to a storage reaches every tensor that is made of it afterwards."""
    tensor = b"".join(tensor_ops(0, (2,), (1,), 6, "0", "FloatStorage", "cpu"))
    data = b"\x80\x02}" + pickled("x") + tensor.replace(b"tQ", b"tQ" + change) + b"s."
    got = contents_of_bytes(data)
    assert [note.kind for note in got.notes] == [NoteKind.TENSOR_STATE]
    for weights_only in torch_reads:
        made = load(Saved(data, {"0": bytes(24)}), weights_only=weights_only)["x"]
        assert made.dtype is torch.float16 or made[0] == 9


@pytest.mark.parametrize("arguments", [b"N", b")", b"(K\x01t", b"(NNNNNNt", b"(" + b"N" * 30 + b"t", b"K\x01", b"}"])
@pytest.mark.parametrize(
    "function",
    [
        *(f"torch._utils\n_rebuild_{name}" for name in ("tensor", "tensor_v2", "tensor_v3", "parameter", "qtensor")),
        *(f"torch._utils\n_rebuild_{name}" for name in ("sparse_tensor", "nested_tensor", "wrapper_subclass")),
        *(f"torch._utils\n_rebuild_{name}" for name in ("meta_tensor_no_storage", "device_tensor_from_numpy")),
        *("torch._tensor\n_rebuild_from_type_v2", "torch._utils\n_rebuild_device_tensor_from_cpu_tensor"),
        *("collections\nOrderedDict", "collections\ndefaultdict", "collections\nCounter", "torch\nSize"),
        *("builtins\nset", "_codecs\nencode", "torch.serialization\n_get_layout", "torch\ndevice"),
    ],
)
def test_calls_with_wrong_arguments_are_shown(function, arguments):
    """Any arguments to any function that is known are survived."""
    got = contents_of_bytes(b"\x80\x02c" + function.encode() + b"\n" + arguments + b"R.")
    assert not isinstance(got.tree, Tensor)


def test_repeated_keys_are_noted_and_the_last_value_wins():
    """As in Python, a repeated key keeps its place and takes the last value; 1, 1.0 and True are one key."""
    got = contents_of_bytes(b"\x80\x02}(" + b"".join(map(pickled, ["a", 1, "b", 2, "a", 3])) + b"u.")
    assert got.tree == Mapping("dict", (("a", 3), ("b", 2)))
    assert [(note.kind, note.message.split(":")[0]) for note in got.notes] == [(NoteKind.DUPLICATE_KEY, "a")]
    got = contents_of_bytes(b"\x80\x02}(" + b"".join(map(pickled, [1, "x", True, "y", 1.0, "z", None, 1])) + b"u.")
    assert got.tree.entries == ((1, "z"), (Special("None"), 1))


def test_the_storage_of_an_overwritten_tensor_is_still_listed():
    """torch loads what a repeated key overwrites, so its storage belongs to the file."""
    numbers = {"offset": 0, "size": (2,), "stride": (1,), "numel": 2, "kind": "FloatStorage", "location": "cpu"}
    one, two = (pickled("x") + b"".join(tensor_ops(key=key, **numbers)) for key in "01")
    got = contents_of_bytes(b"\x80\x02}(" + one + two + b"u.")
    assert [tensor.storage.key for tensor in got.tensors] == ["1"]
    assert {storage.key for storage in got.storages} == {"0", "1"}


DEPTHS = [pytest.param(100_000), pytest.param(1_000_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_nesting_is_cut_off(depth):
    """Lists in lists end in an Elided with a note, without recursion."""
    got = contents_of_bytes(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")
    assert [note.kind for note in got.notes] == [NoteKind.NOT_EXAMINED]
    assert any(isinstance(node, Elided) for _, node in walk(got.tree))
    assert got.tree == got.tree


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b"ctorch\nSize\n", b"\x85R"),
        (b"ctorch._utils\n_rebuild_parameter\n", b"\x89N\x87R"),
        (b"ctorch._tensor\n_rebuild_from_type_v2\nctorch._tensor\n_rebuild_from_type_v2\n(cx\ny\n", b"NtN\x87\x85R"),
        (b"ccollections\nOrderedDict\n", b"\x85R"),
        (b"cbuiltins\nset\n", b"\x85R"),
        (b"c__main__\nA\n)\x81", b"b"),
        (b"(", b"t"),
    ],
)
@pytest.mark.parametrize("depth", [pytest.param(20_000), pytest.param(100_000, marks=pytest.mark.slow)])
def test_deep_calls_are_cut_off(head, tail, depth):
    """Calls nested deeper than any stack are survived, whatever they call, for as much work each as a tenth of them."""

    def contents(depth):
        return contents_of_bytes(b"\x80\x02" + head * depth + b"N" + tail * depth + b".")

    assert growth(contents, depth // 10, depth, runs=1) < 40


@pytest.fixture(params=[20_000, pytest.param(tree._LEAST_NODES, marks=pytest.mark.slow)])
def budget(request, monkeypatch):
    """How many values a tree may have at least: the tests ask for fewer than people get, but for the slow ones."""
    monkeypatch.setattr(tree, "_LEAST_NODES", request.param)
    return request.param


def test_billion_laughs_are_cut_off(budget):
    """Lists that hold the next list ten times over reach the budget, not the memory's end."""
    data = (
        b"\x80\x02]" + b"q\x00" + b"".join(b"](" + b"h%c" % level * 10 + b"eq%c" % (level + 1) for level in range(40))
    )
    got = contents_of_bytes(data + b".")
    assert [note.kind for note in got.notes] == [NoteKind.NOT_EXAMINED]


def test_shared_wrappers_do_not_multiply_without_end(budget):
    """Wrapper subclasses that each hold the next one ten times over are cut off, too."""
    wrapper = (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\nca\nB\n"
        b"(ca\nB\nctorch\nfloat32\n))K\x00ctorch.serialization\n_get_layout\n"
        + pickled("torch.strided")
        + b"\x85R"
        + pickled("cpu")
        + b"\x89t}("
    )
    data = b"\x80\x02" + b"".join(tensor_ops(0, (1,), (1,), 1, "0", "FloatStorage", "cpu")) + b"q\x00"
    for level in range(30):
        inside = b"".join(pickled(f"a{number}") + b"h%c" % level for number in range(10))
        data += wrapper + inside + b"utRq%c" % (level + 1)
    assert counted(contents_of_bytes, data + b".")[1] < 10_000_000


def test_colliding_integer_keys_cost_nothing():
    """Twenty thousand keys with one hash are ten times the work of two thousand, because none of them is hashed."""
    modulus = (1 << 61) - 1
    keys = [pickled(modulus * number) + b"N" for number in range(1, 20_001)]

    def contents(number):
        return contents_of_bytes(b"\x80\x02}(" + b"".join(keys[:number]) + b"u.")

    assert len(contents(20_000).tree.entries) == 20_000
    assert growth(contents, 2_000, 20_000) < 40


def test_keys_of_nested_tuples_are_survived():
    """A key of tuples in tuples is described, not spelt out."""

    def contents(depth):
        return contents_of_bytes(b"\x80\x02}" + b")" + b"\x85" * depth + b"Ns.")

    assert isinstance(contents(100_000).tree, Mapping)
    assert growth(contents, 10_000, 100_000) < 40


def test_an_object_that_is_its_own_state_is_a_cycle():
    """BUILD with the object itself comes round once."""
    got = contents_of_bytes(b"\x80\x02ca\nB\n)\x81q\x00h\x00b.")
    assert got.tree == Opaque("a.B", (), Cycle(()))


def test_integers_too_large_to_print_are_survived():
    """Values, keys and sizes of more digits than Python prints do not raise."""
    number = b"\x8b" + (5000).to_bytes(4, "little") + b"\x7f" * 5000
    got = contents_of_bytes(b"\x80\x02}(" + number + number + b"u.")
    assert got.tree.entries[0][0] == Special("(integer of 39999 bits)")
    contents_of_bytes(tensor_pickle(size=(1, 2)).replace(b"K\x01", number))
