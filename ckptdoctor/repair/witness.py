"""Asks values as the last witness of a repair towards ``--like``: what has the bytes of a tensor there is that tensor.

Equality confirms and decides; nothing else that values say establishes a name. Only what is uncertain is read: a few
bytes of each tensor, and all of those whose few bytes agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Tensor
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.sharing import compared, is_readable, is_telling, probe, same
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.second_names import is_one, known_pairs
from ckptdoctor.noun import replace
from ckptdoctor.repair.draft_map import in_question

Found = Mapping[str, Tensor]


def witnessed(source: Source, comparison: Comparison) -> dict[str, str]:
    """Return keys whose names are in question, and the one name under which the target has the same bytes: old → new.

    What is the same number throughout, or the same under several names on either side, says nothing.
    """
    reference = comparison.reference
    theirs = _tensors(reference)
    if not theirs or comparison.state_dict is None or comparison.nested:
        return {}
    loose, wanted = in_question(comparison)
    ours = {key: comparison.plain.here[key] for key in loose}
    forms = {_form(each) for each in ours.values()}
    there = {key: theirs[key] for key in wanted if key in theirs and _form(theirs[key]) in forms}
    with _opened(reference) as base:
        try:
            return dict(_pairs(source, ours, base, there)) if base is not None else {}
        except DamagedError:  # what is left of a broken file tells nothing
            return {}


def with_ties(reference: Reference) -> Reference:
    """Return the target with the names that it has for one tensor, where its file holds that once for each of them.

    A head and an embedding that models are known to share, and that have the same bytes there, not all of them one
    number: a model in which they are two has trained them apart.
    """
    known = {key for group in reference.ties for key in group}
    wanted = [(key, owner) for key, owner in known_pairs(reference.tensors) if key not in known]
    theirs = _tensors(reference) if wanted else {}
    pairs = [(owner, key) for key, owner in wanted if key in theirs and owner in theirs]
    if not pairs:
        return reference
    with _opened(reference) as base:
        try:
            same_ones = [pair for pair in pairs if base is not None and _is_one_tensor(base, *map(theirs.get, pair))]
        except DamagedError:
            return reference
    return replace(reference, ties=(*reference.ties, *same_ones))


def _is_one_tensor(base: Source, one: Tensor | None, other: Tensor | None) -> bool:
    assert one is not None and other is not None
    return _same(base, one, base, other) and is_telling(probe(base, one), one)


def copies(source: Source, loose: Found, kept: Found) -> list[Tensor]:
    """Return those of ``loose`` of which ``kept`` has the same bytes as well, not all of them one number."""
    forms = {_form(each) for each in loose.values()}
    by_form: dict[tuple[object, ...], list[Tensor]] = defaultdict(list)
    for each in kept.values():
        if _form(each) in forms and is_readable(each):
            by_form[_form(each)].append(each)

    def has_one(tensor: Tensor) -> bool:
        others = by_form[_form(tensor)]
        return is_telling(probe(source, tensor), tensor) and any(same(tensor, each, source) for each in others)

    try:
        return [each for each in loose.values() if is_readable(each) and has_one(each)]
    except DamagedError:  # what is left of a broken file tells nothing
        return []


def equal_sets(source: Source, one: Found, other: Found) -> bool:
    """Return whether two sets of weights hold the same bytes under the same names."""
    try:
        return one.keys() == other.keys() and all(_same(source, one[key], source, other[key]) for key in one)
    except DamagedError:
        return False


def is_there(source: Source, found: Found, reference: Reference) -> bool:
    """Return whether the target has the same bytes under the same names, and not only zeros or ones."""
    theirs = _tensors(reference)
    if not theirs or not found.keys() >= theirs.keys():
        return False
    with _opened(reference) as base:
        try:
            if base is None or not all(_same(source, found[key], base, theirs[key]) for key in theirs):
                return False
            return any(is_telling(probe(base, each), each) for each in theirs.values())
        except DamagedError:
            return False


def _tensors(reference: Reference) -> dict[str, Tensor]:
    """Return the tensors of the target that hold values."""
    beside = reference.beside
    if beside is None:
        return {}
    found = next((each for each in beside.state_dicts if each.path == reference.root), None)
    return {each.key: each for each in found.tensors if is_readable(each)} if found is not None else {}


@contextmanager
def _opened(reference: Reference) -> Iterator[Source | None]:
    assert reference.beside is not None
    with ExitStack() as stack:
        try:
            source, _ = stack.enter_context(formats.opened(reference.beside.path))
        except CkptDoctorError:  # it has gone or changed meanwhile: its names and shapes are still what was read
            yield None
            return
        yield source


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype.name


def _pairs(source: Source, ours: Found, base: Source, theirs: Found) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the same bytes that are one of one on both sides."""
    marked: dict[tuple[object, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (file, tensors) in enumerate(((source, ours), (base, theirs))):
        for key, tensor in tensors.items():
            if is_readable(tensor):
                few = probe(file, tensor)
                if is_telling(few, tensor):
                    form = (*_form(tensor), few)
                    marked[form][side].append(key)
    for here, there in marked.values():
        if len(here) == len(there) == 1 and same(ours[here[0]], theirs[there[0]], source, base):
            yield here[0], there[0]


def _same(source: Source, one: Tensor, base: Source, other: Tensor) -> bool:
    if _form(one) != _form(other):
        return False
    if source is base and is_one(one, other):
        return True
    return compared(one, other, source, base) is True


def under(path: KeyPath, checkpoint: Checkpoint, reference: Reference) -> dict[str, Tensor]:
    """Return the weights at a place under the names that they get towards the target."""
    return dict(compare(checkpoint, replace(reference, certain=True), path).renamed.here)


def decided(source: Source, sets: Iterable[tuple[str, Found]], reference: Reference) -> str | None:
    """Return the one of several sets of weights that is meant.

    It has the target's own bytes, or is any where all hold the same.
    """
    found = list(sets)
    there = [name for name, each in found if is_there(source, each, reference)]
    if len(there) == 1:
        return there[0]
    if all(equal_sets(source, found[0][1], each) for _, each in found[1:]):
        return found[0][0]
    return None
