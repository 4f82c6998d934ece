from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptdoctor import formats
from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    FileSource,
    GlobalName,
    Mapping,
    Node,
    Opaque,
    Role,
    Sequence,
    Special,
    Storage,
    Tensor,
    at,
    show_path,
    walk,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.edits import (
    Compact,
    Drop,
    Flatten,
    MakeContiguous,
    Rename,
    RenameModules,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    Truncate,
)
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.prove.same_contents import first_difference
from ckptdoctor.writing import publish
from tests.repair.checkpoints import save, training

FLOAT = BY_NAME["float32"]


def tensor(path: tuple, key: str, device: str = "cpu", shape=(2,), stride=(1,), offset=0, numel=2) -> Tensor:
    storage = Storage(key, 4 * numel, FLOAT, device, None)
    return Tensor(path, FLOAT, shape, stride, storage, offset, device, rebuild="torch._utils._rebuild_tensor_v2")


def checkpoint(tree: Node, *names: str) -> Checkpoint:
    """The tree as a checkpoint; tensors with equal storage keys share one storage."""
    tensors = tuple([node for _, node in walk(tree) if isinstance(node, Tensor)])
    storages = {each.storage.key: each.storage for each in tensors if each.storage is not None}
    named = tuple([GlobalName(*name.rsplit(".", 1), "data.pkl", 0) for name in names])
    return Checkpoint("x.pt", "torch zip", 0, tree, tensors, tuple(storages.values()), find_state_dicts(tree), named)


def weights(path: tuple, keys: str, metadata: str | None = None) -> Mapping:
    """A state dict at ``path`` with these keys and _metadata prefixes (both separated by blanks)."""
    entries = tuple([(key, tensor((*path, key), key)) for key in keys.split()])
    if metadata is None:
        return Mapping("collections.OrderedDict", entries)
    prefixes = tuple([(name.strip("'"), Mapping("dict", (("version", 1),))) for name in metadata.split()])
    return Mapping("collections.OrderedDict", entries, Mapping("dict", (("_metadata", Mapping("dict", prefixes)),)))


def consistent(result: Checkpoint) -> Checkpoint:
    """The checkpoint, once its parts are proven to agree."""
    inside = [(path, node) for path, node in walk(result.tree) if isinstance(node, Tensor)]
    assert tuple([node for _, node in inside]) == result.tensors
    assert [show_path(node.path) for _, node in inside] == [show_path(path) for path, _ in inside]
    used = {each.storage.key: each.storage for each in result.tensors if each.storage is not None}
    assert {each.key: each for each in result.storages} == used
    assert result.state_dicts == find_state_dicts(result.tree)
    return result


def metadata(result: Checkpoint, index: int = 0) -> list[object]:
    found = result.state_dicts[index].metadata
    assert found is not None
    return [part for part, _ in found.entries]


def test_a_rename_reaches_everything_that_repeats_the_name():
    """Keys, paths, the state dict, _metadata and the optimizer's param_names; nothing else of the same spelling."""
    names = Sequence("list", ("module.a.w", "other"))
    groups = Sequence("list", (Mapping("dict", (("lr", 0.1), ("param_names", names))),))
    optimizer = Mapping("dict", (("state", Mapping("dict", ())), ("param_groups", groups)))
    model = weights(("model",), "module.a.w module.b", "'' module module.a")
    tree = Mapping("dict", (("model", model), ("optimizer", optimizer), ("module.a.w", "module.a.w")))
    result = consistent(apply(checkpoint(tree), [Rename(("model",), (("module.a.w", "a.w"), ("module.b", "b")))]))
    assert result.state_dicts[0].keys == ("a.w", "b")
    assert metadata(result) == ["", "a"]
    assert at(result.tree, ("optimizer", "param_groups", 0, "param_names")).items == ("a.w", "other")
    assert at(result.tree, ("module.a.w",)) == "module.a.w"


def test_a_rename_of_containers_moves_what_is_inside_and_what_points_there():
    """Tensors below a renamed key, and cycles through it."""
    inner = Mapping("dict", (("w", tensor(("old", "w"), "0")), ("self", Cycle(("old",))), ("up", Cycle(()))))
    tree = Mapping("dict", (("old", inner), ("x", tensor(("x",), "1"))))
    result = consistent(apply(checkpoint(tree), [Rename((), (("old", "new"),))]))
    assert at(result.tree, ("new", "self")) == Cycle(("new",))
    assert at(result.tree, ("new", "up")) == Cycle(())


