"""Checkpoints made of nouns alone, without a file: what a reader would say of an example's contents."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from math import prod

import pytest
import torch

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Role, Sequence, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.findings import compared, findings_of
from ckptdoctor.edits import Fix
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.findings import Finding
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Odict, T
from tests.rules.examined import rule_of


def checkpoint(contents: object, format: str = "torch zip") -> Checkpoint:
    """The checkpoint with these contents (``T``, ``Odict`` and plain data)."""
    maker = _Maker()
    tree = maker.node(contents, ())
    return Checkpoint(
        path="runs/x.pt",
        format=format,
        size=0,
        tree=tree,
        tensors=tuple(maker.tensors),
        storages=tuple(maker.storages),
        state_dicts=find_state_dicts(tree),
    )


def reference(contents: object, source: str = "like.pt") -> Reference:
    """What these contents would expect of another checkpoint."""
    found = min(weights_among(checkpoint(contents).state_dicts), key=lambda each: each.role is Role.EMA)
    return Reference(source, {each.key: Expected(each.shape, each.dtype) for each in found.tensors}, found.path)


def comparison(contents: object, like: object, root: KeyPath | None = None) -> Comparison:
    """Contents held against a reference."""
    made = compared(checkpoint(contents), reference(like), root)
    assert made is not None
    return made


def findings(code: str, contents: object, like: object = None) -> list[Finding]:
    """What the rule with this code says of contents; of their comparison where there is a reference."""
    return findings_in(code, checkpoint(contents), None if like is None else reference(like))


def findings_in(code: str, read: Checkpoint, like: Reference | None = None) -> list[Finding]:
    """What check says of a checkpoint that was read where only this rule is selected.

    Unasked it must say the same: where a rule finds anything, it has to concern the headers.
    """
    rule = rule_of(code)
    found = findings_of(read, [rule], like)
    assert not found or like is not None or rule.when is None or rule.when(read), f"check would not ask {code}"
    return found


def repaired(contents: object, fix: Fix) -> Checkpoint:
    """The checkpoint that these contents are after a repair."""
    return apply(contents if isinstance(contents, Checkpoint) else checkpoint(contents), fix.edits)


def described(state_dict: typing.Mapping[str, torch.Tensor]) -> dict[str, object]:
    """The ``T`` of each tensor of a real state dict."""
    return {key: T(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for key, tensor in state_dict.items()}


def torch_error(model: torch.nn.Module, state_dict: typing.Mapping[str, object]) -> str:
    """What torch says when it refuses to load a state dict into a model."""
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(dict(state_dict))
    return str(caught.value)


@dataclass
class _Maker:
    tensors: list[Tensor] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)

    def node(self, value: object, path: KeyPath) -> Node:
        metadata = None
        if isinstance(value, Odict):
            metadata = value.metadata
            value = value.entries
        if isinstance(value, T):
            return self.tensor(value, path)
        if isinstance(value, dict):
            entries = tuple([(key, self.node(item, (*path, key))) for key, item in value.items()])
            attributes = Mapping("dict", (("_metadata", self.node(metadata, ())),)) if metadata else None
            return Mapping("dict", entries, attributes)
        if isinstance(value, (list, tuple)):
            return Sequence(type(value).__name__, tuple([self.node(item, (*path, i)) for i, item in enumerate(value)]))
        return value  # type: ignore[return-value]

    def tensor(self, spec: T, path: KeyPath) -> Tensor:
        dtype = BY_NAME[spec.dtype]
        place = spec.device if spec.saved_as == "storage" else "cpu"
        storage = Storage(str(len(self.storages)), prod(spec.shape) * dtype.bits // 8, dtype, place, None)
        self.storages.append(storage)
        stride = spec.stride or contiguous_stride(spec.shape)
        tensor = Tensor(path, dtype, spec.shape, stride, storage, device=spec.device)
        self.tensors.append(tensor)
        return tensor
