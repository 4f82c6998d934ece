"""Gathers the arguments that a checkpoint keeps of how its model was made, and those a class or function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ckptdoctor.noun import field, noun
from ckptdoctor.target.target import NamedTarget

DATAMODULE = "datamodule_hyper_parameters"  # what its data were made with, which Lightning gives no model
_LONGEST = 200  # characters of arguments that a printed command spells out


class Record(dict[Any, Any]):
    """A dict whose entries are attributes, too: what a Namespace or a configuration is for the code that reads it."""

    __slots__ = ()

    @property
    def __dict__(self) -> dict[Any, Any]:  # type: ignore[override]  # what vars() gives
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f'the saved settings have no "{name}"') from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@noun
class Saved:
    """The call that made a model, as its file keeps it: plain values by name, and under which key of it each is.

    ``unfit`` says why others are not taken: what would have to be made from the file is not. ``whole`` is the name of
    the one argument that all of ``settings`` were, where the program was called with one such object. ``lightning``
    says that Lightning wrote it, which itself calls a module with these arguments.
    """

    file: str
    values: Mapping[str, object]
    places: Mapping[str, str]
    unfit: Mapping[str, str] = field(default_factory=dict)
    whole: str | None = None
    settings: Record = field(default_factory=Record)
    lightning: bool = False


Asked = Callable[[], "Saved | None"]


@noun
class Taken:
    """Arguments from a file: by name, with a sentence that says so, and the target with them spelled out.

    ``target`` is None where they are too long for a command line, or cannot be written there.
    """

    arguments: Mapping[str, object]
    told: str = ""
    target: NamedTarget | None = None


def taken(found: object, target: NamedTarget, asked: Asked) -> Taken:
    """Return the arguments of ``found`` that are not given, from the file where it has them.

    Asked for where it cannot be called otherwise, and of a module of Lightning, which gets them whenever Lightning
    loads it; nowhere where empty parentheses say that there are none.
    """
    parameters, given = _parameters(found), _given(found, target)
    if parameters is None or given is None or (target.called and not (target.arguments or target.keywords)):
        return Taken({})
    free = {name: each for name, each in parameters.items() if name not in given}
    needed = not all(map(_has_default, free.values()))
    saved = asked() if needed or is_lightning(found) else None
    if saved is None or saved.whole in given or not (needed or saved.lightning):
        return Taken({})
    return _from(saved, free, target, open_ended=is_lightning(found) and _takes_any(found))


def missing(found: object, target: NamedTarget, arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the arguments that have no default, and are neither given nor among ``arguments``."""
    parameters, given = _parameters(found), _given(found, target)
    if parameters is None or given is None:
        return []
    return [name for name, each in parameters.items() if name not in given | set(arguments) and not _has_default(each)]


def is_lightning(found: object) -> bool:
    """Return whether it is a class of a module of Lightning, which loads its own files with the arguments in them."""
    return isinstance(found, type) and any(
        each.__name__ == "LightningModule" and each.__module__.partition(".")[0] in ("lightning", "pytorch_lightning")
        for each in found.__mro__
    )


def _from(saved: Saved, free: Mapping[str, inspect.Parameter], target: NamedTarget, open_ended: bool) -> Taken:
    if saved.whole is not None and saved.whole in free:
        names = {saved.whole: saved.settings}
        place = next(iter(saved.places.values()), "hyper_parameters")
        told = f"{saved.whole} of {target.place} is {place} of {saved.file}"
        return Taken(names, f"{told}{_left_out(saved, {}, whole=True)}")
    wanted = [name for name in saved.values if _is_wanted(name, saved, free, open_ended)]
    arguments = {name: saved.values[name] for name in wanted}
    if not arguments:
        return Taken({}, _left_out(saved, free).removeprefix("; "))
    places = list(dict.fromkeys([saved.places[name] for name in wanted]))
    listed = " and ".join([", ".join([name for name in wanted if saved.places[name] == each]) for each in places])
    verb = "is" if len(wanted) == 1 else "are"
    told = f"{listed} of {target.place} {verb} from {' and '.join(places)} of {saved.file}"
    return Taken(arguments, told + _left_out(saved, free), spelled(target, arguments))


def _is_wanted(name: str, saved: Saved, free: Mapping[str, inspect.Parameter], open_ended: bool) -> bool:
    if saved.places[name] == DATAMODULE:
        return name in free and not _has_default(free[name])
    return name in free or (open_ended and name.isidentifier())


def _left_out(saved: Saved, free: Mapping[str, inspect.Parameter], whole: bool = False) -> str:
    names = [name for name in saved.unfit if whole or name in free]
    return "".join([f"; {name} is not read from there: {saved.unfit[name]}" for name in names])


def spelled(target: NamedTarget, arguments: Mapping[str, object]) -> NamedTarget | None:
    """Return the target with these arguments written out, or None where that is too long, or no literal."""
    text = ", ".join([f"{name}={value!r}" for name, value in arguments.items()])
    if len(text) > _LONGEST or not all(map(_is_literal, arguments.values())):
        return None
    return NamedTarget(target.module, target.attributes, target.arguments, (*target.keywords, *arguments.items()), True)


def _is_literal(value: object) -> bool:
    """Return whether Python's own notation of it gives it again, as the text of ``--model`` is read."""
    if isinstance(value, Record):
        return False
    if isinstance(value, dict):
        return all(_is_literal(each) for pair in value.items() for each in pair)
    if isinstance(value, (list, tuple)):
        return all(map(_is_literal, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor no number
    return value is None or isinstance(value, (bool, int, str, bytes))


def _parameters(found: object) -> dict[str, inspect.Parameter] | None:
    """Return the parameters that can be given by name, or None where nothing tells."""
    try:
        every = inspect.signature(found).parameters  # type: ignore[arg-type]  # what has none raises
    except (TypeError, ValueError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: each for name, each in every.items() if each.kind in named}


def _takes_any(found: object) -> bool:
    every = inspect.signature(found).parameters.values()  # type: ignore[arg-type]  # _parameters found some
    return any(each.kind is each.VAR_KEYWORD for each in every)


def _given(found: object, target: NamedTarget) -> set[str] | None:
    """Return the names of the arguments that the target gives, or None where they cannot be given like that."""
    try:
        signature = inspect.signature(found)  # type: ignore[arg-type]  # what has none raises
        return set(signature.bind_partial(*target.arguments, **dict(target.keywords)).arguments)
    except (TypeError, ValueError):
        return None


def _has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty
