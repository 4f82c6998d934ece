"""How new key names carry over to the places that repeat them: ``_metadata`` prefixes and ``param_names``.

A module prefix of ``_metadata`` follows its keys: where every key below ``old.`` kept its ending and moved below one
``new.``, the prefix ``old`` becomes ``new`` (as ``torch.nn.modules.utils.consume_prefix_in_state_dict_if_present``
does for a stripped prefix). A prefix without keys of its own (an activation, a wrapper) follows its nearest ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def renamed_modules(prefixes: Iterable[str], renames: Mapping[str, str]) -> dict[str, str | None]:
    """New name of each ``_metadata`` prefix under ``renames`` (every key of the state dict: old → new name).

    None means that the prefix has gone: it named a wrapper whose place another module has taken.
    """
    moved = _evidence(renames)
    wanted = {prefix: _moved(prefix, moved) for prefix in prefixes}
    owners: dict[str, str] = {}
    for prefix, name in wanted.items():
        rival = owners.get(name)
        if rival is None or len(prefix) > len(rival):  # the wrapped module outlives its wrapper
            owners[name] = prefix
    return {prefix: name if owners[name] == prefix else None for prefix, name in wanted.items()}


def _evidence(renames: Mapping[str, str]) -> dict[str, str | None]:
    """Module prefix → the prefix that all its keys moved to; None where they went different ways."""
    moved: dict[str, str | None] = {}
    for old, new in renames.items():
        old_parts, new_parts = old.split("."), new.split(".")
        shared = 0
        while shared < min(len(old_parts), len(new_parts)) and old_parts[-1 - shared] == new_parts[-1 - shared]:
            shared += 1
        for cut in range(len(old_parts)):
            prefix = ".".join(old_parts[:cut])
            rest = len(old_parts) - cut
            target = ".".join(new_parts[: len(new_parts) - rest]) if rest <= shared else None
            if prefix not in moved:
                moved[prefix] = target
            elif moved[prefix] != target:
                moved[prefix] = None
    return moved


def _moved(prefix: str, moved: Mapping[str, str | None]) -> str:
    parts = prefix.split(".") if prefix else []
    for cut in range(len(parts), -1, -1):
        target = moved.get(".".join(parts[:cut]))
        if target is not None:
            return ".".join([*([target] if target else []), *parts[cut:]])
    return prefix
