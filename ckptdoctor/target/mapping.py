"""Takes a reference from Python: a module, a state dict, or shapes by key. Never imports torch itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.expectation import EXTRA_STATE, PAIRED, is_extra_state
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.target import Expected, Reference


def as_reference(given: object) -> Reference:
    """Return the expectation of a module, a mapping (key → tensor, anything with a shape, or a shape) or a Reference.

    Raises UsageError for anything else.
    """
    if isinstance(given, Reference):
        return given
    if isinstance(given, Mapping):
        return from_mapping(given, "the mapping")
    is_class = isinstance(given, type)
    if not is_class and callable(getattr(given, "state_dict", None)) and hasattr(given, "named_buffers"):
        return from_module(given, type(given).__name__)
    is_path = isinstance(given, str) or hasattr(given, "__fspath__")
    hint = "; the path of a file goes to like=" if is_path else ""
    raise UsageError(
        f"model= takes a torch.nn.Module, a mapping of keys to tensors or shapes, or a Reference, "
        f"not {type(given).__name__}{hint}."
    )


def from_module(module: Any, source: str) -> Reference:
    """Return the expectation of ``module.load_state_dict``: parameters, persistent buffers, every tied name."""
    state_dict = module.state_dict()
    kept = {key: value for key, value in state_dict.items() if hasattr(type(value), "shape") or is_extra_state(key)}
    refused = {key for key, loads in _extra_states(module) if not loads}  # torch refuses what nobody loads
    found = from_mapping({key: value for key, value in kept.items() if key not in refused}, source)
    if not found.tensors:
        raise UsageError(f"{source} has no parameters or buffers: there is nothing to compare with.")
    extra = {key for key, loads in _extra_states(module) if loads}
    trained = {key: each.requires_grad for key, each in module.named_parameters() if key in found.tensors}
    return replace(
        found,
        ties=_ties(module, found.tensors),
        extra=found.extra | extra,
        parameters=tuple(trained),
        frozen=frozenset([key for key, grad in trained.items() if not grad]),
        heads=_heads(module),
        arguments=_labels(module),
    )


def _heads(module: Any) -> int | None:
    """Return the number of heads of its attention, where the module has the config of a model of transformers."""
    config = getattr(module, "config", None)
    heads = getattr(config, "num_attention_heads", None)
    known = type(heads) is int and heads > 0 and getattr(config, "model_type", None) not in PAIRED
    return heads if known else None


def _labels(module: Any) -> tuple[tuple[str, int], ...]:
    """Return the number of labels that the config of a model of transformers has."""
    labels = getattr(getattr(module, "config", None), "num_labels", None)
    return (("num_labels", labels),) if type(labels) is int else ()


def _extra_states(module: Any) -> Iterator[tuple[str, bool]]:
    """Yield key of the extra state of each module, and whether the module loads one: it wants it then, whatever it is.

    Source: ``torch.nn.Module._load_from_state_dict``.
    """
    for name, each in module.named_modules(remove_duplicate=False):
        torch_own: Any = next((kind for kind in type(each).__mro__ if _is_base(kind)), None)
        if torch_own is not None:
            loads = type(each).set_extra_state is not torch_own.set_extra_state
            yield f"{name}.{EXTRA_STATE}" if name else EXTRA_STATE, loads


def _is_base(kind: type) -> bool:
    return kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module"


def _ties(module: Any, tensors: Mapping[str, Expected]) -> tuple[tuple[str, ...], ...]:
    """Return the keys of parameters and buffers that are one object under several names."""
    groups: dict[int, list[str]] = {}
    for every in (module.named_parameters, module.named_buffers):
        for key, value in every(remove_duplicate=False):
            if key in tensors:
                groups.setdefault(id(value), []).append(key)
    return tuple([tuple(keys) for keys in groups.values() if len(keys) > 1])


def from_mapping(mapping: Mapping[Any, Any], source: str) -> Reference:
    """Return tensors, anything with a shape, or shapes, by key, as a reference that people know as ``source``."""
    tensors = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise UsageError(f"{source} has the key {key!r}: the keys of a state dict are strings.")
        expected = _expected(key, value, source)
        if expected is not None:
            tensors[key] = expected
    return Reference(source, tensors, extra=frozenset([key for key in mapping if is_extra_state(key)]))


def _expected(key: str, value: Any, source: str) -> Expected | None:
    if isinstance(value, Expected):
        return value
    try:
        sizes = value if isinstance(value, (tuple, list)) else getattr(value, "shape", None)
    except Exception as error:  # a lazy parameter; its class is torch's, which is not imported here
        raise UsageError(
            f"{source} has no shape for {key} yet: a lazy module gets it from its first batch, so pass one through it."
        ) from error
    if sizes is not None and all(isinstance(size, int) and size >= 0 for size in sizes):
        return Expected(tuple(map(int, sizes)), _dtype(getattr(value, "dtype", None)))
    if is_extra_state(key):
        return None
    hint = ": give the state dict inside" if isinstance(value, Mapping) else ""
    raise UsageError(f'{source} has no tensor or shape under "{key}", but {type(value).__name__}{hint}.')


def _dtype(given: object) -> DType | None:
    """Return the dtype of torch or numpy by its name, or None where it is none that checkpoints have."""
    if isinstance(given, DType):
        return given
    return BY_NAME.get(str(given).rpartition(".")[2])
