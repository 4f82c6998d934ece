"""The house's dataclasses: what they say of themselves fits on a screen, and some are completed late.

A late one is completed when the first of them is made. Completing one writes and compiles half a dozen methods, half a
millisecond each time. A check imports about 170 and makes about 30 of them: the others would be a third of its start.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["complete_all", "dataclass", "late_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from dataclasses import dataclass as late_dataclass
else:
    from dataclasses import dataclass as _dataclass

    _COMPLETING = RLock()  # two threads may make the first one at the same time
    _WAITING: dict[type, dict[str, bool]] = {}

    def dataclass(**options: bool) -> Any:
        """``dataclasses.dataclass`` with ``brief`` for a ``repr``, whatever it holds."""

        def make(cls: type) -> type:
            return _dataclass(**options)(_with_brief_repr(cls))

        return make

    def _with_brief_repr(cls: type) -> type:
        if "__repr__" not in vars(cls):  # a dataclass leaves alone what its class has already

            def __repr__(self: object) -> str:
                from ckptdoctor.brief import brief

                return brief(self)

            cls.__repr__ = __repr__
        return cls

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
            _with_brief_repr(cls)
            _WAITING[cls] = options
            return cls

        return wait

    def _complete(cls: type) -> None:
        with _COMPLETING:
            options = _WAITING.pop(cls, None)
            if options is not None:
                del cls.__init__
                _dataclass(**options)(cls)


def complete_all() -> None:
    """Complete every class that still waits, for those who watch what is compiled from then on."""
    if not TYPE_CHECKING:
        for cls in list(_WAITING):
            _complete(cls)
