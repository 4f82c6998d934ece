"""Carries new key names over to the places that repeat them: ``_metadata``, tied names, and names in optimizers.

A module prefix of ``_metadata`` follows its keys: where every key below ``old.`` kept its ending and moved below one
``new.``, the prefix ``old`` becomes ``new`` (as ``torch.nn.modules.utils.consume_prefix_in_state_dict_if_present``
does for a stripped prefix). A prefix without keys of its own (an activation, a wrapper) follows its nearest ancestor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ckptdoctor.checkpoint.metadata import is_tie

# a module prefix, where it went (None: its name was lost), and then where the one module inside it went
_Move = tuple[str, "str | None", "str | None"]


def renamed_modules(prefixes: Iterable[str], renames: Mapping[str, str]) -> dict[str, str | None]:
    """Return the new name of each ``_metadata`` prefix under ``renames`` (every key of the state dict: old → new name).

    None means that the prefix has gone: it named a wrapper whose place another module has taken.
    """
    moved, inner = _evidence(renames)
    wanted = {prefix: _moved(prefix, moved) for prefix in prefixes}
    owners: dict[str, str] = {}
    for prefix, name in wanted.items():
        rival = owners.get(name)
        if rival is None or len(prefix) > len(rival):  # the wrapped module outlives its wrapper
            owners[name] = prefix
    return {
        prefix: name if owners[name] == prefix and not _emptied(name, inner.get(prefix)) else None
        for prefix, name in wanted.items()
    }


def renamed_ties(metadata: Mapping[str, str], renames: Mapping[str, str]) -> dict[str, str]:
    """Return safetensors' metadata with the notes on tied names as ``renames`` (every key: old → new name) leaves them.

    The tensor has its new name. The other name, which is not a key, follows the modules that it is in.
    """
    ties = {alias for alias, owner in metadata.items() if is_tie(alias, owner, renames)}
    if not ties or all(old == new for old, new in renames.items()):
        return dict(metadata)
    moved, _ = _evidence(renames)
    taken = metadata.keys() - ties | set(renames.values())
    made: dict[str, str] = {}
    for alias, text in metadata.items():
        if alias not in ties:
            made[alias] = text
            continue
        new = _moved(alias, moved)
        # a name that is taken cannot be a second one; under its old name nothing is lost
        made[alias if new in taken or new in made else new] = renames[text]
    return made


def named_after(parameters: Iterable[object], keys: Collection[str]) -> bool:
    """Return whether an optimizer that calls its parameters so has the names of exactly a state dict's keys.

    Then both are renamed together, as FSDP's optimizers need it. One name that is not a key, and it may be another's.
    """
    named = list(parameters)
    return bool(named) and all(isinstance(each, str) and each in keys for each in named)


def _evidence(renames: Mapping[str, str]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return where the keys of each module prefix moved to, and where the one module inside each went.

    None where keys went different ways. The second says something only of modules whose own name was lost on the way.
    Works upwards from the modules that hold keys, each move of a module once: models have far fewer of them than keys.
    """
    moved: dict[str, str | None] = {}
    inner: dict[str, str | None] = {}
    level: set[_Move] = {(*_around(old, new), None) for old, new in renames.items()}
    seen = set(level)
    while level:
        above: set[_Move] = set()
        for old, new, left in level:
            moved[old] = new if moved.get(old, new) == new else None
            inner[old] = left if inner.get(old, left) == left else None
            if old:
                parent, target = _around(old, new)
                above.add((parent, target, None if target is not None else left if new is None else new))
        level = above - seen
        seen |= level
    return moved, inner


def _around(old: str, new: str | None) -> tuple[str, str | None]:
    """Return what the move of ``old`` to ``new`` says of the module around it: None where its own name was lost."""
    parent, _, name = old.rpartition(".")
    if not new:
        return parent, None
    target, _, new_name = new.rpartition(".")
    return parent, target if name == new_name else None


def _emptied(name: str, inner: str | None) -> bool:
    """Return whether the module ``name`` was a wrapper of one module, which is now at ``inner``, outside of it."""
    return name != "" and inner is not None and not f"{inner}.".startswith(f"{name}.")


def _moved(prefix: str, moved: Mapping[str, str | None]) -> str:
    parts = prefix.split(".") if prefix else []
    for cut in range(len(parts), -1, -1):
        target = moved.get(".".join(parts[:cut]))
        if target is not None:
            return ".".join([*([target] if target else []), *parts[cut:]])
    return prefix
