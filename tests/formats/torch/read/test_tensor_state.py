"""What state does to tensors: ours are what torch loads, or a finding says that they are not."""

from __future__ import annotations

import copyreg
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ckptdoctor
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.formats.torch.read import tensor_state
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest, substitution
from tests.commands import run
from tests.formats.torch.tar.support import UNFILTERED, tar_bytes

UTILS, TYPED = torch._utils, torch._tensor._rebuild_from_type_v2
pytestmark = pytest.mark.filterwarnings(
    "ignore:TypedStorage is deprecated", "ignore:Detected pickle protocol", "ignore:Casting complex"
)


# torch refuses the file, or loads other values than it shows; C105 is about storages that it cannot read
SAYING = ("C105", "F015", "F017")


@dataclass
class Call:
    """Pickles as a call with its state, which only torch makes, when it loads it."""

    kind: Any
    arguments: tuple[Any, ...]
    state: tuple[Any, ...] = ()  # none, or the one that BUILD gets

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return (self.kind, self.arguments, *self.state)


class New(Call):
    """Pickles as a new object of a class, for which the pickler insists on being one itself."""

    @property
    def __class__(self) -> Any:
        return self.kind

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return (copyreg.__newobj__, (self.kind, *self.arguments), *self.state)


# ---- what torch makes of a file, and what we do


def loaded(path: Any) -> list[Any]:
    """What torch.load returns, with and without weights_only, as far as it takes the file."""
    found = []
    for weights_only in (True, False):
        try:
            found.append(torch.load(path, weights_only=weights_only))
        except Exception:  # whatever it raises, it refuses the file
            continue
    return found


def bits(tensor: torch.Tensor) -> Any:
    """All that the values of a tensor are."""
    if tensor.layout is not torch.strided:
        indices = [] if tensor.layout is not torch.sparse_coo else tensor._indices().tolist()
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
        return str(tensor.layout), tuple(tensor.shape), indices, bits(values)
    plain = tensor.detach()
    if plain.is_meta:
        return "meta", str(plain.dtype), tuple(plain.shape)
    if plain.is_quantized:
        return "quantized", plain.dequantize().tolist()
    values = plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).flatten()
    shown = values.view(torch.uint8).tolist() if plain.numel() else []
    return str(plain.dtype), tuple(plain.shape), tuple(plain.stride()), shown


def agreed(path: Any) -> str:
    """The error that says why torch and we read a file otherwise; fails where we do and nothing says so."""
    report = check(str(path))
    found = [each for each in report.findings if each.code in SAYING and each.severity is Severity.ERROR]
    if found:
        return found[0].code
    theirs = loaded(path)
    assert theirs, "torch refuses the file, and nothing says so"
    ours = ckptdoctor.load(path)
    for each in theirs:
        for key, value in each.items():
            if isinstance(value, torch.Tensor) and isinstance(ours[key], torch.Tensor):
                assert bits(ours[key]) == bits(value), key
            elif isinstance(value, torch.Tensor):
                shown = {type(ours[key]).__name__}
                assert shown == {"Inert"}, key  # an object as the file describes it claims no values
    return ""


# ---- states by chance

SIZES = st.sampled_from([(2,), (3,), (2, 2), (0,), (), (6,), (7,), (1, 3)])
STRIDES = st.sampled_from([(1,), (2,), (0,), (2, 1), (1, 2), (), (3, 1)])
ODD = st.sampled_from([None, 0, 1, "x", b"x", (), (1,), [1, 2], {}, {"x": 1}, 1.5, torch.float32, OrderedDict()])
GRADS = st.sampled_from([*[False] * 12, True, True, 1])


class World:
    """A few storages that all tensors of a file share."""

    def __init__(self) -> None:
        values = torch.arange(1.0, 7.0)
        tensors = [values, values.flip(0).contiguous(), values.half(), values.long(), torch.complex(values, values)]
        self.storages = [each._typed_storage() for each in tensors]
        self.untyped = values.clone().untyped_storage()


@st.composite
def views(draw: Any, world: World) -> tuple[Any, ...]:
    """(storage, offset, size, stride), mostly such as fit."""
    storage = draw(st.sampled_from([*world.storages[:2] * 4, *world.storages[2:]]))
    if draw(st.integers(0, 15)) == 0:
        return storage, draw(st.integers(-1, 7)), draw(SIZES), draw(STRIDES)
    size = draw(st.sampled_from([(2,), (3,), (2, 2), (6,)]))
    offset = draw(st.integers(0, 6 - torch.Size(size).numel()))
    return storage, offset, size, torch.empty(size).stride()


