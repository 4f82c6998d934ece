"""Drafts a map: every certain pair of a repair towards a target, and the others with a mark for a person to confirm.

What is uncertain is told by shapes: keys here and keys of the target that want a name, of one shape and one kind of
number, and of which the names do not say that they are two things.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isqrt

from ckptdoctor.checkpoint import Checkpoint, Tensor, show_path
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.edits import Flatten
from ckptdoctor.edits.fix import Step
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.likeness import other_layout
from ckptdoctor.match.meanings import another_owner, another_thing, is_code
from ckptdoctor.match.norms import final_versions, missing_counters
from ckptdoctor.match.published.kernels import forward
from ckptdoctor.match.rewordings import template
from ckptdoctor.match.second_names import known_partner
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.name_map import Form, Given, Mark, NameMap, of_steps
from ckptdoctor.wording import plural

_RIVALS = 8  # other names that a mark lists
_PAIRS = 40_000  # pairs of one shape that are weighed one by one
_LEAVES = frozenset({"weight", "bias", "running_mean", "running_var", "num_batches_tracked"})
# what a leaf is called that holds something else than values: what is pruned, quantised, or scales
_SCALED = re.compile(
    r"_(?:orig|original|mask|scales?|packed|zeros?|zero_point|scale_inv|inv|quant\w*|g_idx)$|^q(?:weight|zeros)$"
)
_NO_PLACE = "the target has no place for it: null leaves it out"
_KERNEL = "kernel"
_LAST = "other kernels of this group have their outputs last"
_FLAT = "after a flattened image the inputs come in another order if the channels are last: only its code shows it"
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]+")


@noun
class _Open:
    """What wants a partner: keys here (under the names that certain steps gave them) and keys of the target."""

    loose: Mapping[str, Tensor]
    wanted: Mapping[str, Expected]
    guesses: Mapping[str, str]


def drafted(original: Checkpoint, checkpoint: Checkpoint, steps: tuple[Step, ...], reference: Reference) -> NameMap:
    """Return the draft for a file of which ``steps`` are what is certain, and ``checkpoint`` what they lead to.

    It has no marks where nothing here could be any of what the target wants.
    """
    comparison = compare(checkpoint, replace(reference, certain=False))
    done = of_steps(steps)
    known = {tensor.key for state_dict in original.state_dicts for tensor in state_dict.tensors}
    origins = {new: old for old, new in done.names.items()}
    names = {old: new for old, new in done.names.items() if old in known}
    found = _open(comparison, lambda key: origins.get(key, key) in known)
    flat = {name: show_path((*edit.path, *place)) for step in steps for edit in step.edits if isinstance(edit, Flatten)
            for name, place in edit.tensors}  # fmt: skip
    saved = {tensor.key: tensor.shape for state_dict in original.state_dicts for tensor in state_dict.tensors}
    shapes = {key: saved.get(origins.get(key, key), each.shape) for key, each in comparison.plain.here.items()}
    marks = {origins.get(key, key): mark for key, mark in _marks(found, comparison, shapes).items()}
    loose, wanting = in_question(comparison)
    if flat and not wanting:  # of parts that lie apart a map says by their paths which tensors go
        names, marks = {}, {flat[key]: Mark(Given(), _NO_PLACE) for key in loose if key in flat}
    names = {old: new for old, new in names.items() if old not in marks}
    turned = tuple([key for key in done.turned if key in known and key not in marks])
    return replace(done, names=names, turned=turned, marks=marks, towards=reference.option)


def in_question(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Return keys here and keys of the target that want a partner.

    Members of a list that fit are among both where others of it have no place, or nothing that fills it.
    """
    plain, wanted = comparison.plain, comparison.reference.tensors
    _, unasked = missing_counters(comparison, final_versions(comparison))
    spared = set(unasked)
    names = [key for key in (*plain.missing, *plain.mismatched) if key not in spared]
    loose = [*plain.unexpected, *plain.mismatched]
    lists = {(template(key), plain.here[key].shape) for key in loose}
    lists &= {(template(key), wanted[key].shape) for key in names}
    doubted = [key for key in plain.fits if (template(key), wanted[key].shape) in lists] if lists else []
    return [*loose, *doubted], [*names, *doubted]


def _open(comparison: Comparison, ours: Callable[[str], bool]) -> _Open:
    loose, names = in_question(comparison)
    here, wanted = comparison.plain.here, comparison.reference.tensors
    loose = [key for key in loose if ours(key)]
    return _Open(
        {key: here[key] for key in loose},
        {key: wanted[key] for key in names},
        {key: comparison.final_name(key) for key in loose},
    )


def _marks(found: _Open, comparison: Comparison, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Mark]:
    """Return the mark of each key that could be something of what is wanted. ``shapes`` are those that the file has."""
    marks = _kernels(found, comparison, shapes)
    given = {mark.given.to[0] for mark in marks.values()}
    whole, found = (
        found,
        replace(
            found,
            loose={key: each for key, each in found.loose.items() if key not in marks},
            wanted={key: each for key, each in found.wanted.items() if key not in given},
        ),
    )
    buckets: dict[tuple[int, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for key, tensor in found.loose.items():
        buckets[_form(tensor.shape)][0].append(key)
    for key, expected in found.wanted.items():
        buckets[_form(expected.shape)][1].append(key)
    for loose, wanted in buckets.values():
        if not loose or not wanted:
            continue
        choices = _choices(found, loose, wanted)
        partners = _paired(choices, found.guesses, loose)
        for old in loose:
            if choices[old]:
                marks[old] = _mark(found, old, partners.get(old), choices[old])
    _tie(whole, comparison, marks)
    for key in found.loose:
        marks.setdefault(key, Mark(Given(), _NO_PLACE))
    return marks


def _kernels(found: _Open, comparison: Comparison, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Mark]:
    """Return the marks of kernels with their outputs last, as Keras and Flax have them, for layers of the same name.

    Where one that is called weight has its outputs last, so may those of which all sizes are equal. Flax turns kernels
    of transposed convolutions as well, which nothing here undoes: what may be one of these has no mark.
    """
    wanted = comparison.reference.tensors
    marks: dict[str, Mark] = {}
    images = {shape[-1] for key, shape in shapes.items() if _is_kernel(key) and len(shape) > 2}
    for key in found.loose:
        shape, rank = shapes[key], len(shapes[key])
        layer = key.rpartition(".")[0]
        name = next((each for each in (key, f"{layer}.weight") if each in found.wanted), None)
        if name is None or rank < 2 or not (_is_kernel(key) or rank > 2):
            continue
        there = wanted[name].shape
        if (shape[-1], shape[-2], *shape[:-2]) != there:
            continue
        if rank == 2:
            ways = _flattened(name, shape, images)
            if len(ways) > 1:
                marks[key] = Mark(ways[0], _FLAT, ways[1:])
        elif not may_be_turned(key, shape):
            marks[key] = Mark(_last_first(name, rank), _LAST, (Given((name,)),) if shape == there else ())
    if any(not _is_kernel(key) and len(shapes[key]) > 2 for key in marks):
        for key in comparison.plain.fits:
            shape, there = shapes[key], wanted[key].shape
            if len(shape) > 2 and key not in marks and (shape[-1], shape[-2], *shape[:-2]) == there:
                as_it_is = None if shape == there else Form(tuple(range(len(shape))), (), there)
                plain = Given((key,), form=as_it_is)
                marks[key] = Mark(_last_first(key, len(shape)), f"its sizes do not show it, and {_LAST}", (plain,))
    return marks


def may_be_turned(key: str, shape: tuple[int, ...]) -> bool:
    """Return whether a kernel may be one of a transposed convolution of Flax: it has as many inputs as outputs."""
    layer = key.rpartition(".")[0]
    return _is_kernel(key) and len(shape) > 2 and shape[-1] == shape[-2] and not forward(layer)


def _is_kernel(key: str) -> bool:
    return key.rpartition(".")[2].partition(":")[0] == _KERNEL


def _last_first(name: str, rank: int) -> Given:
    """Put the last two dimensions first."""
    return Given((name,), form=Form((rank - 1, rank - 2, *range(rank - 2))))


def _flattened(name: str, shape: tuple[int, ...], images: Collection[int]) -> tuple[Given, ...]:
    """Return how a linear layer can take its inputs.

    They come as they are, or as a square image of which the channels come last.
    """
    inputs, outputs = shape
    found = [Given((name,), transposed=True)]
    for channels in sorted(images):
        side = isqrt(inputs // channels) if channels and inputs % channels == 0 else 0
        if side > 1 and side * side * channels == inputs:
            found.append(Given((name,), form=Form((3, 2, 0, 1), (side, side, channels, outputs), (outputs, inputs))))
    return tuple(found)


def _tie(found: _Open, comparison: Comparison, marks: dict[str, Mark]) -> None:
    """Give what is wanted and gets nothing the tensor that models are known to share under both names."""
    here = comparison.plain.here
    by_name = {mark.given.to[0]: old for old, mark in marks.items() if mark.given.to}
    there = {
        **{key: here[key].shape for key in comparison.plain.fits},
        **{name: comparison.reference.tensors[name].shape for name in by_name},
    }
    for key, expected in found.wanted.items():
        partner = None if key in by_name else known_partner(key, there)
        if partner is None or there[partner] != expected.shape:
            continue
        old = by_name.get(partner, partner)
        before = marks.get(old, Mark(Given((partner,)), ""))
        why = "; ".join(filter(None, (before.why, f"{key} is the same tensor in such models, but is not here")))
        given = replace(before.given, to=(*before.given.to, key))
        marks[old] = Mark(given, why, (before.given, *before.rivals))


def _form(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return what two shapes share of which one may be the other's: without sides of 1, a matrix either way round."""
    sides = tuple([n for n in shape if n != 1])
    return tuple(sorted(sides)) if len(sides) == 2 else sides


def _choices(found: _Open, loose: Sequence[str], wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that each key can get, the likeliest first."""
    if len(loose) * len(wanted) > _PAIRS:
        places = {key: at for at, key in enumerate(wanted)}
        return {old: _around(wanted, places.get(found.guesses[old], at)) for at, old in enumerate(loose)}
    tokens = {key: set(_TOKEN.findall(key.casefold())) for key in (*loose, *wanted)}
    numbers = {key: [each for each in _TOKEN.findall(key) if each.isdecimal()] for key in (*loose, *wanted)}
    made = {}
    for old in loose:
        fit = [new for new in wanted if _possible(found, old, new)]
        made[old] = sorted(
            fit,
            key=lambda new, old=old: (-len(tokens[old] & tokens[new]), numbers[old] != numbers[new]),  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
        )
    return made


def _around(names: Sequence[str], at: int) -> list[str]:
    """Return a few of many names, the one at the place first."""
    at = min(at, len(names) - 1)
    begin = max(0, min(at - _RIVALS // 2, len(names) - _RIVALS - 1))
    return [names[at], *[each for each in names[begin : begin + _RIVALS + 1] if each != names[at]]]


def _possible(found: _Open, old: str, new: str) -> bool:
    ours, theirs = old.rpartition(".")[2], new.rpartition(".")[2]
    if ours != theirs and {ours, theirs} <= _LEAVES:
        return False
    if _SCALED.search(ours) is not None and _SCALED.search(theirs) is None:
        return False
    return not another_thing(old, new) and not is_code(found.loose[old], found.wanted[new])


def _paired(choices: Mapping[str, list[str]], guesses: Mapping[str, str], loose: Sequence[str]) -> dict[str, str]:
    """Return as many of the keys as possible with one name each, a guess or the likeliest where that can be."""
    owners: dict[str, str] = {}
    partners: dict[str, str] = {}
    for old in loose:
        guess = guesses[old]
        if guess in choices[old] and guess not in owners:
            owners[guess], partners[old] = old, guess
    for old in loose:
        if old not in partners:
            _place(old, choices, owners, partners)
    return partners


def _place(old: str, choices: Mapping[str, list[str]], owners: dict[str, str], partners: dict[str, str]) -> None:
    """Give a key a name, others making room for it where they can: a shortest augmenting path of Kuhn's algorithm."""
    came: dict[str, str] = {}
    waiting = deque([old])
    while waiting and len(came) < _PAIRS:
        one = waiting.popleft()
        for name in choices[one]:
            if name in came:
                continue
            came[name] = one
            if name in owners:
                waiting.append(owners[name])
                continue
            while True:
                owner = came[name]
                before = partners.get(owner)
                owners[name], partners[owner] = owner, name
                if before is None:
                    return
                name = before


def _mark(found: _Open, old: str, partner: str | None, names: Sequence[str]) -> Mark:
    """Return the mark of one key: the proposed name, the others, and what the tool cannot tell."""
    given = Given() if partner is None else _forms(found, old, partner)[0]
    rivals = [] if partner is None else list(_forms(found, old, partner)[1:])
    rivals += [_forms(found, old, new)[0] for new in names if new != partner][:_RIVALS]
    rivals += [Given()] if partner is not None and len(names) > 1 else []
    return Mark(given, _why(found, old, partner, names), tuple(rivals))


def _forms(found: _Open, old: str, new: str) -> tuple[Given, ...]:
    """Return how the tensor can be the wanted one: as it is, or transposed, or either."""
    ours, theirs = found.loose[old].shape, found.wanted[new].shape
    as_it_is, turned = Given((new,)), Given((new,), transposed=True)
    if len(ours) != 2 or len(theirs) != 2:
        return (as_it_is,)
    if ours != theirs:
        return (turned,)
    if not another_owner(old, new, ours):
        return (as_it_is,)
    return (turned, as_it_is) if old.endswith("kernel") else (as_it_is, turned)


def _why(found: _Open, old: str, partner: str | None, names: Sequence[str]) -> str:
    if partner is None:
        return f"{plural(len(names), 'name')} with its shape, and none is left for it: null leaves it out"
    reasons = []
    if old != partner or len(names) > 1:
        more = len(names) - 1
        if more > 0:
            listed = "" if more <= _RIVALS else f", of which {_RIVALS} are listed"
            reasons.append(f"{plural(more, 'other name')} of the target fit its shape as well{listed}")
        else:
            reasons.append("only its shape supports this")
    if len(_forms(found, old, partner)) > 1:
        reasons.append("a square matrix does not show which dimension is which")
    if other_layout(tuple(old.split(".")), tuple(partner.split("."))) and old != partner:
        reasons.append("its rows may be in another order there")
    return "; ".join(reasons) or "its shape is different"
