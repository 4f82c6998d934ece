"""Makes real files out of the examples that rules carry, with torch and safetensors themselves.

``build`` turns an ``Example`` into a file. ``tagged`` and ``saving_tags`` make ``torch.save`` write the device tags of
machines that the tests do not have: byte for byte what torch writes there, because only
``torch.serialization.location_tag`` answers differently.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import save_file

from ckptdoctor.rules.examples import Example, Obj, Odict, T

# packages whose classes and functions may really be called: calling them only makes a value
CALLED = ("pathlib", "datetime", "numpy", "collections", "decimal", "fractions", "uuid")


def build(example: Example, folder: Path) -> Path:
    """The example as a file in ``folder``, named after its title or as it says, with what lies beside it."""
    if example.files:
        return build_folder(example, folder / (example.name or _slug(example.title)))
    path = folder / (example.name or f"{_slug(example.title)}{example.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, content in example.beside.items():
        (folder / name).write_bytes(content)
    if example.raw is not None:
        path.write_bytes(example.raw() if callable(example.raw) else example.raw)
    else:
        save(example.contents, path, container=example.container, metadata=example.metadata)
    if example.damage is not None:
        path.write_bytes(example.damage(path.read_bytes()))
    return path


def build_folder(example: Example, path: Path) -> Path:
    """The example that is a folder of files."""
    for name, content in example.files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif file.suffix == ".json":
            file.write_text(json.dumps(content))
        elif file.suffix == ".safetensors":
            save(content, file, container="safetensors", metadata={"format": "pt"})
        else:
            save(content, file)
    return path


def build_like(example: Example, folder: Path) -> Path:
    """The reference file of an example that has one (``example.like``), in the same container."""
    path = folder / f"{_slug(example.title)}-like{example.suffix}"
    save(example.like, path, container=example.container, metadata=example.metadata)
    return path


def save(contents: object, path: Path, *, container: str = "torch zip", metadata: dict[str, str] | None = None) -> None:
    """Save contents made of ``T``, ``Obj``, ``Odict`` and plain data, or of real tensors and objects."""
    maker = _Maker()
    maker.measure(contents)
    with maker.classes():
        value = maker.make(contents)
        if container == "safetensors":
            save_file(value, path, metadata=metadata)
            return
        with saving_tags():
            torch.save(value, path, _use_new_zipfile_serialization=container != "torch legacy")


def tagged(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The same tensor; within ``saving_tags`` its storage is saved with this device tag (``cuda:1``, ``mps``)."""
    tensor.untyped_storage().saved_device_tag = device
    return tensor


def moved(tensor: torch.Tensor, device: str = "xla:0", saved_as: str = "copy") -> object:
    """What pickles as such a tensor of a device without storages: with a "copy" on the CPU, or as an "array".

    The first is what ``torch.Tensor._reduce_ex_internal`` gives today, the second what it gave before torch 2.6.
    """
    data, grad = tensor.detach(), tensor.requires_grad
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    rest = (tensor.dtype, "".join(list(device)), grad and not is_parameter)
    if saved_as == "copy":
        copy = data.clone(memory_format=torch.contiguous_format).requires_grad_(rest[2])
        made = _Call(torch._utils._rebuild_device_tensor_from_cpu_tensor, (copy, *rest), {})
    else:
        array = (data.float() if data.dtype is torch.bfloat16 else data).numpy()
        made = _Call(torch._utils._rebuild_device_tensor_from_numpy, (array, *rest), {})
    return _Call(torch._utils._rebuild_parameter, (made, grad, OrderedDict()), {}) if is_parameter else made


@contextlib.contextmanager
def saving_tags() -> Iterator[None]:
    """While this lasts, ``torch.save`` writes the tags given by ``tagged``.

    A new string is made for every storage, as torch does for ``cuda:N``: pickle writes one string object only once.
    """
    genuine = torch.serialization.location_tag

    def location_tag(storage: torch.UntypedStorage) -> str:
        tag = getattr(storage, "saved_device_tag", None)
        return genuine(storage) if tag is None else "".join(list(tag))

    with mock.patch.object(torch.serialization, "location_tag", location_tag):
        yield