@st.composite
def states_of(draw: Any, world: World, depth: int) -> Any:
    """A state for __setstate__ and BUILD, or for attributes."""
    kind = draw(st.integers(0, 9))
    if kind < 3:
        return draw(attributes(world, depth))
    if kind < 5:
        return draw(views(world))
    if kind < 6:
        return draw(st.tuples(GRADS, st.booleans(), st.just(OrderedDict())))
    if kind < 8:
        data = draw(tensors(world, depth + 1))
        return data, None, OrderedDict(), draw(GRADS), False
    if kind < 9:
        return draw(views(world))[: draw(st.integers(0, 3))]
    return draw(ODD)


@st.composite
def attributes(draw: Any, world: World, depth: int) -> Any:
    """Attributes that are set, some of which replace values."""
    names = ["data", "real", "imag", "requires_grad", "grad", "_backward_hooks", "shape", "own", "detach", "__class__"]
    found: dict[Any, Any] = {}
    for name in draw(st.lists(st.sampled_from(names), max_size=2)):
        one = st.one_of(tensors(world, depth + 1), tensors(world, depth + 1), ODD, st.booleans())
        found[name] = draw(GRADS if name == "requires_grad" else one)
    return draw(st.sampled_from([*[found] * 12, (found, None), (None, found), (None, None), (found,)]))


@st.composite
def tensors(draw: Any, world: World, depth: int = 0) -> Any:
    """A call that makes a tensor, with or without state."""
    hooks: Any = OrderedDict()
    kind = draw(st.integers(0, 5 if depth >= 3 else 12))
    state = (draw(states_of(world, depth)),) if depth < 3 and draw(st.integers(0, 2)) == 0 else ()
    if kind < 3:
        bits_set = draw(st.sampled_from([(), (), (), ({"conj": True},), ({"neg": True},), ({"conj": 1},), (None,)]))
        return Call(UTILS._rebuild_tensor_v2, (*draw(views(world)), draw(GRADS), hooks, *bits_set), state)
    if kind < 4:
        return Call(UTILS._rebuild_tensor, draw(views(world)), state)
    if kind < 5:
        made = draw(st.sampled_from([torch.FloatTensor, torch.Tensor, torch.HalfTensor]))
        return draw(st.sampled_from([Call, New]))(made, (), state)
    if kind < 6:
        _, *view = draw(views(world))
        end = (False, hooks, torch.float32)  # torch writes such tensors that require gradients, but does not load them
        return Call(UTILS._rebuild_tensor_v3, (world.untyped, *view, *end), state)
    inner = tensors(world, depth + 1)
    if kind < 7:
        given = draw(st.sampled_from([(), (False,), (True,)]))
        given = (draw(inner), *given) if draw(st.integers(0, 3)) else ()
        return draw(st.sampled_from([Call, New]))(torch.nn.Parameter, given, state)
    if kind < 8:
        return Call(UTILS._rebuild_parameter, (draw(inner), draw(GRADS), hooks), state)
    if kind < 9:
        given = (draw(inner), draw(GRADS), hooks, draw(attributes(world, depth)))
        return Call(UTILS._rebuild_parameter_with_state, given, state)
    if kind < 11:
        arguments = (*draw(views(world)), draw(GRADS), hooks)
        made = draw(st.sampled_from([torch.Tensor, torch.Tensor, torch.nn.Parameter]))
        return Call(TYPED, (UTILS._rebuild_tensor_v2, made, arguments, draw(attributes(world, depth))), state)
    if kind < 12:
        given = (draw(inner), torch.float32, "cpu", draw(GRADS))
        return Call(UTILS._rebuild_device_tensor_from_cpu_tensor, given, state)
    return Call(UTILS._rebuild_meta_tensor_no_storage, (torch.float32, (2,), (1,), draw(GRADS)), state)


@st.composite
def contents(draw: Any) -> dict[str, Any]:
    """Some tensors over the same storages; now and then one stands under two keys."""
    world = World()
    found = {f"w{number}": draw(tensors(world)) for number in range(draw(st.integers(1, 2)))}
    if draw(st.booleans()):
        found["again"] = draw(st.sampled_from(list(found.values())))
    return found


