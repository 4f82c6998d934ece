"""The keys of a state dict were renamed, but its ``_metadata`` was not.

Meaning
    ``Module.state_dict()`` keeps the version of every module in ``_metadata``, under the module's name. A prefix was
    stripped from the keys, or added to them, and the names there are still the old ones.

Why it matters
    ``load_state_dict`` does not find the versions and treats the state dict as one from the oldest torch: hooks that
    update old checkpoints run when they should not, or do not run when they should.

Symptoms
    Nothing, or missing keys such as ``num_batches_tracked`` that the old version does not have.

Detection
    No module of the keys is in ``_metadata``, but all are once one prefix is added or taken away.

Repair
    ``ckptdoctor fix FILE --select M973`` renames the modules in ``_metadata`` like the keys. Safe: keys and
    values stay, and so does the entry of the wrapper itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.edits import Fix, RenameModules, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import other_modules

_BARE = {"": {"version": 1}, "fc": {"version": 1}, "bn": {"version": 2}}
_WRAPPED = {"": {"version": 1}, "module": {"version": 1}, "module.fc": {"version": 1}, "module.bn": {"version": 2}}


def _model(prefix: str) -> dict[str, object]:
    return {f"{prefix}fc.weight": T((2, 2)), f"{prefix}bn.weight": T((2,)), f"{prefix}bn.bias": T((2,))}


SICK = (
    Example("a prefix taken from the keys only", {"model": Odict(_model(""), _WRAPPED), "epoch": 3}),
    Example("a prefix put before the keys only", Odict(_model("net."), _BARE)),
)
HEALTHY = (
    Example("names that fit", Odict(_model(""), _BARE)),
    Example("wrapped, and names that fit", Odict(_model("module."), _WRAPPED)),
    Example("no metadata", _model("")),
)


@rule("M973", "state-dict-metadata-prefix", Severity.INFO, when=other_modules)
def state_dict_metadata_prefix(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report ``_metadata`` under the names from before a renaming."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.metadata is None:
            continue
        names = [part for part, _ in state_dict.metadata.entries if isinstance(part, str)]
        modules = {key.rpartition(".")[0] for key in state_dict.keys if "." in key}
        if modules and not modules & set(names):
            prefix, stripped = _prefix(modules, set(names))
            if prefix:
                yield _problem(state_dict, names, prefix, stripped)


def _prefix(modules: set[str], names: set[str]) -> tuple[str, bool]:
    """Return the prefix (``module.``) that explains the difference, and whether it was stripped or added."""
    longest = max(modules, key=len)
    for name in names:
        if name.endswith(f".{longest}"):
            prefix = name[: -len(longest)]
            if all(f"{prefix}{module}" in names for module in modules):
                return prefix, True
        if name and longest.endswith(f".{name}"):
            prefix = longest[: -len(name)]
            if all(module.startswith(prefix) and module[len(prefix) :] in names for module in modules):
                return prefix, False
    return "", False


def _problem(state_dict: StateDict, names: list[str], prefix: str, stripped: bool) -> Problem:
    if stripped:
        pairs = [(name, name[len(prefix) :]) for name in names if name.startswith(prefix)]
        what = f'the modules in _metadata{wording.of_place(state_dict.path)} begin with "{prefix}", but its keys do not'
    else:
        pairs = [(name, f"{prefix}{name}") for name in names if name]
        what = (
            f'the keys{wording.of_place(state_dict.path)} begin with "{prefix}", but the modules in its '
            "_metadata do not"
        )
    title = f"rename {wording.plural(len(pairs), 'module')} in _metadata like the keys"
    return Problem(
        message=what,
        cause="The keys were renamed after state_dict() and _metadata was not, so module versions are not found.",
        keys=(state_dict.path,),
        location=Location(path=state_dict.path),
        fix=Fix(title, (RenameModules(state_dict.path, tuple(pairs)),), Safety.SAFE, "--select M973"),
    )
