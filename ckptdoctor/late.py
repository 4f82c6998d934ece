"""Dataclasses that are completed when the first of them is made.

Completing one writes and compiles half a dozen methods, half a millisecond each time. A check imports about 170 and
makes about 30 of them: the others would be a third of its start.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["complete_all", "late_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as late_dataclass
else:
    from dataclasses import dataclass

    _COMPLETING = RLock()  # two threads may make the first one at the same time
    _WAITING: dict[type, dict[str, bool]] = {}

    def late_dataclass(**options: bool) -> Any:
        """``dataclasses.dataclass``, for classes that have no slots and no dataclass above them.

        Nothing may ask the class for its fields before there is an instance.
        """

        def wait(cls: type) -> type:
            if "slots" in options or cls.__bases__ != (object,) or "__init__" in vars(cls):
                raise TypeError(f"{cls.__qualname__} cannot wait: it has slots, an __init__ or a class above it")

            def __init__(self: object, *values: object, **named: object) -> None:
                _complete(cls)
                cls.__init__(self, *values, **named)

            cls.__init__ = __init__
            _WAITING[cls] = options
            return cls

        return wait

    def _complete(cls: type) -> None:
        with _COMPLETING:
            options = _WAITING.pop(cls, None)
            if options is not None:
                del cls.__init__
                dataclass(**options)(cls)


def complete_all() -> None:
    """Complete every class that still waits, for those who watch what is compiled from then on."""
    if not TYPE_CHECKING:
        for cls in list(_WAITING):
            _complete(cls)
