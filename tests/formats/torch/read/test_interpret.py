from __future__ import annotations

import argparse
import enum
import pathlib
import warnings
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass

import numpy
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from ckptdoctor.checkpoint import Cycle, Mapping, Named, Opaque, Sequence, Special, Tensor, at, walk
from tests.builders import tagged
from tests.formats.torch.read.support import contents_of, load, save

UTILS = "torch._utils._rebuild_"

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse (CSR|CSC|BSR|BSC)", "ignore:The PyTorch API of nested", "ignore:torch.quantize_per_tensor"
)

DTYPES = [
    *("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64", "int32", "int16"),
    *("int8", "uint64", "uint32", "uint16", "uint8", "bool", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits1x8"),
]


class Attributed(torch.Tensor):
    """A subclass with storage of its own."""


class Colour(enum.Enum):
    RED = 1

    def __reduce_ex__(self, protocol):  # as all Pythons but 3.11.0 to 3.11.3 have it
        return self.__class__, (self._value_,)


@dataclass
class Config:
    width: int
    weight: torch.Tensor


Point = namedtuple("Point", "x y")


class Attributes(dict):
    pass


def only(value):
    """The single tensor of what torch saved."""
    got = contents_of({"x": value})
    assert got.notes == ()
    assert at(got.tree, ("x",)) is got.tensors[0]
    (tensor,) = got.tensors
    return tensor


def assert_same_view(got: Tensor, tensor: torch.Tensor):
    assert got.shape == tuple(tensor.shape)
    assert got.stride == tuple(tensor.stride())
    assert got.offset == tensor.storage_offset()
    assert got.dtype.name == str(tensor.dtype).removeprefix("torch.")
    assert got.requires_grad == tensor.requires_grad
    assert got.storage.nbytes == tensor.untyped_storage().nbytes()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_read(name):
    """A tensor of each dtype has its shape, strides, offset and storage length; the storage has its dtype."""
    dtype = getattr(torch, name)
    storage = torch.UntypedStorage(dtype.itemsize * 20)
    tensor = torch.empty(0, dtype=dtype).set_(storage, 2, (3, 2), (4, 1))
    got = only(tensor)
    assert_same_view(got, tensor)
    assert got.storage.dtype is got.dtype


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.0),
        torch.empty(0),
        torch.empty(3, 0, 2),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(1).expand(5, 7),
        torch.arange(10)[::3],
        torch.ones(3, requires_grad=True),
        torch.ones([1] * 40),
    ],
    ids=lambda tensor: "x".join(map(str, tensor.shape[:4])) or "scalar",
)
def test_every_kind_of_view_is_read(tensor):
    """Scalars, empty, transposed, expanded and stepped views are read as torch sees them."""
    assert_same_view(only(tensor), tensor)


def test_conj_and_neg_bits_are_details():
    """The lazily conjugated and negated views carry their bits."""
    assert only(torch.ones(2, dtype=torch.complex64).conj()).details == (("conj", True),)
    negated = torch._neg_view(torch.ones(2))
    assert only(negated).details == (("neg", True),)


def test_parameters_are_told_from_tensors():
    """A Parameter has its flag and its own requires_grad, with and without attributes."""
    plain = only(torch.nn.Parameter(torch.ones(2, 2).t(), requires_grad=False))
    assert (plain.is_parameter, plain.requires_grad, plain.stride) == (True, False, (1, 2))
    marked = torch.nn.Parameter(torch.ones(3))
    marked.sharded = True
    got = only(marked)
    assert (got.is_parameter, got.requires_grad) == (True, True)
    assert got.rebuild == f"{UTILS}parameter_with_state"


def test_tensors_in_attributes_are_not_passed_over():
    """A tensor that hangs on a Parameter has no place in the tree; its storage is listed, and a note says so."""
    marked = torch.nn.Parameter(torch.ones(3))
    marked.main_grad = torch.ones(3)
    got = contents_of([marked])
    assert len(got.storages) == 2
    assert "1 storage belongs to values that the tree does not show" in got.notes[0].message


def test_sharing_is_kept():
    """Two views of one memory have one Storage, asked for once; the same tensor under two keys is two Tensors."""
    base = torch.arange(10.0)
    got = contents_of({"a": base, "b": base[3:].view(7), "c": base, "d": base.clone()})
    a, b, c, d = got.tensors
    assert a.storage is b.storage is c.storage
    assert d.storage is not a.storage
    assert (b.offset, c.path) == (3, ("c",))
    assert [storage.key for storage in got.storages] == ["0", "1"]