def test_names_may_be_exchanged_but_never_merged():
    """A swap is one-to-one; a collision is refused with both names, whichever of them stays."""
    start = checkpoint(weights((), "a b c"))
    assert apply(start, [Rename((), (("a", "b"), ("b", "a")))]).state_dicts[0].keys == ("b", "a", "c")
    with pytest.raises(RefusedError, match='"a" would become "c", but "c" already exists'):
        apply(start, [Rename((), (("a", "c"),))])
    with pytest.raises(RefusedError, match='"a" and "b" would both become "d"'):
        apply(start, [Rename((), (("a", "d"), ("b", "d")))])
    with pytest.raises(RefusedError, match='no key "z"'):
        apply(start, [Rename((), (("z", "y"),))])


def test_prefixes_of_metadata_are_renamed_alone():
    """Keys stay; a prefix that is not there, or no _metadata at all, refuses."""
    start = checkpoint(weights((), "a.w", "'' module.a"))
    result = consistent(apply(start, [RenameModules((), (("module.a", "a"),))]))
    assert metadata(result) == ["", "a"]
    assert result.state_dicts[0].keys == ("a.w",)
    with pytest.raises(RefusedError, match='no prefix "b"'):
        apply(start, [RenameModules((), (("b", "a"),))])
    with pytest.raises(RefusedError, match="no _metadata"):
        apply(checkpoint(weights((), "a.w")), [RenameModules((), (("b", "a"),))])


def test_retagging_follows_storages_devices_and_parts():
    """Some storages, some devices, or all; tensors made of parts follow their parts."""
    part = tensor(("q",), "2", "cuda:1")
    quantized = Tensor(("q",), BY_NAME["qint8"], (2,), (1,), None, device="cuda:1", parts=(part,))
    tree = Mapping("dict", (("a", tensor(("a",), "0", "cuda:0")), ("b", tensor(("b",), "1", "mps")), ("q", quantized)))
    start = checkpoint(tree)
    start = Checkpoint(
        *(start.path, start.format, 0, tree, start.tensors, (*start.storages, part.storage), start.state_dicts)
    )

    def devices(*edits: Retag) -> list[str]:
        return [each.device for each in apply(start, edits).tensors]

    assert devices(Retag("cpu")) == ["cpu", "cpu", "cpu"]
    assert devices(Retag("cpu", devices=("cuda:0",))) == ["cpu", "mps", "cuda:1"]
    assert devices(Retag("cpu", storages=("1", "2"))) == ["cuda:0", "cpu", "cpu"]
    assert devices(Retag("cuda:0", devices=("cuda:1",), storages=("0",))) == ["cuda:0", "mps", "cuda:1"]
    assert {each.device for each in apply(start, [Retag("cpu")]).storages} == {"cpu"}


def test_dropping_takes_storages_along_that_nothing_else_views():
    """And keeps the others; lists close up, with the paths of what follows."""
    shared = tensor(("list", 2), "s")
    tree = Mapping(
        "dict",
        (
            ("list", Sequence("list", (tensor(("list", 0), "0"), tensor(("list", 1), "s"), shared))),
            (
                "object",
                Opaque("some.Class", (), Mapping("dict", (("weight", tensor(("object", "weight"), "2")), ("n", 1)))),
            ),
        ),
    )
    result = consistent(apply(checkpoint(tree), [Drop((("list", 0), ("list", 1), ("object", "weight")))]))
    assert [each.path for each in result.tensors] == [("list", 0)]
    assert [each.key for each in result.storages] == ["s"]
    assert at(result.tree, ("object", "n")) == 1


@pytest.mark.parametrize("path", [(), ("no",), ("a", 3), ("object", Special("(0)")), ("object", "no")])
def test_dropping_what_cannot_be_dropped_is_refused(path: tuple):
    """The root, what is not there, and the arguments of a call."""
    tree = Mapping("dict", (("a", Sequence("list", (1,))), ("object", Opaque("some.Class", (1,), Mapping("dict", ())))))
    with pytest.raises(RefusedError):
        apply(checkpoint(tree), [Drop((path,))])


