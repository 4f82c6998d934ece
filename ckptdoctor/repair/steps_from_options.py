"""Turns the options of a repair into steps of a draft: each one looks at the contents as those before it left them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Part,
    Role,
    Sequence,
    StateDict,
    at,
    children,
    show_path,
)
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.patterns import dropped_paths, kept_paths
from ckptdoctor.checkpoint.roots import beside, find_root
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.edits import Compute, Drop, Edit, MoveToCpu, Rename, Retag, Safety, TakeRoot
from ckptdoctor.edits.applied.moving import moved_tensors
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts import names
from ckptdoctor.facts.devices import CPU, rng_tensors
from ckptdoctor.facts.optimizers import saved_optimizers, scalers, top
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.casts import dtype_edits
from ckptdoctor.repair.draft import Draft
from ckptdoctor.repair.name_map import name_edits, root_edits, turn_edits
from ckptdoctor.repair.request import FixRequest, Substitution
from ckptdoctor.repair.sharing import clone_edits, tie_edits
from ckptdoctor.repair.weights_only import weights_only_edits
from ckptdoctor.shell import quote, word

_SHOWN = 6  # prefixes offered in a message


@noun
class OptionStep:
    """One option: how it was written, what it does in a few words, and the edits it means for some contents."""

    label: str
    title: str
    edits: Callable[[Checkpoint], list[Edit]]


def add_options(draft: Draft, request: FixRequest) -> None:
    """Add the steps of the options that apply before the contents are brought to a target."""
    for step in option_steps(request):
        edits = tuple(step.edits(draft.checkpoint))
        safety = Safety.UNSAFE if _loses(draft.checkpoint, edits) else Safety.SAFE
        draft.add(step.label, "", step.title, safety, edits)


def add_last_options(draft: Draft, request: FixRequest) -> None:
    """Add the steps of the options that apply after that: parameters are renumbered, and weights are cast."""
    if request.remap_optimizer:
        edits = tuple(_remap_edits(draft.checkpoint, request.reference, request.unsafe))
        draft.add("--remap-optimizer", "", "renumber the parameters of optimizers", Safety.SAFE, edits)
    if request.dtype is not None:
        edits = tuple(dtype_edits(draft.checkpoint, request.dtype))
        draft.add(f"--dtype {request.dtype}", "", f"cast to {request.dtype}", Safety.SAFE, edits)


def _loses(checkpoint: Checkpoint, edits: tuple[Edit, ...]) -> bool:
    """Return whether something that the file holds is not in it afterwards: a loss, though it was asked for."""
    roots = [edit.path for edit in edits if isinstance(edit, TakeRoot)]
    left_out = any(True for path in roots for _ in beside(checkpoint.tree, path))
    return left_out or any(isinstance(edit, (Compute, Drop)) for edit in edits)


def option_steps(request: FixRequest) -> Iterator[OptionStep]:
    """Yield the options of a request, in the order in which they apply."""
    if request.root is not None:
        root = request.root
        yield OptionStep(f"--root {root}", f"extract {root}", lambda checkpoint: _root(checkpoint, root))
    if request.name_map is not None:
        wanted = request.name_map
        yield OptionStep("--map", "extract the state dict", lambda checkpoint: root_edits(checkpoint, wanted))
        yield OptionStep("--map", "transpose by the map", lambda checkpoint: turn_edits(checkpoint, wanted))
        yield OptionStep("--map", "rename by the map", lambda checkpoint: name_edits(checkpoint, wanted))
    if request.drop:
        yield _pattern_step("--drop", request.drop, dropped_paths)
    if request.keep:
        yield _pattern_step("--keep", request.keep, kept_paths)
    if request.slim:
        yield OptionStep("--slim", "leave out everything that only resuming needs", slim_edits)
    if request.strip_module:
        yield OptionStep("--strip-module", "strip what training wrappers put before keys", _strip_module)
    for prefix in request.strip_prefixes:
        yield _strip_step(prefix)
    for each in request.renames:
        yield _rename_step(each)
    if request.add_prefix is not None:
        yield _add_step(request.add_prefix)
    if request.merge_adapter is not None:
        yield _merge_step(request.merge_adapter)
    if request.to_cpu:
        yield OptionStep("--to-cpu", "move every tensor to the CPU", _to_cpu)
    if request.weights_only_safe:
        yield OptionStep(
            "--weights-only-safe",
            "convert objects that torch.load rejects to plain data",
            lambda checkpoint: weights_only_edits(checkpoint, _command(request)),
        )
    if request.clone_shared:
        yield OptionStep("--clone-shared", "give tensors that share memory bytes of their own", clone_edits)
    if request.tie:
        yield OptionStep("--tie", "re-tie weights with identical bytes", tie_edits)


def _command(request: FixRequest) -> str:
    """Return the command that asks for --weights-only-safe and nothing else, or "" where more was asked for."""
    alone = FixRequest(request.path, request.output, weights_only_safe=True, force=request.force)
    if request != replace(alone, selection=request.selection) or request.selection.select is not None:
        return ""
    output = "" if request.output is None else f" -o {quote(request.output)}"
    return f"ckptdoctor fix {quote(request.path)} --weights-only-safe{output}{' --force' if request.force else ''}"


def _pattern_step(option: str, patterns: tuple[str, ...], find: Callable[..., tuple[object, ...]]) -> OptionStep:
    label = " ".join(f"{option} {pattern}" for pattern in patterns)

    def edits(checkpoint: Checkpoint) -> list[Edit]:
        paths = find(checkpoint, patterns)
        return [Drop(paths)] if paths else []  # type: ignore[arg-type]  # both functions give key paths

    return OptionStep(label, "drop matching entries" if option == "--drop" else "keep only matching entries", edits)


def _merge_step(text: str) -> OptionStep:
    def edits(checkpoint: Checkpoint) -> list[Edit]:
        from ckptdoctor.repair.merge_adapter import merge_edits

        return merge_edits(checkpoint, text)

    title = "add the adapter to the weights, rounded once: it cannot be removed again"
    return OptionStep(f"--merge-adapter {text}", title, edits)


def _root(checkpoint: Checkpoint, text: str) -> list[Edit]:
    path = find_root(checkpoint.tree, text)
    return [TakeRoot(path)] if path else []


def _to_cpu(checkpoint: Checkpoint) -> list[Edit]:
    edits: list[Edit] = [MoveToCpu()] if any(moved_tensors(checkpoint, MoveToCpu())) else []
    return [*edits, Retag(CPU)] if any(storage.device != CPU for storage in checkpoint.storages) else edits


def _strip_module(checkpoint: Checkpoint) -> list[Edit]:
    return _renames(checkpoint, names.bare, "--strip-module")


def _strip_step(prefix: str) -> OptionStep:
    prefix = prefix if prefix.endswith(".") else f"{prefix}."
    label = f"--strip-prefix {prefix}"

    def edits(checkpoint: Checkpoint) -> list[Edit]:
        found = _renames(checkpoint, lambda key: key[len(prefix) :] if key.startswith(prefix) else key, label, prefix)
        if not found:
            raise RefusedError(f'No key begins with "{prefix}".{_nearest(prefix, checkpoint)}')
        return found

    return OptionStep(label, f'strip "{prefix}" from keys', edits)


def _add_step(prefix: str) -> OptionStep:
    prefix = prefix if prefix.endswith(".") else f"{prefix}."
    label = f"--add-prefix {prefix}"
    return OptionStep(
        label, f'put "{prefix}" before keys', lambda each: _some(_renames(each, lambda key: prefix + key, label))
    )


def _rename_step(wanted: Substitution) -> OptionStep:
    label = f"--rename '{wanted.text}'"

    def edits(checkpoint: Checkpoint) -> list[Edit]:
        found = _renames(checkpoint, lambda key: wanted.pattern.sub(wanted.replacement, key), label)
        if not found and not any(wanted.pattern.search(key) for _, keys in _weights(checkpoint) for key in keys):
            raise RefusedError(f"{label} matches no key{_nearest(wanted.pattern.pattern, checkpoint)}.")
        return found

    return OptionStep(label, "rename keys", edits)


def _some(edits: list[Edit]) -> list[Edit]:
    if not edits:
        raise RefusedError("The file has no state dict whose keys could be renamed.")
    return edits


def _weights(checkpoint: Checkpoint) -> Iterator[tuple[StateDict, list[str]]]:
    """Yield the state dicts whose keys name parameters, with the keys that do (not "epoch" next to them)."""
    for state_dict in weights_among(checkpoint.state_dicts):
        parameters = [key for key in state_dict.others if "." in key or key.endswith("_extra_state")]
        yield state_dict, [*state_dict.keys, *parameters]


def _renames(checkpoint: Checkpoint, change: Callable[[str], str], label: str, prefix: str | None = None) -> list[Edit]:
    edits: list[Edit] = []
    for state_dict, keys in _weights(checkpoint):
        taken = set(_all_keys(checkpoint, state_dict)).difference(keys)
        found = names.renaming(keys, change, taken)
        if found.collision is not None:
            raise collision(label, *found.collision, prefix)
        if any(not new for _, new in found.pairs):
            raise RefusedError(f"{label} would leave a key without a name.")
        if found.pairs:
            edits.append(Rename(state_dict.path, found.pairs))
    return edits


def _all_keys(checkpoint: Checkpoint, state_dict: StateDict) -> list[str]:
    node = at(checkpoint.tree, state_dict.path)
    return [part for part, _ in node.entries if isinstance(part, str)] if isinstance(node, Mapping) else []


def collision(label: str, one: str, other: str, name: str, prefix: str | None = None) -> RefusedError:
    """Return the refusal of an option that would make one key of two, with both names and the ways out."""
    rows = [(key, "is already there" if key == name else f"→  {name}") for key in (one, other)]
    rows.sort(key=lambda row: row[0] == name)
    room = max(len(key) for key, _ in rows)
    moving, staying = rows[0][0], rows[1][0]
    lines = [f"{label} would give two keys one name", *(f"  {key:<{room}}  {what}" for key, what in rows)]
    if prefix is not None:
        token = prefix.rstrip(".").replace(".", r"\.")
        rest = moving[len(prefix) :].split(".")[0]
        instead = word(f"{token}\\.{rest}={token[:3]}_{rest}")
        return RefusedError("\n".join([*lines, f"  instead: --rename {instead}"]))
    other = word(f"^{re.escape(staying)}$=other_{staying}")
    return RefusedError(
        "\n".join([*lines, f"  give one of them another name in a repair before this one: --rename {other}"])
    )


def _nearest(text: str, checkpoint: Checkpoint) -> str:
    """Return what keys do begin with, the most similar first."""
    from difflib import SequenceMatcher

    prefixes: dict[str, int] = {}
    for _, keys in _weights(checkpoint):
        for key in keys:
            tokens = key.split(".")
            for end in range(1, min(len(tokens), 3)):
                prefix = ".".join(tokens[:end]) + "."
                prefixes[prefix] = prefixes.get(prefix, 0) + 1
    if not prefixes:
        return ""
    most = sorted(prefixes, key=lambda each: -prefixes[each])[:200]
    near = sorted(most, key=lambda each: -SequenceMatcher(None, text, each).ratio())[:_SHOWN]
    named = ", ".join([f'"{each}"' for each in near])
    return f" The nearest prefixes are {named}."


# ---- ``--slim``: what only resuming a training needs is left out: optimizers, schedulers, scalers, random generators
#
# The weights stay, averaged ones among them, and so does everything else: counters, settings, hyper-parameters.


_GONE = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)
# names at the top of the file, for what does not look like a state dict: an empty one, states of Python and NumPy
_NAMES = re.compile(
    r"(?:model_?)?(?:optim(?:izer)?|opt|(?:lr_?)?sched(?:uler)?|(?:native_)?(?:amp|grad|loss)?_?scaler|amp|rng|random)s?"
    r"(?:_?(?:state|states|state_dict|state_dicts|dict))?|(?:\w+_)?(?:rng|random)_states?",
    re.IGNORECASE,
)


def slim_edits(checkpoint: Checkpoint) -> list[Edit]:
    """Return the edits that leave out what only resuming needs.

    Raises RefusedError where there are no weights next to it.
    """
    if not any(each.role in WEIGHTS for each in checkpoint.state_dicts):
        raise RefusedError("--slim keeps only the weights, and this file has none: it serves only to resume training.")
    kept = {
        each.path[:depth] for each in checkpoint.state_dicts if each.role in WEIGHTS for depth in _depths(each.path)
    }
    paths = [path for path in dict.fromkeys(_found(checkpoint)) if path and path not in kept]
    whole = _outermost(checkpoint.tree, paths, kept)
    return [Drop(whole)] if whole else []


def _depths(path: KeyPath) -> range:
    return range(len(path) + 1)


def _found(checkpoint: Checkpoint) -> Iterator[KeyPath]:
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in _GONE:
            yield state_dict.path
    for path, _ in scalers(checkpoint):
        yield path
    for tensor in rng_tensors(checkpoint):
        yield tensor.path
    for name in top(checkpoint):
        if _NAMES.fullmatch(name):
            yield (name,)


def _outermost(tree: Node, paths: list[KeyPath], kept: set[KeyPath]) -> tuple[KeyPath, ...]:
    """Return the paths, and instead of them the lists and dicts that hold nothing else."""
    going = set(paths)
    around = {path[:depth] for path in paths for depth in range(1, len(path))}
    parts = _parts(tree, around)
    for path in sorted(around - kept, key=len, reverse=True):
        inside = parts.get(path, ())
        if inside and all((*path, part) in going for part in inside):
            going.add(path)
    found = [next(path[:depth] for depth in range(1, len(path) + 1) if path[:depth] in going) for path in paths]
    return tuple(dict.fromkeys(found))


def _parts(tree: Node, around: set[KeyPath]) -> dict[KeyPath, list[Part]]:
    """Return what is directly in the lists and dicts at these paths, all of whose parents are among them."""
    found: dict[KeyPath, list[Part]] = {}
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, (Mapping, Sequence)):
            below = list(children(node))
            found[path] = [part for part, _ in below]
            stack += [((*path, part), child) for part, child in below if (*path, part) in around]
    return found


# ---- ``--remap-optimizer``: states are numbered as the target, or the model beside them, numbers parameters


def in_its_place(reference: Reference, checkpoint: Checkpoint) -> Reference:
    """Return the reference for weights that stay where they are, next to their optimizer."""
    from ckptdoctor.match.comparing import compare  # most repairs have no target

    return replace(reference, root=compare(checkpoint, reference).path)


def _remap_edits(checkpoint: Checkpoint, reference: Reference | None, unsafe: bool) -> list[Edit]:
    """Return the edits for every optimizer of the file. Raises RefusedError where one cannot be brought to the target.

    States are dropped only where ``unsafe`` admits it.
    """
    if not any(each.role is Role.OPTIMIZER for each in checkpoint.state_dicts):
        raise RefusedError("This file has no optimizer state whose parameters could be renumbered.")
    from ckptdoctor.match.comparing import compare
    from ckptdoctor.rules.optimizer.remapping import remap_fix

    edits: list[Edit] = []
    for optimizer in saved_optimizers(checkpoint):
        subject = checkpoint if reference is None else compare(checkpoint, reference)
        fix, reason = remap_fix(subject, optimizer)
        if reason:
            raise RefusedError(f"{show_path(optimizer.path)} cannot be renumbered: {reason.partition(': ')[2]}")
        if fix is not None and reference is not None and fix.safety is Safety.UNSAFE and not unsafe:
            raise RefusedError(f"--remap-optimizer would {fix.title}, which is a guess or a loss: add --unsafe-fixes.")
        edits += [each for each in fix.edits if each not in edits] if fix is not None else []
    return edits