@pytest.mark.parametrize("tag", ["cuda:0", "cuda:7", "mps", "xpu:1", "hpu"])
def test_device_tags_are_those_of_the_file(tag):
    """The tag in the persistent id is the device of storage and tensor."""
    got = only(tagged(torch.ones(2), tag))
    assert (got.device, got.storage.device) == (tag, tag)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
def test_sparse_tensors_are_made_of_parts(layout):
    """Indices and values are parts with storages; shape and dtype are those of the whole."""
    dense = torch.eye(4)
    blocks = {"blocksize": (2, 2)} if layout in ("sparse_bsr", "sparse_bsc") else {}
    got = only(dense.to_sparse(layout=getattr(torch, layout), **blocks))
    assert (got.layout, got.shape, got.dtype.name) == (layout, (4, 4), "float32")
    assert got.storage is None
    assert got.parts[-1].path == ("x", Special(".values"))
    assert [part.dtype.name for part in got.parts[:-1]] == ["int64"] * (len(got.parts) - 1)
    assert got.details == ((("coalesced", True),) if layout == "sparse_coo" else ())


def test_quantized_tensors_have_scheme_and_scale():
    """Per tensor: scale and zero point as details; per channel: as parts, with the axis."""
    one = only(torch.quantize_per_tensor(torch.rand(2, 3), 0.5, 3, torch.quint8))
    assert one.details == (("scheme", "per_tensor_affine"), ("scale", 0.5), ("zero_point", 3))
    assert (one.dtype.name, one.storage.nbytes) == ("quint8", 6)
    zeros = torch.zeros(3, dtype=torch.int64)
    many = only(torch.quantize_per_channel(torch.rand(2, 3), torch.rand(3), zeros, 1, torch.qint8))
    assert dict(many.details)["axis"] == 1
    assert [part.shape for part in many.parts] == [(3,), (3,)]


def test_meta_tensors_have_no_storage():
    """Shape and strides without bytes."""
    got = only(torch.empty(3, 2, device="meta").t())
    assert (got.device, got.storage, got.shape, got.stride) == ("meta", None, (2, 3), (1, 2))


def test_nested_tensors_are_made_of_parts():
    """Both kinds of nested tensors hold their values and offsets as parts."""
    pieces = [torch.ones(2, 3), torch.ones(4, 3)]
    strided = only(torch.nested.nested_tensor(pieces))
    assert strided.layout == "jagged"
    assert len(strided.parts) == 4
    jagged = contents_of(torch.nested.nested_tensor(pieces, layout=torch.jagged)).tensors[0]
    assert (jagged.layout, jagged.subclass) == ("jagged", "torch.nested._internal.nested_tensor.NestedTensor")
    assert [part.path[-1].text for part in jagged.parts] == [".values", ".offsets"]


def test_subclasses_are_named():
    """A subclass with a storage keeps it; a wrapper is made of the tensors it holds."""
    own = only(torch.ones(2).as_subclass(Attributed))
    assert own.subclass == f"{__name__}.Attributed"
    assert own.storage.nbytes == 8
    wrapper = only(TwoTensor(torch.ones(2, 3), torch.zeros(2, 3)))
    assert wrapper.subclass.endswith("TwoTensor")
    assert wrapper.shape == (2, 3)
    assert [part.path[-1] for part in wrapper.parts] == [Special(".a"), Special(".b")]


def test_a_plain_tensor_with_attributes_is_no_subclass():
    """torch writes a tensor with Python attributes as a subclass of Tensor itself."""
    tensor = torch.ones(2)
    tensor.note = "x"
    assert only(tensor).subclass is None


def test_dtensors_are_made_of_their_local_tensor(tmp_path):
    """A DTensor has its global shape, and its local shard as a part."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = contents_of({"x": DTensor.from_local(torch.ones(4, 2), mesh, [Shard(0)])}).tensors[0]
    finally:
        dist.destroy_process_group()
    assert got.subclass == "torch.distributed.tensor.DTensor"
    assert got.shape == (4, 2)
    assert [part.path[-1] for part in got.parts] == [Special("._local_tensor")]
    assert got.parts[0].storage.nbytes == 32


class Rebuilt:
    """Pickles as a call of one of torch's rebuilding functions that only other devices use."""

    def __init__(self, name, *arguments):
        self.call = getattr(torch._utils, name), arguments

    def __reduce__(self):
        return self.call