def test_taking_a_root_moves_paths_and_leaves_the_rest_behind():
    """Tensors, storages, state dicts, cycles and the names that nothing shows any more."""
    inner = Mapping("dict", (("w", tensor(("model", "w"), "0")), ("me", Cycle(("model",)))))
    tree = Mapping("dict", (("model", inner), ("args", Opaque("argparse.Namespace")), ("x", tensor(("x",), "1"))))
    start = checkpoint(tree, "argparse.Namespace", "torch._utils._rebuild_tensor_v2")
    result = consistent(apply(start, [TakeRoot(("model",))]))
    assert at(result.tree, ("me",)) == Cycle(())
    assert [each.full for each in result.globals] == ["torch._utils._rebuild_tensor_v2"]
    assert result.state_dicts[0].role is Role.MODEL
    with pytest.raises(RefusedError, match="nothing at models"):
        apply(start, [TakeRoot(("models",))])
    leading_out = Mapping("dict", (("model", Mapping("dict", (("up", Cycle(())),))),))
    with pytest.raises(RefusedError, match="refers back"):
        apply(checkpoint(leading_out), [TakeRoot(("model",))])


def test_replacing_puts_plain_data_in_place_of_anything():
    """In entries, items, attributes of objects and arguments of calls; its class's name goes with the object."""
    inside = Opaque("argparse.Namespace", (), Mapping("dict", (("lr", 0.1),)))
    tree = Mapping("dict", (("a", inside), ("b", Opaque("x.Y", (inside,), Mapping("dict", (("args", inside),))))))
    start = checkpoint(tree, "argparse.Namespace", "x.Y")
    value = {"lr": 0.1, 3: [1, (2, None)], True: b"x", 2.5: "y"}
    result = apply(start, [Replace(("a",), value), Replace(("b", Special("(0)")), 1), Replace(("b", "args"), {})])
    wanted = (
        *(("lr", 0.1), (3, Sequence("list", (1, Sequence("tuple", (2, None)))))),
        *((Special("True"), b"x"), (Special("2.5"), "y")),
    )
    assert at(result.tree, ("a",)) == Mapping("dict", wanted)
    assert [each.full for each in result.globals] == ["x.Y"]
    with pytest.raises(RefusedError, match="not plain data"):
        apply(start, [Replace(("a",), object())])


def test_compacting_keeps_what_is_viewed_and_who_shares_it():
    """Ranges that overlap or touch stay together; offsets follow; strides do not change."""
    views = {
        "a": tensor(("a",), "0", offset=10, shape=(10,), numel=1000),
        "tied": tensor(("tied",), "0", offset=10, shape=(10,), numel=1000),
        "over": tensor(("over",), "0", offset=15, shape=(3, 2), stride=(1, 4), numel=1000),
        "far": tensor(("far",), "0", offset=900, shape=(4,), stride=(5,), numel=1000),
        "none": tensor(("none",), "0", offset=500, shape=(0,), numel=1000),
        "other": tensor(("other",), "1"),
    }
    result = consistent(apply(checkpoint(Mapping("dict", tuple(views.items()))), [Compact(("0",))]))
    assert [each.offset for each in result.tensors] == [0, 0, 5, 12, 0, 0]
    assert [each.stride for each in result.tensors] == [each.stride for each in views.values()]
    assert [each.nbytes for each in result.storages] == [4 * (12 + 16), 8]
    with pytest.raises(RefusedError, match="No tensor views storage 7"):
        apply(checkpoint(Mapping("dict", tuple(views.items()))), [Compact(("7",))])


def test_edits_around_the_contents():
    """Metadata, suffix and length."""
    start = checkpoint(weights((), "a"))
    assert apply(start, [SetMetadata("format", "pt"), SetMetadata("b", "c")]).metadata == {"format": "pt", "b": "c"}
    assert apply(start, [Truncate(7)]).size == 7
    assert apply(start, [SetSuffix(".pt")]) == start


def rewritten(path: Path, edits: list, output: Path) -> tuple[Checkpoint, Checkpoint]:
    """What the nouns say of the edits, and what the format made of them."""
    with FileSource(path) as source:
        start = formats.read(source, formats.examine(source))
        publish(formats.write(wanted_of(start, edits), source), str(output), force=True)
    return apply(start, edits), formats.open_checkpoint(output)


