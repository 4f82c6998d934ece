"""Builds modules without memory for their parameters, so that a model of any size costs next to nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

_Made = TypeVar("_Made")
# what torch says when code asks a tensor on the meta device for its values
_VALUES_WANTED = ("meta", "no data")


class TooManyError(Exception):
    """More parameters were made than any model has."""


def build(make: Callable[[], _Made], most: int | None = None) -> _Made:
    """Return the result of ``make``, with parameters on the meta device.

    Initialising them does nothing and takes no time.

    First everything is made on the meta device. Constructors that need the values of some tensor (``.item()`` on
    ``torch.linspace`` is a common one) fail there; for them only parameters go to meta, each when a module takes it,
    and all else is made on the CPU. Raises whatever ``make`` raises then. ``most`` bounds the number of parameters.
    """
    try:
        with _elsewhere("meta"), _counted(most):
            return make()
    except TooManyError:
        raise
    except Exception:  # noqa: BLE001 - where the meta device is not to blame, the second try meets the same again
        pass
    with _elsewhere("cpu"), _counted(most):
        return make()


def wants_values(error: BaseException) -> bool:
    """Return whether the code failed because parameters have no values while they are on the meta device."""
    return isinstance(error, (RuntimeError, NotImplementedError, TypeError, ValueError)) and any(
        words in str(error) for words in _VALUES_WANTED
    )


@contextmanager
def _elsewhere(device: str) -> Iterator[None]:
    """Tensors are made on ``device``, never on a GPU, and parameters always on meta; moves to devices do nothing."""
    import torch
    from torch.nn.modules.module import register_module_parameter_registration_hook

    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that weights which are loaded go nowhere, for one, is meant
        stack.callback(register_module_parameter_registration_hook(_to_meta).remove)
        if device == "meta":
            stack.enter_context(torch.device("meta"))
        stack.enter_context(_staying(device))
        yield


@contextmanager
def _counted(most: int | None) -> Iterator[None]:
    from torch.nn.modules.module import register_module_parameter_registration_hook

    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if most is not None and seen > most:
            raise TooManyError

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _to_meta(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> Any:
    """Return a registration hook: what it gives is registered instead, and None changes nothing."""
    import torch

    if parameter is None or parameter.is_meta or type(parameter) is not torch.nn.Parameter:
        return None
    return torch.nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)


def _staying(device: str) -> Any:
    """Return a mode in which ``.to(device)`` and ``.cuda()`` change at most the dtype."""
    import torch
    from torch.overrides import TorchFunctionMode

    def is_gpu(wanted: object) -> bool:
        return wanted is not None and torch.device(wanted).type not in ("cpu", "meta")  # type: ignore[call-overload]

    def moved(tensor: torch.Tensor, *given: object) -> torch.Tensor:
        dtypes = [each if isinstance(each, torch.dtype) else getattr(each, "dtype", None) for each in given]
        wanted = next((dtype for dtype in dtypes if isinstance(dtype, torch.dtype)), None)
        return tensor if wanted is None else tensor.to(wanted)

    class Staying(TorchFunctionMode):  # a class inside, because its base comes from torch
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is torch.Tensor.to:
                return moved(*args, *kwargs.values())
            if func in (torch.Tensor.cuda, torch.Tensor.cpu):
                return args[0]
            if "device" in kwargs and is_gpu(kwargs["device"]):
                kwargs = {**kwargs, "device": device}
            return func(*args, **kwargs)

    return Staying()
