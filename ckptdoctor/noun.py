"""Makes nouns: frozen dataclasses with slots that cost little to define, and little to make.

``dataclasses.dataclass`` writes and compiles half a dozen methods of each class when it is imported: half a millisecond
for each of 80 classes of a check, of which 40 are ever made, most of them once. Here what is alike for all classes is a
closure, and ``__init__``, the only method that is compiled, waits until there have been some instances, which are
filled field by field. The compiled one fills an object of a twin that is not frozen, which then becomes what it stands
for: a quarter of the time of a frozen dataclass, which sets each field by a call. To everyone else these are
dataclasses: ``fields``, ``replace``, ``match`` and type checkers see no difference, and ``repr`` says at most a screen.
The module ``dataclasses``, which brings ``inspect`` and half of a compiler, is only imported for who asks as such;
``field`` and ``replace`` are those of here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["complete_all", "field", "maker", "noun", "replace"]

if TYPE_CHECKING:
    from dataclasses import field, replace
    from typing import TypeVar, overload

    from typing_extensions import ParamSpec, dataclass_transform

    P = ParamSpec("P")
    T = TypeVar("T")

    @overload
    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def noun(cls: type[T], /) -> type[T]: ...
    @overload
    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def noun(*, frozen: bool = True, eq: bool = True, slots: bool = True) -> Callable[[type[T]], type[T]]: ...
    def noun(*args: Any, **options: bool) -> Any:
        """Stand in for what is below: type checkers only have to know that it makes dataclasses."""

    def maker(cls: Callable[P, T], /) -> Callable[P, T]:
        """Stand in for what is below: type checkers only have to know that it takes what the class takes."""

else:

    def noun(cls: type | None = None, /, *, frozen: bool = True, eq: bool = True, slots: bool = True) -> Any:
        """Return a class of fields.

        Without ``slots`` its instances have a ``__dict__``, as ``cached_property`` needs.
        """
        if cls is None:
            return lambda cls: _made(cls, frozen, eq, slots)
        return _made(cls, frozen, eq, slots)

    def field(**options: Any) -> Any:
        """Return a field that needs more than a default, as ``dataclasses.field`` has it."""
        return _Field(**options)

    def replace(one: Any, /, **changes: Any) -> Any:
        """Return the same with other values in these fields."""
        order = getattr(type(one), "__noun_order__", None)
        if order is None:
            from dataclasses import replace

            return replace(one, **changes)
        told, places = order
        values = [*told(one)]
        for name, value in changes.items():
            place = places.get(name)
            if place is None:
                raise TypeError(f"{type(one).__name__} has no field {name!r} that can be given")
            values[place] = value
        cls = type(one)
        return _MAKERS.get(cls, cls)(*values)

    def maker(cls: type, /) -> Any:
        """Return a function that makes what the class makes, in two thirds of the time.

        Python calls it as it is, and has no ``__init__`` to look up and to call. It is for who makes a great many, and
        for frozen classes with slots.
        """
        made = _MAKERS.get(cls)
        if made is None:
            made = _MAKERS[cls] = _compiled(cls, cls.__noun_fields__, twin=True, frozen=True, alone=True)
        return made


class _Missing:
    """Stands for a default that a field has not."""


_MISSING = _Missing()


class _Field:
    """What a noun knows of one of its fields."""

    __slots__ = ("compare", "default", "default_factory", "init", "repr", "type")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.type = ""


class _AsDataclass:
    """``__dataclass_fields__`` of a noun, made when it is first asked for."""

    def __init__(self, known: dict[str, _Field]) -> None:
        self._known = known

    def __get__(self, one: object, owner: type) -> dict[str, Any]:
        from dataclasses import _FIELD, field  # type: ignore[attr-defined]

        cls = next(each for each in owner.__mro__ if vars(each).get("__dataclass_fields__") is self)
        fields: dict[str, Any] = {}
        for name, each in self._known.items():
            options: dict[str, Any] = {"init": each.init, "repr": each.repr, "compare": each.compare}
            if each.default is not _MISSING:
                options["default"] = each.default
            if each.default_factory is not _MISSING:
                options["default_factory"] = each.default_factory
            made = fields[name] = field(**options)
            made.name, made.type, made.kw_only, made._field_type = name, each.type, False, _FIELD
        cls.__dataclass_fields__ = fields  # type: ignore[attr-defined]
        return fields


# instances of a class that are made before its __init__ is compiled, which takes as long as hundreds of them
_FEW = 32
# classes whose __init__ is not compiled yet, each with what does it
_WAITING: dict[type, Callable[[], None]] = {}
# what makes them without it
_MAKERS: dict[type, Callable[..., Any]] = {}


def complete_all() -> None:
    """Compile what is still waiting, for those who watch what is compiled from then on."""
    for complete in list(_WAITING.values()):
        complete()


def _made(cls: type, frozen: bool, eq: bool, slots: bool) -> type:
    inherited: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= getattr(base, "__noun_fields__", {})
    own = {name: _field(cls, name, kind) for name, kind in vars(cls).get("__annotations__", {}).items()}
    known = inherited | own
    body = vars(cls)
    methods = {
        name: method
        for name, method in _methods(known, frozen, eq, slots or hasattr(cls, "__setstate__")).items()
        if name not in body or (name == "__hash__" and body[name] is None)
    }
    named = tuple([name for name, each in known.items() if each.init])
    methods |= {"__noun_fields__": known, "__dataclass_fields__": _AsDataclass(known), "__match_args__": named}
    methods["__noun_order__"] = _getter([*named]), {name: place for place, name in enumerate(named)}
    cls = _again(cls, own, tuple([name for name in own if name not in inherited]) if slots else None, methods)
    if "__init__" not in body:
        cls.__init__ = _waiting(cls, known, frozen and slots, frozen)  # type: ignore[misc]
    return cls


def _field(cls: type, name: str, kind: str) -> _Field:
    default = vars(cls).get(name, _MISSING)
    made = default if isinstance(default, _Field) else _of_dataclasses(default)
    made.type = kind
    return made


def _of_dataclasses(default: Any) -> _Field:
    """Return a field with this default, which may be one of ``dataclasses.field``."""
    theirs: Any = sys.modules.get("dataclasses")
    if theirs is None or not isinstance(default, theirs.Field):
        return _Field(default=default)
    options = {name: getattr(default, name) for name in ("default", "default_factory", "init", "repr", "compare")}
    return _Field(**{name: value for name, value in options.items() if value is not theirs.MISSING})


def _again(cls: type, own: dict[str, _Field], slots: tuple[str, ...] | None, methods: dict[str, Any]) -> type:
    """Return the class with these methods and slots, which must be there when it is made, and without their defaults.

    Python looks at all methods of a class once for each that is set later.
    """
    if slots is None:
        for name, each in own.items():
            if each.default is not _MISSING:
                setattr(cls, name, each.default)
            elif name in vars(cls):
                delattr(cls, name)
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", *own)}
    made = type(cls)(cls.__name__, cls.__bases__, body | methods | {"__slots__": slots})
    made.__qualname__ = cls.__qualname__
    return made


def _methods(known: dict[str, _Field], frozen: bool, eq: bool, state: bool) -> dict[str, Any]:
    """Return the methods that a dataclass has besides ``__init__``, by their names.

    ``state`` asks for what pickles it: for slots, or because what it inherits of that knows fewer fields.
    """
    methods: dict[str, Any] = {"__repr__": _brief}
    if eq:
        told = _getter([name for name, each in known.items() if each.compare])

        def __eq__(self: object, other: object) -> bool:
            return told(self) == told(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self: object) -> int:
            return hash(told(self))

        methods |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if state:
        names = tuple(known)

        def __getstate__(self: object) -> list[object]:
            return [getattr(self, name) for name in names]

        def __setstate__(self: object, state: Iterable[object]) -> None:
            _fill(self, names, state)

        methods |= {"__getstate__": __getstate__, "__setstate__": __setstate__}
    return methods


def _getter(names: list[str]) -> Callable[[object], Any]:
    """Return what gives the values of the fields as a tuple: tuples take what is identical for equal, NaN too."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def _fill(one: object, names: Iterable[str], values: Iterable[object]) -> None:
    for name, value in zip(names, values, strict=True):
        object.__setattr__(one, name, value)


