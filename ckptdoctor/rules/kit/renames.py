"""The naming rules share which state dicts they look at, and one-to-one renames as fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, StateDict, Tensor
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Drop, Edit, Fix, Rename, Safety
from ckptdoctor.facts import names
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.wrappers import TOKENS, carries
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording


def weights(subject: Checkpoint | Comparison, code: str) -> Iterator[StateDict]:
    """Yield the state dicts of models and averaged models that the rule ``code`` judges.

    None where a reference has what the rule would take away: then the target is wrapped too, and nothing is wrong.
    """
    if isinstance(subject, Comparison):
        if carries(subject.reference, code):
            return
        subject = subject.checkpoint
    yield from (each for each in subject.state_dicts if each.role in WEIGHTS)


def rename_fix(
    state_dict: StateDict,
    change: Callable[[str], str],
    title: str,
    safety: Safety,
    option: str,
    dropped: Sequence[Tensor] = (),
) -> tuple[Fix | None, str]:
    """Return the fix that gives every key the name ``change`` makes of it, and advice.

    The advice says why there is none, if so.
    """
    edits, collision = rename_edits(state_dict, change, [tensor.path for tensor in dropped])
    if collision is not None:
        one, other, name = collision
        return (
            None,
            f'No repair is offered: "{one}" and "{other}" would both become "{name}"; rename one first.',
        )
    return Fix(title, edits, safety, option), ""


def rename_edits(
    state_dict: StateDict, change: Callable[[str], str], dropped: Sequence[KeyPath] = ()
) -> tuple[tuple[Edit, ...], tuple[str, str, str] | None]:
    """Return the edits that drop keys and give the others the names ``change`` makes of them.

    Else it is two names that would be one.
    """
    gone = {path[-1] for path in dropped}
    keys = [key for key in (*names.keys_of(state_dict), *state_dict.others) if key not in gone]
    renaming = names.renaming(keys, change)
    if renaming.collision is not None:
        return (), renaming.collision
    edits: list[Edit] = [Drop(tuple(dropped))] if dropped else []
    if renaming.pairs:
        edits.append(Rename(state_dict.path, renaming.pairs))
    return tuple(edits), None


def wrapped_lines(old: Sequence[str], extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what the bare model says to these keys of a wrapped one (and to ``extra``, which it does not have)."""
    # num_batches_tracked is not missed: BatchNorm asks for it only where _metadata names its module
    wanted = list(islice((key for key in old if not key.endswith("num_batches_tracked")), wording.SHOWN + 1))
    unexpected = wording.unexpected_line(chain(extra, old))
    return (wording.missing_line([names.bare(key) for key in wanted]), unexpected) if wanted else (unexpected,)


def wrapper_tokens(subject: Checkpoint | Comparison, code: str, cause: str) -> Iterator[Problem]:
    """Yield one problem for each state dict with tokens that one kind of wrapper (the rule ``code``) leaves in keys."""
    tokens = TOKENS[code]
    for state_dict in weights(subject, code):
        affected = names.holding(state_dict, tokens)
        if affected:
            yield _wrapped(state_dict, affected, tokens, code, cause)


def _wrapped(state_dict: StateDict, old: Sequence[str], tokens: frozenset[str], code: str, cause: str) -> Problem:
    quoted = wording.listed([f'"{token}."' for token in names.present(old, tokens)])
    fix, advice = rename_fix(
        state_dict,
        lambda key: names.without_tokens(key, tokens),
        f"drop {quoted} from the keys",
        Safety.SAFE,
        f"--select {code}",
    )
    return Problem(
        message=f"{how_many(len(old), state_dict)} {'holds' if len(old) == 1 else 'hold'} {quoted}",
        cause=cause,
        torch_says=wrapped_lines(old),
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in old]),
        location=Location(path=state_dict.path),
        fix=fix,
    )


def how_many(number: int, state_dict: StateDict) -> str:
    """Return how many keys of a state dict: ``all 320 keys of state_dict``, ``12 of 320 keys of state_dict``."""
    total = len(state_dict.tensors)
    place = wording.of_place(state_dict.path)
    if number == total:
        return f"{wording.all_of(total, 'key')}{place}"
    return f"{number:,} of {wording.plural(total, 'key')}{place}"