def test_tensors_of_devices_without_storages():
    """XLA and other tensors, saved by way of NumPy or of a CPU tensor, carry their own device."""
    array = numpy.ones((2, 3), dtype="float32")
    for name in ("_rebuild_device_tensor_from_numpy", "_rebuild_xla_tensor"):
        got = only(Rebuilt(name, array, torch.float32, "xla:1", True))
        assert (got.shape, got.stride, got.device, got.storage) == ((2, 3), (3, 1), "xla:1", None)
        assert got.requires_grad
    cpu = only(Rebuilt("_rebuild_device_tensor_from_cpu_tensor", torch.ones(2), torch.float32, "mtia:0", False))
    assert (cpu.device, cpu.storage.device, cpu.storage.nbytes) == ("mtia:0", "cpu", 8)


def test_storages_on_their_own_are_flat_tensors():
    """A saved storage is shown as the flat tensor of its bytes, and is no entry of a state dict."""
    got = contents_of({"x": torch.UntypedStorage(6)})
    assert (got.tensors[0].shape, got.tensors[0].dtype.name) == ((6,), "uint8")
    assert got.tensors[0].rebuild == "torch.storage.UntypedStorage"
    assert got.state_dicts == ()


# ---- everything that is no tensor


def test_containers_are_shown_by_their_kind():
    """dicts, lists, tuples, sets and their well-known relatives keep kind, order and contents."""
    value = {
        "ordered": OrderedDict([("b", 1), ("a", 2)]),
        "default": defaultdict(list, {"k": [1]}),
        "counter": Counter("aab"),
        "sub": Attributes(x=1),
        "tuple": (1, (2,), ()),
        "set": {7},
        "frozen": frozenset({8}),
        "size": torch.Size([2, 3]),
        "empty": [{}, [], set()],
    }
    tree = contents_of(value).tree
    assert at(tree, ("ordered",)) == Mapping("collections.OrderedDict", (("b", 1), ("a", 2)))
    assert at(tree, ("default",)).kind == "collections.defaultdict"
    assert at(tree, ("default", "k", 0)) == 1
    assert at(tree, ("default", Special(".default_factory"))) == Named("builtins.list")
    assert at(tree, ("counter",)) == Mapping("collections.Counter", (("a", 2), ("b", 1)))
    assert at(tree, ("sub",)) == Mapping(f"{__name__}.Attributes", (("x", 1),))
    assert at(tree, ("tuple",)) == Sequence("tuple", (1, Sequence("tuple", (2,)), Sequence("tuple", ())))
    assert at(tree, ("set",)) == Sequence("set", (7,))
    assert at(tree, ("frozen",)) == Sequence("frozenset", (8,))
    assert at(tree, ("size",)) == Sequence("torch.Size", (2, 3))
    assert at(tree, ("empty",)).items == (Mapping("dict", ()), Sequence("list", ()), Sequence("set", ()))


def test_the_containers_are_the_same_under_protocol_5():
    """What protocol 2 writes by calls and later ones by opcodes of their own is shown alike."""
    value = [{7}, frozenset({8}), b"\xff", OrderedDict(a=1), Counter("a"), 2**70, "é", 1.5, None, True]
    assert contents_of(value, 5).tree == contents_of(value, 2).tree


def test_plain_values_are_themselves():
    """Numbers, text, bytes, dtypes and layouts are shown as values and names."""
    value = [None, True, -1, 2**80, 1.5, "x", b"\x00\xff", torch.bfloat16, torch.sparse_csr, torch.per_tensor_affine]
    assert contents_of(value).tree.items == (
        *value[:7],
        Named("torch.bfloat16"),
        Named("torch.sparse_csr"),
        Named("torch.per_tensor_affine"),
    )