def _brief(self: object) -> str:
    from ckptdoctor.brief import brief

    return brief(self)


def _refuse_to_set(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _waiting(cls: type, known: dict[str, _Field], twin: bool, frozen: bool) -> Callable[..., None]:
    """Return an ``__init__`` that fills some instances, and then puts the compiled one in its place."""
    left = _FEW

    def complete() -> None:
        _WAITING.pop(cls, None)
        if vars(cls)["__init__"] is __init__:  # another thread may have been quicker
            cls.__init__ = _compiled(cls, known, twin, frozen)  # type: ignore[misc]

    def __init__(self: object, *values: object, **named: object) -> None:
        nonlocal left
        left -= 1
        given = _given(known, values, named) if left >= 0 else None
        if given is None:
            complete()
            cls.__init__(self, *values, **named)  # type: ignore[misc]
            return
        _fill(self, known, given)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()  # type: ignore[attr-defined]

    _WAITING[cls] = complete
    return __init__


def _given(known: dict[str, _Field], values: tuple[object, ...], named: dict[str, object]) -> list[object] | None:
    """Return what each field is given, or None where the compiled ``__init__`` has to say what is wrong."""
    filled: list[object] = []
    places = iter(values)
    left = len(values) + len(named)
    for name, each in known.items():
        value = next(places, _MISSING) if each.init else _MISSING
        if value is _MISSING and each.init:
            value = named.get(name, _MISSING)
        left -= value is not _MISSING
        if value is _MISSING:
            value = each.default if each.default_factory is _MISSING else each.default_factory()
        if value is _MISSING:
            return None
        filled.append(value)
    return None if left else filled


def _compiled(cls: type, known: dict[str, _Field], twin: bool, frozen: bool, alone: bool = False) -> Callable[..., Any]:
    """Return an ``__init__``, or a function that does without it."""
    names = [name for name, each in known.items() if each.init]
    around: dict[str, Any] = {"_MISSING": _MISSING, "_cls": cls, "_fill": _fill, "_names": tuple(known)}
    heads, lines, values = [], [], []
    for name, each in known.items():
        given = name
        if each.default is not _MISSING:
            around[f"_of_{name}"] = each.default
            heads.append(f"{name}=_of_{name}")
        elif each.default_factory is not _MISSING:
            around[f"_of_{name}"] = each.default_factory
            heads.append(f"{name}=_MISSING")
            lines.append(f" if {name} is _MISSING: {name} = _of_{name}()")
        else:
            heads.append(name)
        if name not in names:
            heads.pop()
            given = f"_of_{name}" if each.default is not _MISSING else f"_of_{name}()"
            lines = [line for line in lines if not line.startswith(f" if {name} is")]
        values.append(given)
    sets = [f"  self.{name} = {value}" for name, value in zip(known, values, strict=True)]
    if twin:
        # a subclass without slots of its own, of which Python sees at a glance that an object of one can become one of
        # the other: it would compare the slots of two strangers name by name
        free = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
        around["_twin"] = type(cls)(cls.__name__, (cls,), {"__slots__": (), **free})
        around["_become"] = vars(object)["__class__"].__set__
        if alone:
            lines += [" self = _twin()", *[line[1:] for line in sets], " _become(self, _cls)"]
        else:
            lines += [" if self.__class__ is _cls:", "  _become(self, _twin)", *sets, "  _become(self, _cls)"]
            lines += [f" else: _fill(self, _names, ({''.join([f'{value}, ' for value in values])}))"]
    elif frozen:
        lines += [f" _fill(self, _names, ({''.join([f'{value}, ' for value in values])}))"]
    else:
        lines += [line[1:] for line in sets]
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    name = "make" if alone else "__init__"
    if alone:
        lines.append(" return self")
    text = f"def {name}({', '.join(heads if alone else ['self', *heads])}):\n" + "\n".join(lines or [" pass"])
    exec(compile(text, f"<{cls.__module__}.{cls.__qualname__}>", "exec"), around)  # names of fields alone: no input
    made: Callable[..., Any] = around[name]
    return made
