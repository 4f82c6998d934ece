"""What a pickled module's attributes tell of its state dict, on nouns alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.checkpoint import Cycle, Elided, Mapping, Node, Opaque, Sequence, Special, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts.whole_modules import (
    UnknownStateError,
    detached,
    is_module,
    module_state,
    outermost_modules,
)

FLOAT = BY_NAME["float32"]
EMPTY = Mapping("dict", ())
UTILS = "torch._utils._rebuild_"


def tensor(name: str = "w", **more: object) -> Tensor:
    storage = Storage(name, 8, FLOAT, "cpu", None)
    return replace(Tensor((name,), FLOAT, (2,), (1,), storage, rebuild=f"{UTILS}tensor_v2"), **more)


def dict_of(**entries: Node) -> Mapping:
    return Mapping("dict", tuple(entries.items()))


def module(kind: str = "models.Net", modules: Node = EMPTY, **more: Node) -> Opaque:
    state = {"_parameters": dict_of(), "_buffers": dict_of(), "_modules": modules, **more}
    return Opaque(kind, state=dict_of(**state))


def reason(node: Opaque) -> str:
    with pytest.raises(UnknownStateError) as caught:
        module_state(node)
    return str(caught.value)


def test_a_module_is_told_by_its_attributes():
    """Not by its class; what torch.compile gives is a call with one."""
    compiled = "torch._dynamo.eval_frame.OptimizedModule"
    assert is_module(module())
    assert is_module(Opaque(compiled, (Opaque(compiled, (module(),)), None)))
    for other in (None, dict_of(_parameters=1, _modules=2), Opaque("torch.nn.Linear"), Opaque(compiled, (1,))):
        assert not is_module(other)


def test_keys_come_in_torchs_order():
    """Parameters, then buffers, then the modules inside, each with all that is in it."""
    inner = module(_parameters=dict_of(x=tensor()), _buffers=dict_of(y=tensor()))
    outer = module(
        modules=dict_of(b=inner, gone=None, a=inner),
        _buffers=dict_of(m=tensor(), passing=tensor(), none=None),
        _parameters=dict_of(z=tensor(is_parameter=True), none=None),
        _non_persistent_buffers_set=Sequence("set", ("passing",)),
    )
    state = module_state(outer)
    assert [key for key, _ in state.tensors] == ["z", "m", "b.x", "b.y", "a.x", "a.y"]
    assert dict(state.tensors)["a.y"] == ("_modules", "a", "_buffers", "y")
    assert state.doubts == ()


@pytest.mark.parametrize(
    ("attributes", "doubt"),
    [
        ({"_state_dict_hooks": dict_of(a=Opaque("models.hook"))}, "fc has hooks (_state_dict_hooks)"),
        ({"_state_dict_pre_hooks": Sequence("list", ())}, "fc has hooks (_state_dict_pre_hooks)"),
        ({"state_dict": Opaque("functools.partial")}, "fc has a state_dict of its own"),
    ],
)
def test_what_may_change_the_state_dict_is_a_doubt(attributes: dict[str, Node], doubt: str):
    """Hooks, and methods that were set on the object; named with the module."""
    assert module_state(module(modules=dict_of(fc=module(**attributes)))).doubts == (doubt,)


def test_hooks_that_change_no_key_are_no_doubt():
    """That of spectral_norm writes into the _metadata alone."""
    hook = Opaque("torch.nn.utils.spectral_norm.SpectralNormStateDictHook")
    assert module_state(module(_state_dict_hooks=dict_of(a=hook))).doubts == ()


def test_every_reason_names_the_module_or_the_key():
    """So that the sentence can be completed with it."""
    assert reason(module(modules=dict_of(a=module(modules=dict_of(b=Cycle(())))))) == "a.b contains itself"
    assert reason(module(modules=dict_of(a=Elided("too many")))) == "a was not read (too many)"
    assert reason(module(_parameters=Elided("too deep"))) == "_parameters of the model itself was not read (too deep)"
    assert reason(module(_parameters=dict_of(w=tensor(subclass="x.DTensor")))) == "w is a tensor of the class x.DTensor"
    packed = module("torch.ao.nn.quantized.modules.linear.Linear")
    assert reason(module(modules=dict_of(q=packed))).startswith("q is a torch.ao.nn.quantized.modules.linear.Linear")
    stands_in = module("torch.ao.nn.quantized.modules.functional_modules.FloatFunctional")
    assert module_state(module(modules=dict_of(q=stands_in))).tensors == ()


@pytest.mark.parametrize(
    ("given", "rebuild"),
    [
        (tensor(), "tensor_v2"),
        (tensor(rebuild=f"{UTILS}tensor"), "tensor_v2"),
        (tensor(rebuild=f"{UTILS}parameter", dtype=BY_NAME["uint16"]), "tensor_v3"),
        (tensor(rebuild="torch._tensor._rebuild_from_type_v2"), "tensor_v2"),
        (tensor(rebuild=f"{UTILS}parameter", storage=None, device="meta"), "meta_tensor_no_storage"),
        (tensor(rebuild=f"{UTILS}parameter", device="xla:0"), "device_tensor_from_cpu_tensor"),
        (tensor(rebuild=f"{UTILS}parameter", details=(("scheme", "per_tensor_affine"),)), "qtensor"),
        (tensor(rebuild=f"{UTILS}parameter", layout="sparse_coo", storage=None, parts=(tensor(),)), "sparse_tensor"),
    ],
)
def test_a_tensor_is_rebuilt_as_itself(given: Tensor, rebuild: str):
    """Without what wrapped it."""
    made = detached(replace(given, requires_grad=True, is_parameter=True))
    assert (made.requires_grad, made.is_parameter, made.rebuild) == (False, False, f"{UTILS}{rebuild}")


@pytest.mark.parametrize(
    "given",
    [
        tensor(rebuild="torch.FloatStorage"),
        tensor(rebuild=f"{UTILS}device_tensor_from_numpy", storage=None),
        tensor(rebuild=f"{UTILS}nested_tensor", layout="jagged", parts=(tensor(),)),
    ],
)
def test_kinds_whose_classes_have_a_say_are_unknown(given: Tensor):
    """Rather than guess what detaching them gives."""
    with pytest.raises(UnknownStateError):
        detached(given)


def test_only_the_outermost_modules_count():
    """Each with its path, and whether it can be replaced there without harm to an object around it."""
    net = module(modules=dict_of(inner=module()), _parameters=dict_of(w=tensor()))
    tree = dict_of(a=net, b=Sequence("list", (1, net)), c=Opaque("Trainer", state=dict_of(net=net)))
    tree = replace(tree, attributes=dict_of(hidden=net))
    assert [(path, plain) for path, _, plain in outermost_modules(tree)] == [
        (("a",), True),
        (("b", 1), True),
        (("c", "net"), False),
        ((Special(".hidden"),), False),
    ]