def varied() -> dict[str, object]:
    """One of everything that a tensor can be."""
    return {
        "view": torch.arange(60.0)[7:31].view(4, 6).t(),
        "model": {"module.a.w": torch.ones(2, 3), "module.b": torch.zeros(0), "module.half": torch.ones(5).half()},
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.ones(4), 0.5, 1, torch.qint8),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "meta": torch.empty(3, device="meta"),
        "list": [torch.arange(5), {"x": (1, 2.5, None, True)}, torch.arange(5)[1:3]],
        "complex": torch.ones(2, dtype=torch.complex64).conj(),
        "set": {1, 2},
        "text": "cpu",
    }


EDITS = [
    [Rename(("model",), (("module.b", "b"), ("module.a.w", "c")))],
    [Drop((("list", 0), ("model", "module.b"), ("sparse",)))],
    [TakeRoot(("model",))],
    [TakeRoot(("list",)), Drop(((1,),))],
    [Retag("cuda:0")],
    [Retag("mps"), Retag("cpu", devices=("mps",))],
    [Replace(("text",), [1, {"a": None, 2: "é"}, (1.5, True)]), Replace(("list", 1), {})],
    [MakeContiguous((("view",),))],
    [Flatten((), tuple((f"x.{name}", (name,)) for name in ["view", "sparse", "quantized", "parameter", "complex"]))],
    [Flatten(("list",), (("a", (0,)), ("b", (2,)), ("a again", (0,)))), Flatten(("model",), ())],
    [Drop((("text",),)), Rename((), (("model", "net"),)), Rename(("net",), (("module.b", "x"),)), Retag("xla:0")],
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("edits", EDITS, ids=lambda edits: type(edits[0]).__name__)
def test_the_nouns_and_the_bytes_agree(tmp_path: Path, edits: list, legacy: bool):
    """Two implementations that know nothing of each other come to the same contents."""
    path = save(varied(), tmp_path / "varied.pt", legacy)
    expected, written = rewritten(path, edits, tmp_path / "out.pt")
    assert first_difference(expected, written) is None


def test_a_flattened_object_is_a_state_dict_of_what_was_chosen():
    """Keys in the order given, tensors under their new paths; storages that nothing views any more go."""
    inner = Mapping(
        "dict", (("w", tensor(("net", "w"), "0")), ("gone", tensor(("net", "gone"), "1")), ("self", Cycle(())))
    )
    start = checkpoint(Mapping("dict", (("net", inner), ("x", tensor(("x",), "2")))))
    result = consistent(apply(start, [Flatten(("net",), (("a.w", ("w",)), ("b.w", ("w",))))]))
    made = at(result.tree, ("net",))
    assert isinstance(made, Mapping)
    assert (made.kind, [part for part, _ in made.entries]) == ("collections.OrderedDict", ["a.w", "b.w"])
    assert [each.key for each in result.storages] == ["0", "2"]
    assert result.state_dicts[1].keys == ("a.w", "b.w")


def test_what_is_no_tensor_or_not_torchs_own_is_not_flattened():
    """Refused with the place."""
    odd = replace(tensor(("net", "odd"), "0"), subclass="torchao.AffineQuantizedTensor")
    start = checkpoint(Mapping("dict", (("net", Mapping("dict", (("odd", odd), ("n", 1)))),)))
    for place, reason in ((("n",), "There is nothing at net/n"), (("odd",), "the class torchao.Affine")):
        with pytest.raises(RefusedError, match=reason):
            apply(start, [Flatten(("net",), (("key", place),))])


@given(st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_renames_and_their_inverse_give_the_same_file(tmp_path: Path, data: st.DataObject):
    """Byte for byte, with _metadata and param_names following there and back."""
    path = tmp_path / "run.pt"
    if not path.exists():
        save(training(), path)
    start = formats.open_checkpoint(path)
    keys = list(start.state_dicts[1].keys)
    chosen = data.draw(st.lists(st.sampled_from(keys), unique=True))
    pairs = tuple([(key, f"new{index}." + key) for index, key in enumerate(chosen)])
    there = Rename(("state_dict",), pairs)
    back = Rename(("state_dict",), tuple([(new, old) for old, new in pairs]))
    expected, written = rewritten(path, [there], tmp_path / "there.pt")
    assert first_difference(expected, written) is None
    rewritten(tmp_path / "there.pt", [back], tmp_path / "back.pt")
    assert (tmp_path / "back.pt").read_bytes() == path.read_bytes()