@dataclass
class _Maker:
    """Turns examples into values. Classes and modules that do not exist live only as long as ``classes`` is open."""

    spans: dict[str, int] = field(default_factory=dict)  # bytes of each shared storage
    storages: dict[str, torch.UntypedStorage] = field(default_factory=dict)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def classes(self) -> Iterator[None]:
        with self.stack:
            yield

    def measure(self, value: object) -> None:
        if isinstance(value, T) and value.storage is not None:
            self.spans[value.storage] = max(self.spans.get(value.storage, 0), _storage_bytes(value))
        for child in _children(value):
            self.measure(child)

    def make(self, value: object) -> object:
        if isinstance(value, T):
            return self.tensor(value)
        if isinstance(value, Obj):
            return self.object(value)
        if isinstance(value, Odict):
            return _state_dict({key: self.make(item) for key, item in value.entries.items()}, value.metadata)
        if isinstance(value, dict):
            return type(value)((key, self.make(item)) for key, item in value.items())
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(self.make(item) for item in value)
        return value

    def tensor(self, spec: T) -> object:
        made = self.plain(spec)
        return made if spec.saved_as == "storage" else moved(made, spec.device, spec.saved_as)

    def plain(self, spec: T) -> torch.Tensor:
        dtype = getattr(torch, spec.dtype)
        if spec.device == "meta":
            return torch.empty(spec.shape, dtype=dtype, device="meta")
        storage = self.storages.get(spec.storage) if spec.storage is not None else None
        if storage is None:
            size = self.spans[spec.storage] if spec.storage is not None else _storage_bytes(spec)
            storage = _filled(size, dtype, spec.value)
            if spec.storage is not None:
                self.storages[spec.storage] = storage
        stride = spec.stride if spec.stride is not None else _c_stride(spec.shape)
        tensor = torch.empty(0, dtype=dtype).set_(storage, spec.offset, spec.shape, stride)
        if spec.device != "cpu" and spec.saved_as == "storage":
            tagged(tensor, spec.device)
        if spec.parameter:
            return torch.nn.Parameter(tensor, requires_grad=dtype.is_floating_point or dtype.is_complex)
        return tensor.requires_grad_() if spec.requires_grad else tensor

    def object(self, spec: Obj) -> object:
        module_name, _, name = spec.class_name.rpartition(".")
        kind = self.named(module_name, name)
        arguments = tuple(self.make(item) for item in spec.arguments)
        state = {key: self.make(item) for key, item in spec.state.items()}
        if module_name.split(".")[0] in CALLED and callable(kind):
            return kind(*arguments)
        if arguments or not isinstance(kind, type):
            return _Call(kind, arguments, state)
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    def named(self, module_name: str, name: str) -> object:
        """The class or function of this name, made on the fly where there is none."""
        module = self.module(module_name)
        if not hasattr(module, name):
            kind = type(name, (), {"__module__": module_name, "__qualname__": name})
            self.stack.enter_context(mock.patch.object(module, name, kind, create=True))
        return getattr(module, name)

    def module(self, name: str) -> types.ModuleType:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
        for end in [*(found.start() for found in re.finditer(r"\.", name)), len(name)]:
            if name[:end] not in sys.modules:
                made = types.ModuleType(name[:end])
                made.__path__ = []  # a package, so that its submodules can be imported
                self.stack.enter_context(mock.patch.dict(sys.modules, {name[:end]: made}))
        return sys.modules[name]


class _Call:
    """Pickles as a call of ``kind``, which is never made here."""

    def __init__(self, kind: object, arguments: tuple[object, ...], state: dict[str, object]) -> None:
        self.kind, self.arguments, self.state = kind, arguments, state

    def __reduce__(self) -> tuple[object, ...]:
        return (self.kind, self.arguments, self.state) if self.state else (self.kind, self.arguments)


def _state_dict(entries: dict[str, object], metadata: dict[str, dict[str, int]] | None) -> OrderedDict[str, object]:
    made = OrderedDict(entries)
    if metadata is not None:
        made._metadata = OrderedDict(metadata)
    return made


def _children(value: object) -> Iterator[object]:
    if isinstance(value, Obj):
        yield from value.state.values()
        yield from value.arguments
    elif isinstance(value, Odict):
        yield from value.entries.values()
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value


def _storage_bytes(spec: T) -> int:
    """Bytes that the storage of ``spec`` needs at least."""
    stride = spec.stride if spec.stride is not None else _c_stride(spec.shape)
    span = 0 if 0 in spec.shape else 1 + sum((size - 1) * step for size, step in zip(spec.shape, stride, strict=True))
    elements = max(spec.offset + span, spec.storage_size or 0)
    return elements * getattr(torch, spec.dtype).itemsize


def _filled(size: int, dtype: torch.dtype, value: float | None) -> torch.UntypedStorage:
    """A storage of ``size`` bytes: all elements ``value``, or 0, 1, 2 … up to 100 and again (bytes for odd dtypes)."""
    count = size // dtype.itemsize
    counting = torch.arange(count) % 101 if value is None else torch.full((count,), value)
    try:
        return counting.to(dtype).untyped_storage()
    except (RuntimeError, TypeError):  # torch has no conversion to sub-byte, quantized and bits dtypes
        return (torch.arange(size) % 101).to(torch.uint8).untyped_storage()


def _c_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(1, prod(shape[index + 1 :])) for index in range(len(shape)))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "example"
