"""Writes the call that makes torch accept the classes of a file, as it works when it is pasted."""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword

from ckptdoctor.checkpoint import Mapping, Node, Opaque
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.facts.globals import Blocked, is_standard, modern
from ckptdoctor.rules.kit.refusals import torch_reads

_SCRIPT = "__main__"  # the module of what a script defines itself
_NAMELESS = frozenset({"Ellipsis", "NotImplemented"})  # values, which have no __module__ to find them by
_PLAIN_SEQUENCES = frozenset({"frozenset", "tuple"})  # torch makes these with their items, and does not fill them


def unfillable(blocked: Sequence[Blocked]) -> list[str]:
    """Return those that stay refused once they are allowed: torch puts entries only into lists and dicts themselves."""
    return [each.path for each in blocked if any(_is_filled(place.node) for place in each.places)]


def _is_filled(node: Node) -> bool:
    if isinstance(node, Mapping):
        return bool(node.entries)
    if isinstance(node, Items):
        return bool(node.items) and node.kind not in _PLAIN_SEQUENCES
    return isinstance(node, Opaque) and bool(node.items or node.entries)


def unnameable(blocked: Sequence[Blocked]) -> list[str]:
    """Return those that Python code cannot name: what a file calls them is then no code to paste, either."""
    return [
        each.path
        for each in blocked
        if not all(part.isidentifier() and not iskeyword(part) for part in each.path.split("."))
    ]


def own_classes(blocked: Sequence[Blocked]) -> list[str]:
    """Return the names of what the script that saved the file defined itself: no import brings them."""
    named = [modern(each.first.module, each.first.name) for each in blocked]
    return list(dict.fromkeys([name.partition(".")[0] for module, name in named if module == _SCRIPT]))


def allowing(blocked: Sequence[Blocked]) -> str:
    """Return the call of ``torch.serialization.add_safe_globals`` for these, after the imports that it needs."""
    modules: dict[str, None] = {}
    classes: dict[str, str] = {}  # how each is imported, by the name that it gets
    entries = []
    for each in blocked:
        module, name = modern(each.first.module, each.first.name)
        if module in ("builtins", _SCRIPT):
            shown = name
        elif is_standard(module):
            modules[module] = None
            shown = f"{module}.{name}"
        else:  # torch.optim deletes its modules' names, so that only "from" reaches torch.optim.adam
            shown = _imported(module, name, classes)
        key = torch_reads(each.first)
        found_by_itself = key == f"{module}.{name}" and module != _SCRIPT and name not in _NAMELESS
        entries.append(shown if found_by_itself else f'({shown}, "{key}")')
    lines = [*([f"import {', '.join(modules)}"] if modules else []), *classes.values()]
    return "; ".join([*lines, f"torch.serialization.add_safe_globals([{', '.join(entries)}])"])


def _imported(module: str, name: str, classes: dict[str, str]) -> str:
    """Return how to name it once it is imported; two classes of one name are told apart by their modules."""
    top, _, inside = name.partition(".")
    line = f"from {module} import {top}"
    if classes.get(top, line) != line:
        top = f"{module.replace('.', '_')}_{top}"
        line = f"{line} as {top}"
    classes[top] = line
    return f"{top}.{inside}" if inside else top