def test_objects_are_shown_and_never_made():
    """Objects of any class have their class name, the arguments of the call, and their state."""
    value = {
        "namespace": argparse.Namespace(lr=0.1, out=pathlib.PurePosixPath("a/b")),
        "colour": Colour.RED,
        "config": Config(3, torch.ones(2)),
        "point": Point(1, torch.ones(1)),
        "scalar": numpy.float64(1.5),
        "array": numpy.arange(3),
        "device": torch.device("cuda", 1),
        "range": range(3),
        "complex": 1 + 2j,
    }
    got = contents_of(value)
    tree = got.tree
    assert at(tree, ("namespace",)).class_name == "argparse.Namespace"
    assert at(tree, ("namespace", "lr")) == 0.1
    assert at(tree, ("namespace", "out")).class_name == f"{pathlib.PurePosixPath.__module__}.PurePosixPath"
    assert at(tree, ("colour",)) == Opaque(f"{__name__}.Colour", (1,))
    assert at(tree, ("config", "weight")).shape == (2,)
    assert at(tree, ("point", Special("(1)"))).path == ("point", Special("(1)"))
    assert at(tree, ("scalar",)).class_name.endswith("multiarray.scalar")
    assert at(tree, ("scalar", Special("(1)"))) == numpy.float64(1.5).tobytes()
    assert at(tree, ("array",)).class_name.endswith("multiarray._reconstruct")
    assert at(tree, ("device",)) == Opaque("torch.device", ("cuda", 1))
    assert at(tree, ("range",)) == Opaque("builtins.range", (0, 3, 1))
    assert at(tree, ("complex",)) == Opaque("builtins.complex", (1.0, 2.0))
    assert len(got.tensors) == 2


def test_a_whole_module_is_an_object_with_its_parameters():
    """A pickled module is no state dict; its parameters lie below it, ties included."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    net[1].weight = net[0].weight
    got = contents_of({"model": net, "epoch": 1})
    assert at(got.tree, ("model",)).class_name == "torch.nn.modules.container.Sequential"
    assert got.tensors[0].path == ("model", "_modules", "0", "_parameters", "weight")
    assert got.tensors[2].storage is got.tensors[0].storage
    assert got.state_dicts == ()


def test_odd_keys_are_steps_of_their_own():
    """Keys that are neither text nor integers are shown as they would be printed, and stay apart."""
    value = {1.5: "a", None: "b", (1, "x"): "c", b"k": "d", True: "e", torch.float32: "f", "1.5": "g", 2**70: "h"}
    parts = [part for part, _ in contents_of(value).tree.entries]
    assert parts == [
        *(Special("1.5"), Special("None"), Special("(1, 'x')"), Special("b'k'"), Special("True")),
        *(Special("<torch.float32>"), "1.5", Special(str(2**70))),
    ]


def test_attributes_of_dicts_are_kept():
    """The _metadata of a state dict is an attribute of it."""
    got = contents_of(torch.nn.Linear(1, 1).state_dict())
    metadata = at(got.tree, (Special("._metadata"),))
    assert metadata.entries == (("", Mapping("dict", (("version", 1),))),)
    assert got.state_dicts[0].metadata is metadata


def test_cycles_end():
    """Something that contains itself is shown once, with a Cycle where it comes round."""
    loop = {"a": []}
    loop["a"].append(loop)
    assert at(contents_of(loop).tree, ("a", 0)) == Cycle(())
    nested = ([],)
    nested[0].append(nested)
    assert at(contents_of(nested).tree, (0, 0)) == Cycle(())


def test_every_global_is_listed_with_its_place():
    """Each class and function that the pickle names is listed once, with member and byte offset."""
    saved = save({"x": torch.ones(1), "c": Colour.RED})
    got = contents_of({"x": torch.ones(1), "c": Colour.RED})
    assert [name.full for name in got.globals] == [
        "torch._utils._rebuild_tensor_v2",
        "torch.FloatStorage",
        "collections.OrderedDict",
        f"{__name__}.Colour",
    ]
    for name in got.globals:
        assert saved.data[name.offset :].startswith(f"c{name.module}\n{name.name}\n".encode())


def test_paths_of_tensors_lead_to_them():
    """Every tensor of the list is the node at its path, in the order of a walk."""
    net = torch.nn.Linear(2, 2)
    got = contents_of({"n": net, "s": net.state_dict(), "l": [torch.ones(1), (torch.ones(1), {3: torch.ones(1)})]})
    assert all(at(got.tree, tensor.path) is tensor for tensor in got.tensors)
    assert [path for path, node in walk(got.tree) if isinstance(node, Tensor)] == [each.path for each in got.tensors]


def test_the_helper_files_are_those_of_torch():
    """What the tests take apart and put together again, torch loads unchanged."""
    value = {"a": torch.arange(4.0), "b": [1, "x"]}
    assert torch.equal(load(save(value))["a"], value["a"])
