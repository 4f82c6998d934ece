"""A reference given from Python: a module, a state dict, or shapes by key. Never imports torch itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.errors import UsageError
from ckptdoctor.reference import Expected, Reference

# the key under which a module keeps what is no tensor (torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX)
_EXTRA_STATE = "_extra_state"


def as_reference(given: object) -> Reference:
    """What a module, a mapping (key → tensor, anything with a shape, or a shape) or a Reference expects.

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
        f"reference= takes a torch.nn.Module, a mapping of keys to tensors or shapes, or a Reference, "
        f"not {type(given).__name__}{hint}."
    )


def from_module(module: Any, source: str) -> Reference:
    """What ``module.load_state_dict`` expects: parameters, persistent buffers, and every name of what is tied."""
    state_dict = module.state_dict()
    found = from_mapping({key: value for key, value in state_dict.items() if hasattr(type(value), "shape")}, source)
    if not found.tensors:
        raise UsageError(f"{source} has neither parameters nor buffers: there is nothing to compare with.")
    return found


def from_mapping(mapping: Mapping[Any, Any], source: str) -> Reference:
    """Key → tensor, anything with a shape, or the shape itself, as a reference that people know as ``source``."""
    tensors = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise UsageError(f"{source} has the key {key!r}: the keys of a state dict are texts.")
        expected = _expected(key, value, source)
        if expected is not None:
            tensors[key] = expected
    return Reference(source, tensors)


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
    if key.rpartition(".")[2] == _EXTRA_STATE:
        return None
    hint = ": give the state dict inside" if isinstance(value, Mapping) else ""
    raise UsageError(f"{source} has no tensor or shape under “{key}”, but {type(value).__name__}{hint}.")


def _dtype(given: object) -> DType | None:
    """The dtype of torch or numpy by its name; None where it is none that checkpoints have."""
    if isinstance(given, DType):
        return given
    return BY_NAME.get(str(given).rpartition(".")[2])