@settings(max_examples=200)
@given(made=contents(), legacy=st.sampled_from([False, False, True]))
def test_tensors_are_what_torch_loads_or_a_finding_says_so(made, legacy, tmp_path_factory):
    """Whatever state tensors are given, our values are those of both modes of torch.load, or there is an error."""
    path = tmp_path_factory.mktemp("state") / "model.pt"
    torch.save(made, path, _use_new_zipfile_serialization=not legacy)
    agreed(path)


@pytest.mark.slow
@settings(max_examples=1500)
@given(made=contents(), legacy=st.sampled_from([False, False, True]))
def test_many_more_tensors_are_what_torch_loads(made, legacy, tmp_path_factory):
    """The same for more files than anybody waits for while they work."""
    path = tmp_path_factory.mktemp("state") / "model.pt"
    torch.save(made, path, _use_new_zipfile_serialization=not legacy)
    agreed(path)


# ---- each kind of state by itself

VALUES, OTHERS = torch.arange(3.0), torch.tensor([7.0, 8.0, 9.0])
HOOKS: Any = OrderedDict()


def view(tensor: torch.Tensor) -> tuple[Any, ...]:
    """(storage, offset, size, stride) of a tensor."""
    return tensor._typed_storage(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def saved(value: Any, folder: Any, legacy: bool = False) -> Any:
    """A file with this tensor, and another one."""
    path = folder / "model.pt"
    torch.save({"w": value, "b": VALUES}, path, _use_new_zipfile_serialization=not legacy)
    return path


REPLACED = {
    "data": {"data": OTHERS},
    "data in slots": (None, {"data": OTHERS}),
    "real": {"real": OTHERS},
    "real of a number": {"real": 5.0},
    "a method of torch": {"set_": 1},
}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("state", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("maker", ["parameter", "subclass", "inside a parameter"])
def test_attributes_that_replace_values_are_an_error_with_the_key(maker, state, legacy, tmp_path):
    """A Parameter, a tensor with attributes, and a Parameter of one: the key is named, and there is no tensor of it."""
    own = Call(UTILS._rebuild_tensor_v2, (*view(VALUES.clone()), False, HOOKS))
    typed = Call(TYPED, (UTILS._rebuild_tensor_v2, torch.Tensor, own.arguments, state))
    made = {
        "parameter": Call(UTILS._rebuild_parameter_with_state, (own, False, HOOKS, state)),
        "subclass": typed,
        "inside a parameter": Call(UTILS._rebuild_parameter, (typed, False, HOOKS)),
    }[maker]
    path = saved(made, tmp_path, legacy)
    (found,) = [each for each in check(str(path)).findings if each.code == "F017"]
    assert found.keys == (("w",),)
    assert "replaces its values" in found.message
    tensors = ckptdoctor.open(path).tensors
    assert ("w",) not in {each.path for each in tensors}
    assert ("b",) in {each.path for each in tensors}


WRITERS = {
    "zip": torch.save,
    "legacy": partial(torch.save, _use_new_zipfile_serialization=False),
    "tar": lambda value, path: path.write_bytes(tar_bytes(value)),
    "pickle": lambda value, path: path.write_bytes(pickle.dumps(value, 2)),
}


@UNFILTERED
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_state_is_found_in_attributes_and_hooks(write, tmp_path):
    """A call in another tensor's hooks or attributes reaches the tensor that it is given, and torch has called it."""
    own = VALUES.clone()
    shared = own if write is WRITERS["tar"] else Call(UTILS._rebuild_tensor_v2, (*view(own), False, HOOKS))
    reach = Call(
        TYPED,
        (
            UTILS._rebuild_device_tensor_from_cpu_tensor,
            torch.Tensor,
            (shared, torch.float32, "cpu", False),
            {"data": OTHERS},
        ),
    )
    for holder in (
        Call(UTILS._rebuild_parameter_with_state, (VALUES, False, HOOKS, {"x": [reach]})),
        Call(UTILS._rebuild_parameter, (VALUES, False, OrderedDict(a=reach))),
    ):
        path = tmp_path / "model.pt"
        write({"w": shared, "x": holder}, path)
        there = pickle.loads(path.read_bytes()) if write is WRITERS["pickle"] else torch.load(path, weights_only=False)
        assert torch.equal(there["w"], OTHERS)
        assert "F017" in [each.code for each in check(str(path)).findings]
        with pytest.raises(DamagedError, match="replaces its values"):
            ckptdoctor.load(path)


HARMLESS = {
    "nothing": None,
    "an attribute": {"tensor_model_parallel": True, "scale": OTHERS},
    "gradients": {"requires_grad": True},
    "hooks": {"_backward_hooks": None, "_is_param": True},
    "two parts": ({"own": [1, 2]}, None),
}


@pytest.mark.parametrize("state", HARMLESS.values(), ids=HARMLESS)
def test_attributes_that_leave_the_values_alone_are_no_finding(state, tmp_path):
    """People's own attributes, and those of torch that are not about values."""
    own = Call(UTILS._rebuild_tensor_v2, (*view(VALUES), False, HOOKS))
    path = saved(Call(UTILS._rebuild_parameter_with_state, (own, False, HOOKS, state)), tmp_path)
    assert agreed(path) == ""
    assert ckptdoctor.load(path)["w"].requires_grad is torch.load(path)["w"].requires_grad


def test_data_that_shows_the_same_elements_is_no_finding(tmp_path):
    """As bitsandbytes saves its parameters; but to cast only one of the two would make them differ."""
    own = VALUES.clone()
    call = Call(UTILS._rebuild_tensor_v2, (*view(own), False, HOOKS))
    path = saved(Call(UTILS._rebuild_parameter_with_state, (call, False, HOOKS, {"data": own})), tmp_path)
    assert agreed(path) == ""
    output = str(tmp_path / "out.pt")
    with pytest.raises(RefusedError, match="w is not a plain tensor"):
        plan(FixRequest(str(path), output, dtype="float16"))


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("kind", [torch.FloatTensor, torch.Tensor], ids=["FloatTensor", "Tensor"])
def test_the_storage_that_old_files_set_is_read(kind, legacy, tmp_path):
    """An empty tensor that is given (storage, offset, size, stride), and one that was made of another storage."""
    middle = torch.arange(6.0)[1:4]
    for made in (New(kind, (), (view(middle),)), Call(UTILS._rebuild_tensor, view(OTHERS), (view(middle),))):
        path = saved(made, tmp_path, legacy)
        assert agreed(path) == ""
        assert torch.equal(ckptdoctor.load(path)["w"], middle)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_the_five_values_of_an_old_variable_are_read(legacy, tmp_path):
    """A Parameter without data that is given (data, creator, hooks, requires_grad, volatile)."""
    for made in (New(torch.nn.Parameter, ()), Call(torch.nn.Parameter, (VALUES,))):
        made.state = ((OTHERS, None, HOOKS, False, False),)
        path = saved(made, tmp_path, legacy)
        assert agreed(path) == ""
        mine = ckptdoctor.load(path)["w"]
        assert isinstance(mine, torch.nn.Parameter)
        assert torch.equal(mine, OTHERS)
        assert not mine.requires_grad


@pytest.mark.parametrize("state", [(True, False, HOOKS), (False, False, None)])
def test_the_three_values_of_a_parameter_are_read(state, tmp_path):
    """(requires_grad, volatile, hooks), as files from before torch 0.4 have them."""
    path = saved(Call(torch.nn.Parameter, (VALUES,), (state,)), tmp_path)
    assert agreed(path) == ""
    assert ckptdoctor.load(path)["w"].requires_grad is state[0]


REFUSED = {
    "a storage of another dtype": (torch.FloatTensor, (), view(VALUES.half())),
    "a view past the storage": (torch.FloatTensor, (), (VALUES._typed_storage(), 2, (2,), (1,))),
    "a negative offset": (torch.FloatTensor, (), (VALUES._typed_storage(), -1, (2,), (1,))),
    "gradients before the storage": (torch.nn.Parameter, (VALUES,), view(OTHERS)),
    "a state that is a number": (torch.FloatTensor, (), 5),
    "a state that is a dict": (UTILS._rebuild_tensor_v2, (*view(VALUES), False, HOOKS), {"data": OTHERS}),
    "no tensor for data": (torch.nn.Parameter, (VALUES,), (3, None, HOOKS, False, False)),
    "an attribute that cannot be set": (
        TYPED,
        (UTILS._rebuild_tensor_v2, torch.Tensor, (*view(VALUES), False, HOOKS), {"shape": 3}),
    ),
    "attributes in three parts": (
        TYPED,
        (UTILS._rebuild_tensor_v2, torch.Tensor, (*view(VALUES), False, HOOKS), ({}, {}, {})),
    ),
    "a gradient shape mismatch": (
        UTILS._rebuild_parameter_with_state,
        (VALUES, False, HOOKS, {"grad": torch.ones(5)}),
    ),
    "too many arguments": (UTILS._rebuild_tensor, (*view(VALUES), False)),
    "too few arguments": (UTILS._rebuild_parameter, (VALUES, False)),
    "gradients of integers": (UTILS._rebuild_parameter, (torch.arange(3), True, HOOKS)),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_torch_refuses_is_an_error(given, tmp_path):
    """State and arguments with which neither mode of torch.load makes a tensor."""
    kind, arguments, *state = given
    path = saved(Call(kind, arguments, tuple(state)), tmp_path)
    assert loaded(path) == []
    assert agreed(path)


def test_the_tables_name_what_torch_has():
    """Every attribute of torch's tensors that has a setter or refuses one is in one of the tables, or harmless."""
    harmless = {"_backward_hooks", "_post_accumulate_grad_hooks", "requires_grad", "volatile"}
    known = tensor_state.WRITING | tensor_state.READ_ONLY | tensor_state.GRADIENTS | tensor_state.ONLY_NONE | harmless
    found = {
        name
        for kind in torch.nn.Parameter.__mro__
        for name, each in vars(kind).items()
        if hasattr(type(each), "__set__")
    }
    assert found <= known
    for name in tensor_state.READ_ONLY:
        for value in (None, 1, OTHERS):
            with pytest.raises((AttributeError, TypeError, RuntimeError)):
                setattr(torch.ones(3), name, value)


# ---- nothing is made of such a file


@pytest.fixture
def replaced(tmp_path):
    """A file whose w is not what it was made of."""
    return saved(Call(UTILS._rebuild_parameter_with_state, (VALUES.clone(), False, HOOKS, {"data": OTHERS})), tmp_path)


COMMANDS = {
    "fix": ["fix", "FILE", "--dtype", "float16", "-o", "OUT.pt"],
    "convert": ["convert", "FILE", "OUT.safetensors"],
    "merge": ["merge", "FILE", "-o", "OUT.safetensors"],
    "salvage": ["salvage", "FILE", "-o", "OUT.pt"],
    "graft": ["graft", "FILE", "--from", "OTHER", "--key", "b", "-o", "OUT.pt"],
    "graft from it": ["graft", "OTHER", "--from", "FILE", "--key", "b", "-o", "OUT.pt"],
    "diff": ["diff", "FILE", "OTHER", "--values"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_nothing_is_written_or_called_equal(words, replaced, tmp_path):
    """Each command refuses in a sentence that names the key, and leaves no file."""
    other = tmp_path / "other.pt"
    torch.save({"w": VALUES, "b": VALUES}, other)
    places = {"FILE": str(replaced), "OTHER": str(other)}
    words = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in words]
    done = run(*words, cwd=tmp_path)
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == (2 if words[0] == "diff" else 1), said  # as diff(1) ends where it cannot compare
    assert "w is not what torch.load returns" in " ".join(said.split())
    assert not list(tmp_path.glob("out*"))


def test_loading_refuses(replaced):
    """Neither the contents nor a state dict comes of it."""
    for load in (
        lambda: ckptdoctor.load(replaced),
        lambda: ckptdoctor.load_state_dict(replaced, {"w": (3,), "b": (3,)}),
    ):
        with pytest.raises(DamagedError, match=r"w is not what torch\.load returns"):
            load()


def test_names_may_change_and_the_key_may_go(replaced, tmp_path):
    """Renaming leaves what torch loads as it was, and without the key there is nothing to refuse."""
    renamed, dropped = tmp_path / "renamed.pt", tmp_path / "dropped.pt"
    repair(plan(FixRequest(str(replaced), str(renamed), renames=(substitution("^b$=bias"),))))
    assert torch.equal(torch.load(renamed)["w"], OTHERS)
    assert torch.equal(torch.load(renamed)["bias"], VALUES)
    repair(plan(FixRequest(str(replaced), str(dropped), drop=("w",))))
    assert agreed(dropped) == ""
