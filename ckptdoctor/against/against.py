"""Finds every tensor of a source in an export, compares all of both, and says what is left on either side.

A few elements tell which of the places that names offer is right; then every element is compared, in two threads. What
names do not find is looked for by values, among what is left. A tensor of which the values are found where another one
belongs is not accounted for, and neither is one that was changed in a way that its names do not say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fnmatch import fnmatchcase
from time import perf_counter

from ckptdoctor.against.compare import Meter, Outcome
from ckptdoctor.against.elements import Elements, Reader, elements_of
from ckptdoctor.against.links import PAIRED, TRANSPOSED, Link, hear, parts, row_size, sampled, whole
from ckptdoctor.against.names import Guess, Side, contradict, described, generic, guesses, in_one, joined
from ckptdoctor.against.opening import metadata_of, opened_whole
from ckptdoctor.against.padding import is_padding, padded
from ckptdoctor.against.report import AgainstReport, Fate, New, Place, Verdict
from ckptdoctor.against.request import Request
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Tensor, show_path
from ckptdoctor.checkpoint.checkpoint import told_of, unheld, unread_files
from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.match.buffers import is_derived
from ckptdoctor.values.files import Files
from ckptdoctor.wording import did_you_mean, plural

_THREADS = 2
_NO_NOISE = 0.02  # relative distance that a multiple of a tensor may have
_TELLING = 16  # elements that are enough to call it a multiple
_DERIVED = "it follows from the sizes of the model"
_SEARCHED = 20_000  # pairs of tensors that are looked at for values that names do not find


def against(request: Request) -> AgainstReport:
    """Account for every tensor of the source in the export. Raises UsageError, UnreadableError and DamagedError."""
    started = perf_counter()
    with opened_whole(request.export) as there, opened_whole(request.source) as here:
        export, source = _Opened(*there, request.root), _Opened(*here, request.source_root)
        _require_matches("--dropped", request.dropped, source)
        _require_matches("--added", request.added, export)
        with ExitStack() as stack:
            fates, new = _Search(source, export, request, stack).run()
    read = source.size + export.size
    return AgainstReport(request.export, request.source, fates, new, read, perf_counter() - started)


class _Opened:
    """The weights of one side: tensors by name, in the order of the file, and those that cannot be compared."""

    def __init__(self, checkpoint: Checkpoint, source: Source, root: str | None) -> None:
        self.checkpoint, self.source = checkpoint, source
        self.tensors = _weights(checkpoint, root)
        elements: dict[str, Elements] = {}
        self.refused: dict[str, str] = {}
        for name, tensor in self.tensors.items():
            found = elements_of(tensor, name, checkpoint.big_endian)
            if isinstance(found, str):
                self.refused[name] = found
            else:
                elements[name] = found
        self.side = Side(elements, metadata_of(checkpoint))

    @property
    def size(self) -> int:
        """Bytes of all that is compared."""
        return sum(each.count // each.unit * each.unit_bytes for each in self.side.tensors.values())


def _weights(checkpoint: Checkpoint, root: str | None) -> dict[str, Tensor]:
    """Return the weights by their keys; raises RefusedError where there are several sets of them, or not all files."""
    if root is not None:
        path = find_root(checkpoint.tree, root)
        _require_all(checkpoint, path)
        found = {
            show_path(each.path[len(path) :]): each for each in checkpoint.tensors if each.path[: len(path)] == path
        }
        if not found:
            raise UsageError(f"{checkpoint.path} has no tensors under {root}: ckptdoctor show lists what there is.")
        return found
    sets = weights_among(checkpoint.state_dicts)
    if len(sets) > 1:
        names = ", ".join(show_path(each.path) for each in sets[:4])
        raise RefusedError(
            f"{checkpoint.path} has {len(sets)} sets of weights: {names}. Name one: --root KEY for the export, "
            "--source-root KEY for the source."
        )
    _require_all(checkpoint, sets[0].path if sets else ())
    if sets:
        return {tensor.key: tensor for tensor in sets[0].tensors}
    if not checkpoint.tensors:
        raise UsageError(f"{checkpoint.path} has no tensors to compare.")
    return {show_path(each.path): each for each in checkpoint.tensors}


def _require_all(checkpoint: Checkpoint, path: KeyPath) -> None:
    """Raise RefusedError where files of the weights could not be read: nobody knows what else would be in them."""
    lost = (*unread_files(checkpoint, path), *unheld(checkpoint))
    if lost:
        raise RefusedError(
            f"{checkpoint.path} is incomplete, so not every tensor of it can be accounted for: "
            f"{told_of(checkpoint, lost)}. Download what is missing first."
        )


def _require_matches(option: str, patterns: Sequence[str], side: _Opened) -> None:
    for each in patterns:
        if not any(fnmatchcase(name, each) for name in side.tensors):
            offer = did_you_mean(each, side.tensors)
            raise UsageError(f"{option} {each} matches no tensor of {side.checkpoint.path}.{offer}")


class _Search:
    """Finds the place of each tensor, compares, and keeps what is known of both sides."""

    def __init__(self, source: _Opened, export: _Opened, request: Request, stack: ExitStack) -> None:
        self.source, self.export, self.request = source, export, request
        self._files = stack.enter_context(Files(source.source)), stack.enter_context(Files(export.source))
        self._readers: tuple[dict[str, Reader], dict[str, Reader]] = ({}, {})
        self.fates: dict[str, Fate] = {}
        self.covered: dict[str, int] = defaultdict(
            int
        )  # elements of each tensor of the export that come from somewhere
        self.padded: dict[str, int] = {}  # elements of the source in vocabularies that have more rows
        self.owners: dict[str, list[str]] = defaultdict(list)  # which tensors of the source a place is meant for

    def run(self) -> tuple[tuple[Fate, ...], tuple[New, ...]]:
        """Return the fate of each tensor of the source, and what is new in the export."""
        chosen: dict[str, Guess] = {}
        wrong: dict[str, tuple[Guess, Verdict]] = {}
        offered: dict[str, list[Link]] = {}
        for name in self.source.side.tensors:
            if name not in chosen:
                self._choose(name, chosen, wrong, offered)
        left = [name for name in self.source.side.tensors if name not in chosen and name not in wrong]
        self._by_values(left, chosen, wrong)
        self._compare(dict(chosen))
        for name, reason in self.source.refused.items():
            self.fates[name] = Fate(name, Verdict.UNKNOWN, told=reason)
        for name in self.source.tensors:
            if name not in self.fates:
                self.fates[name] = self._left(name, wrong.get(name), offered.get(name, []))
        self._copies()
        return tuple([self._final(name) for name in self.source.tensors]), tuple(self._new())

    # ---- which place is right

    def _choose(
        self,
        name: str,
        chosen: dict[str, Guess],
        wrong: dict[str, tuple[Guess, Verdict]],
        offered: dict[str, list[Link]],
    ) -> None:
        for guess in guesses(name, self.source.side, self.export.side):
            for link in guess.links:
                if not guess.told:
                    self.owners[link.export].append(link.source)
                offered.setdefault(name, []).append(link)
            if any(link.source in chosen for link in guess.links):
                continue
            if self._fits(guess):
                if guess.told:
                    wrong.setdefault(name, (guess, Verdict.WRONG))
                    continue
                for link in guess.links:
                    chosen[link.source] = guess
                return

    def _fits(self, guess: Guess) -> bool:
        return all(sampled(link, self._reader(0, link.source), self._reader(1, link.export)) for link in guess.links)

    def _reader(self, side: int, name: str) -> Reader:
        known = self._readers[side]
        found = known.pop(name, None)
        if found is None:
            found = Reader((self.source, self.export)[side].side.tensors[name], self._files[side])
        known[name] = found
        if len(known) > 8:  # each has room for what it read last
            known.pop(next(iter(known)))
        return found

    # ---- what names did not find

    def _by_values(self, left: list[str], chosen: dict[str, Guess], wrong: dict[str, tuple[Guess, Verdict]]) -> None:
        taken = {link.export for guess in chosen.values() for link in guess.links}
        free = {name: each for name, each in self.export.side.tensors.items() if name not in taken}
        budget = _SEARCHED
        for name in list(left):
            source = self.source.side.tensors[name]
            for other, export in list(free.items()):
                if export.count != source.count or not export.count or name in self.owners[other] or budget <= 0:
                    continue
                budget -= 1
                link = self._found(source, export)
                if link is None:
                    continue
                if self.owners[other]:
                    told = f"its values are in {other}, where those of {self.owners[other][0]} belong"
                elif contradict(name, other):
                    told = f"its values are in {other}, which has the name of something else"
                else:
                    chosen[name] = Guess((link,))
                    del free[other]
                    left.remove(name)
                    break
                wrong[name] = Guess((link,), told), Verdict.ELSEWHERE
                break
        self._require_one_renaming(left, chosen, wrong)
        self._fused(left, free, chosen)

    def _require_one_renaming(
        self, left: list[str], chosen: dict[str, Guess], wrong: dict[str, tuple[Guess, Verdict]]
    ) -> None:
        """Take back what was found under names that the same tensors of other layers do not have."""
        single = [name for name, guess in chosen.items() if len(guess.links) == 1]
        names = [name for name in single if not self.owners[chosen[name].links[0].export]]
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        for name in names:
            kinds[generic(name)][generic(chosen[name].links[0].export)] += 1
        for name in names:
            link, counted = chosen[name].links[0], kinds[generic(name)]
            if len(counted) == 1:
                continue
            usual, times = counted.most_common(1)[0]
            if generic(link.export) != usual or times * 2 <= counted.total():
                told = f"its values are in {link.export}, which has the name of something else in other layers"
                wrong[name] = Guess((link,), told), Verdict.ELSEWHERE
                del chosen[name]

    def _found(self, source: Elements, export: Elements) -> Link | None:
        rows = export.shape[0] if export.shape else 0
        head = self.export.side.head(export.name, rows)
        links = [whole(source, export), whole(source, export, TRANSPOSED)]
        links += [whole(source, export, PAIRED, head)] if head else []
        return next((link for link in links if link is not None and self._fits(Guess((link,)))), None)

    def _fused(self, left: list[str], free: dict[str, Elements], chosen: dict[str, Guess]) -> None:
        """Look for queries, keys and values that are one tensor on the other side, under names that are not known."""
        for names in list(in_one(left, self.source.side.tensors)):
            mine = [self.source.side.tensors[each] for each in names]
            for other, export in free.items():
                if not _numbered_alike(names[0], other):
                    continue
                for links in joined(mine, [export]):
                    if self._fits(Guess(links)):
                        chosen.update(dict.fromkeys(names, Guess(links)))
        for names in list(in_one(list(free), self.export.side.tensors)):
            its = [free[each] for each in names]
            for name in left:
                if name in chosen or not _numbered_alike(name, names[0]):
                    continue
                for links in joined([self.source.side.tensors[name]], its):
                    if self._fits(Guess(links)):
                        chosen[name] = Guess(links)

    # ---- every element

    def _compare(self, chosen: dict[str, Guess]) -> None:
        links = list(dict.fromkeys(link for guess in chosen.values() for link in guess.links))
        outcomes = self._outcomes(links)
        for name in chosen:
            mine = [link for link in chosen[name].links if link.source == name]
            places = tuple([self._place(link, outcomes[link]) for link in mine])
            self.fates[name] = self._judged(name, places)
            if self.fates[name].verdict.accounted:
                self.padded |= {each.link.export: each.link.count for each in places if each.padding > 0}
                for link in mine:
                    self.covered[link.export] += link.count

    def _place(self, link: Link, outcome: Outcome) -> Place:
        export, source = self.export.side.tensors[link.export], self.source.side.tensors[link.source]
        if link == padded(source, export):
            return Place(link, export.label, outcome, padding=export.shape[0] - source.shape[0])
        fused, split = link.count < export.count, link.count < source.count
        other = link.order != TRANSPOSED and not fused and not split and export.shape != source.shape
        return Place(link, export.label, outcome, fused, split, reshaped=export.shape if other else None)

    def _outcomes(self, links: Sequence[Link]) -> dict[Link, Outcome]:
        total = sum(self._bytes(link) for link in links)
        tasks: list[tuple[Link, list[tuple[int, int]]]] = []
        for link in links:
            export, source = self.export.side.tensors[link.export], self.source.side.tensors[link.source]
            tasks += [(link, group) for group in parts(link, export, source)]
        meters: dict[Link, Meter] = {}
        with phase("comparing", total) as work, ThreadPoolExecutor(_THREADS) as pool:
            done = pool.map(lambda group: self._heard(group, work), _batches(tasks, self))
            for group in done:
                for link, meter in group:
                    if link in meters:
                        meters[link].add(meter)
                    else:
                        meters[link] = meter
        return {link: meter.outcome() for link, meter in meters.items()}

    def bytes_of(self, link: Link) -> int:
        """Bytes of both sides of a link."""
        return self._bytes(link)

    def _bytes(self, link: Link) -> int:
        export, source = self.export.side.tensors[link.export], self.source.side.tensors[link.source]
        return sum(link.count // each.unit * each.unit_bytes for each in (export, source))

    def _heard(self, group: Sequence[tuple[Link, list[tuple[int, int]]]], work: Work) -> list[tuple[Link, Meter]]:
        found = []
        with Files(self.source.source) as mine, Files(self.export.source) as its:
            for link, every in group:
                source, export = self.source.side.tensors[link.source], self.export.side.tensors[link.export]
                meter = Meter(source, export, link.shifted)
                readers = Reader(source, mine), Reader(export, its)
                for run in every:
                    hear(meter, link, run, *readers)
                    rows = link.box[1] if link.order == TRANSPOSED else 1
                    width = source.unit_bytes / source.unit + export.unit_bytes / export.unit
                    work.advance(int((run[1] - run[0]) * rows * width))
                found.append((link, meter))
        return found

    def _judged(self, name: str, places: tuple[Place, ...]) -> Fate:
        nbytes = self.source.tensors[name].nbytes
        for each in places:
            if not each.outcome.how:
                return Fate(name, Verdict.WRONG, places, self._why(name, each), nbytes)
        hows = [Verdict(each.outcome.how) for each in places]
        worst = max(hows, key=list(Verdict).index)
        told = self._rest(0, name, sum(each.link.count for each in places))
        if told and not any(fnmatchcase(name, each) for each in self.request.dropped):
            return Fate(name, Verdict.WRONG, places, f"{told}, are not in the export", nbytes)
        return Fate(name, worst, places, nbytes=nbytes)

    def _rest(self, side: int, name: str, known: int) -> str:
        """Return which rows follow the first elements, of which so many are known; "" for none, and for padding."""
        elements = (self.source, self.export)[side].side.tensors[name]
        row = row_size(elements)
        if known >= elements.count or is_padding(self._reader(side, name), known // row):
            return ""
        rows = plural(elements.shape[0] - known // row, "row, which is", "rows, which are")
        return f"its last {rows} neither zeros nor copies of one"

    def _why(self, name: str, place: Place) -> str:
        outcome, export = place.outcome, self.export.side.tensors[place.link.export]
        it = "" if export.name == name else f"{export.name} "
        if outcome.zero:
            return f"{it}is all zeros"
        noise = max(_NO_NOISE, abs(outcome.factor - 1) / 3 if export.packed else 0)
        if outcome.rest < noise and abs(outcome.factor - 1) > 1e-4 and outcome.elements >= _TELLING:
            return f"{it}is {outcome.factor:.4g} times as large"
        if export.packed and outcome.relative < 1:
            return f"{it}is further from it than {export.label} explains"
        return f"{it}has other values"

    # ---- what is left

    def _left(self, name: str, wrong: tuple[Guess, Verdict] | None, offered: Sequence[Link]) -> Fate:
        tensor = self.source.tensors[name]
        nbytes = tensor.nbytes
        if any(fnmatchcase(name, each) for each in self.request.dropped):
            return Fate(name, Verdict.DROPPED, told="as was said", nbytes=nbytes)
        if wrong is not None:
            links = [link for link in wrong[0].links if link.source == name]
            outcomes = self._outcomes(links)
            places = tuple([self._place(link, outcomes[link]) for link in links])
            return Fate(name, wrong[1], places, wrong[0].told, nbytes)
        link = next((each for each in offered if each.count == tensor.numel and not each.head), None)
        if link is not None:
            place = self._place(link, self._outcomes([link])[link])
            if place.outcome.how:  # what was looked at of it is another part than what differs
                return Fate(name, Verdict.WRONG, (place,), f"{link.export} is {described(link)}", nbytes)
            return Fate(name, Verdict.WRONG, (place,), self._why(name, place), nbytes)
        there = self._same_name(name)
        if there is not None:
            return there
        if is_derived(name, tensor.shape, tensor.dtype):
            return Fate(name, Verdict.DROPPED, told=_DERIVED, nbytes=nbytes)
        return Fate(name, Verdict.MISSING, nbytes=nbytes)

    def _same_name(self, name: str) -> Fate | None:
        """Return why a tensor of the same name does not count, where there is one."""
        nbytes = self.source.tensors[name].nbytes
        if name in self.export.refused:
            return Fate(name, Verdict.UNKNOWN, told=f"{name} of the export: {self.export.refused[name]}", nbytes=nbytes)
        if name in self.export.side.tensors:
            shapes = [list(each.side.tensors[name].shape) for each in (self.source, self.export)]
            return Fate(name, Verdict.WRONG, told=f"its shape is {shapes[1]}, not {shapes[0]}", nbytes=nbytes)
        return None

    def _final(self, name: str) -> Fate:
        """Return the fate of a tensor; one that is missing may be one memory with another, which is there."""
        fate = self.fates[name]
        if fate.verdict is not Verdict.MISSING:
            return fate
        view = view_in_file(self.source.tensors[name])
        for other, tensor in self.source.tensors.items():
            owner = self.fates[other]
            if other != name and view_in_file(tensor) == view and owner.places and owner.verdict.accounted:
                return Fate(name, Verdict.TIED, told=f"it is one memory with {other}", nbytes=fate.nbytes)
        return fate

    # ---- the export

    def _copies(self) -> None:
        """Account for what the export has twice: a head that is tied to the embeddings, and was written as well."""
        for name in self.export.side.tensors:
            if self.covered[name]:
                continue
            back = guesses(name, self.export.side, self.source.side)
            for owner in dict.fromkeys([guess.links[0].export for guess in back if len(guess.links) == 1]):
                fate = self.fates.get(owner)
                if fate is None or not fate.verdict.accounted:
                    continue
                link = whole(self.source.side.tensors[owner], self.export.side.tensors[name])
                if link is not None and self._fits(Guess((link,))):
                    place = self._place(link, self._outcomes([link])[link])
                    if place.outcome.how:
                        self.covered[name] += link.count
                        places = (*fate.places, place)
                        self.fates[owner] = Fate(owner, fate.verdict, places, fate.told, fate.nbytes)
                        break

    def _new(self) -> Iterator[New]:
        blamed = {place.link.export for fate in self.fates.values() for place in fate.places}
        failed = {name for name, fate in self.fates.items() if not fate.verdict.accounted}
        blamed |= {name for name, owners in self.owners.items() if failed.intersection(owners)}
        for name in self.export.tensors:
            added = any(fnmatchcase(name, each) for each in self.request.added)
            if name in self.export.refused:
                yield New(name, f"it cannot be compared: {self.export.refused[name]}", added)
                continue
            elements = self.export.side.tensors[name]
            if self.covered[name] >= elements.count and (elements.count or name in blamed):
                continue
            if name in self.padded:
                told = self._rest(1, name, self.padded[name])
                if told:
                    yield New(name, f"{told}, do not come from the source", added)
                continue
            if name in blamed and not added:
                continue  # what is wrong with it was said of the tensor that belongs there
            tensor = self.export.tensors[name]
            if not added and is_derived(name, tensor.shape, tensor.dtype):
                yield New(name, _DERIVED, True)
            else:
                yield New(name, "as was said" if added else "", added)


def _numbered_alike(one: str, other: str) -> bool:
    return [each for each in one.split(".") if each.isdigit()] == [each for each in other.split(".") if each.isdigit()]


def _batches(
    tasks: Iterable[tuple[Link, list[tuple[int, int]]]], search: _Search
) -> Iterator[list[tuple[Link, list[tuple[int, int]]]]]:
    """Yield tasks in groups that are worth a thread's while."""
    group: list[tuple[Link, list[tuple[int, int]]]] = []
    held = 0
    for task in tasks:
        group.append(task)
        held += search.bytes_of(task[0])
        if held >= 1 << 24 or len(group) >= 500:
            yield group
            group, held = [], 0
    if group:
        yield group
