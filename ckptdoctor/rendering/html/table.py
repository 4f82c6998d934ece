"""Writes the table of all tensors, so small that 50,000 of them are a few megabytes.

The first rows are in the page; a script sorts, filters and shows the rest from the data: the names as a tree of
modules, each piece once, and the figures in columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from ckptdoctor.checkpoint import KeyPath, Tensor, show_part
from ckptdoctor.differences import Difference, Pair, Verdict
from ckptdoctor.noun import field, noun
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.html.markup import coordinate, element, lines, name, permalink, section, tensor_id, text
from ckptdoctor.rendering.numbers import plain, plural, size
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.values.statistics import Histogram, TensorValues
from ckptdoctor.wording import and_so_on

_DEPTH = 64  # levels that are told apart: deeper ones are no architecture but an attack
_PIECE = 120  # characters of one piece of a name


@noun(frozen=False)
class Modules:
    """Level 0 is the whole file. Each level, and each tensor, has a number for its last piece and one for its parent.

    A piece carries what joins it to the next one: ``state_dict/`` + ``layer1.`` + ``weight``.
    """

    pieces: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [-1])
    levels: list[int] = field(default_factory=lambda: [-1])
    homes: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)

    def name(self, tensor: int) -> str:
        """Return the whole name of a tensor."""
        return self.level(self.homes[tensor]) + self.pieces[self.leaves[tensor]]

    def level(self, number: int) -> str:
        """Return the whole name of a level, with the sign that joins it to what is below."""
        found = []
        while number > 0:
            found.append(self.pieces[self.levels[number]])
            number = self.parents[number]
        return "".join(reversed(found))


def modules(examined: Examined) -> Modules:
    """Return the tree of a checkpoint: keys of state dicts unfold at their dots, everything else as it is nested."""
    dotted = {each.path for each in examined.checkpoint.state_dicts} if examined.checkpoint is not None else set()
    made = Modules()
    numbers: dict[str, int] = {}
    below: dict[tuple[int, str], int] = {}

    def numbered(piece: str) -> int:
        if piece not in numbers:
            numbers[piece] = len(made.pieces)
            made.pieces.append(abridged(escape(piece), _PIECE))
        return numbers[piece]

    for tensor in examined.tensors:
        *steps, leaf = _pieces(tensor.path, tensor.path[:-1] in dotted)
        home = 0
        for step in steps:
            if (home, step) not in below:
                below[home, step] = len(made.parents)
                made.parents.append(home)
                made.levels.append(numbered(step))
            home = below[home, step]
        made.homes.append(home)
        made.leaves.append(numbered(leaf))
    return made


def _pieces(path: KeyPath, dotted: bool) -> Sequence[str]:
    if not path:
        return ["(root)"]
    *above, key = map(show_part, path)
    inner = key.split(".", _DEPTH) if dotted else [key]
    pieces = [*[f"{step}/" for step in above], *[f"{step}." for step in inner[:-1]], inner[-1]]
    return pieces if len(pieces) <= _DEPTH else [*pieces[: _DEPTH - 1], "".join(pieces[_DEPTH - 1 :])]


def children(made: Modules) -> dict[int, tuple[list[int], list[int]]]:
    """Return the levels and the tensors directly below each level."""
    found: dict[int, tuple[list[int], list[int]]] = {number: ([], []) for number in range(len(made.parents))}
    for number, parent in enumerate(made.parents):
        if parent >= 0:
            found[parent][0].append(number)
    for tensor, home in enumerate(made.homes):
        found[home][1].append(tensor)
    return found


def sizes(made: Modules, nbytes: Sequence[int]) -> list[int]:
    """Return the bytes at and below each level; a level comes after its parent."""
    found = [0] * len(made.parents)
    for home, own in zip(made.homes, nbytes, strict=True):
        found[home] += own
    for number in range(len(found) - 1, 0, -1):
        found[made.parents[number]] += found[number]
    return found


FIRST = 100  # rows that need no script

_COLUMNS = (("name", "name", ""), ("dtype", "dtype", ""), ("shape", "shape", ""), ("bytes", "bytes", "n"))
_MEASURED = (("bars", "values", ""), ("mean", "mean", "n"), ("std", "std", "n"), ("norm", "norm", "n"))
_COMPARED = (("change", "change", "n"),)


def table(examined: Examined, made: Modules) -> str:
    """Return the section; "" where there are no tensors."""
    if not examined.tensors:
        return ""
    columns = [*_COLUMNS]
    columns += _MEASURED if examined.values is not None else ()
    columns += _COMPARED if examined.difference is not None else ()
    head = "".join(
        [f'<th scope="col" data-sort="{key}" class="{kind}">{text(title)}</th>' for key, title, kind in columns]
    )
    rows = [_row(examined, made, number) for number in range(min(FIRST, len(examined.tensors)))]
    rest = len(examined.tensors) - FIRST
    told = plural(rest, "more row needs", "more rows need")
    more = f"<noscript><p>{told} JavaScript.</p></noscript>" if rest > 0 else ""
    whole = f"<thead><tr>{head}</tr></thead><tbody>{lines(rows)}</tbody>"
    grid = f'<table id="grid" class="plain wide tensors">{whole}</table>'
    inside = [
        _controls(examined),
        f'<div class="scroll" role="region" aria-labelledby="tensors-title" tabindex="0">{grid}</div>',
        '<p class="more scripted"><button type="button" id="more" hidden>show more</button></p>',
        more,
    ]
    return section("tensors", "All tensors", lines(inside))


def _moved(examined: Examined) -> bool:
    """Return whether the natural order is another one than that of the file."""
    return any(place != number for number, place in enumerate(examined.places))


def _controls(examined: Examined) -> str:
    choices = [("", "all tensors"), *[(f"kind:{kind}", f"of the {kind}") for kind in dict.fromkeys(kinds(examined))]]
    choices += [("mark", "with a finding")] if examined.report.findings else []
    choices += [("odd", "with NaN or infinity"), ("same", "all values the same")] if examined.values is not None else []
    choices += [("differs", "differs in B")] if examined.difference is not None else []
    orders = '<option value="">natural</option><option value="file">as in the file</option>'
    order = f'<label>order <select id="order">{orders}</select></label>' if _moved(examined) else ""
    options = "".join([f'<option value="{text(key)}">{text(told)}</option>' for key, told in choices])
    return (
        '<div class="bar scripted"><label class="find">filter <input id="filter" type="search" autocomplete="off" '
        'spellcheck="false" placeholder="attn weight bfloat16"></label>'
        f'<label>show <select id="only">{options}</select></label>'
        f"{order}"
        f'<output id="found" for="filter only">{plural(len(examined.tensors), "tensor")}</output></div>'
    )


def _row(examined: Examined, made: Modules, number: int) -> str:
    tensor = examined.tensors[number]
    shape = " × ".join(map(plain, tensor.shape[:16])) or "scalar"
    nbytes = "tied" if number in examined.tied else size(tensor.nbytes)
    key = tensor_id(made.name(number))
    cells = [
        f'<th scope="row" class="key">{name(made.name(number))}{permalink(key, made.name(number))}</th>',
        f"<td>{text(tensor.dtype.name)}</td><td>{text(shape)}</td>",
        f'<td class="n">{text(nbytes)}</td>',
    ]
    if examined.values is not None:
        cells += _figures(examined, number)
    cells += ["<td></td>"] if examined.difference is not None else []
    return element("tr", "".join(cells), id=key)


def _figures(examined: Examined, number: int) -> list[str]:
    values = examined.measured(examined.tensors[number])
    if values is None:
        return ["<td></td>"] * len(_MEASURED)
    drawing = spark(bars(values.histogram))
    return [f"<td>{drawing}</td>", *_numbers(values)]


def _numbers(values: TensorValues) -> list[str]:
    told = (("mean", values.mean), ("std", values.std), ("norm", values.norm))
    return [f'<td class="n" data-label="{label}">{number:.3g}</td>' for label, number in told]


def spark(heights: str) -> str:
    """Return a histogram in a cell: one path."""
    if len(heights) < 2:
        return ""
    steps = [_height(sign) for sign in heights]
    wide = 80 / len(steps)
    path = "".join(
        [
            f"M{coordinate(at * wide)} 18V{coordinate(18 - tall)}h{coordinate(wide - 0.8)}V18z"
            for at, tall in enumerate(steps)
            if tall
        ]
    )
    return element(
        "svg", element("path", d=path, class_="bin"), viewBox="0 0 80 18", class_="spark", aria_hidden="true"
    )


def _height(sign: str) -> float:
    return 18 * LEVELS.index(sign) / (len(LEVELS) - 1)


_LARGEST = 1 << 60  # bytes and elements beyond are no tensor
LEVELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BARS = 16  # of a histogram in the table
_MANY = 20_000  # tensors with which figures get one digit less
_NUMBERS = ("min", "max", "mean", "std", "norm")
_COUNTS = ("nan", "infinite", "zeros")


def payload(examined: Examined, made: Modules) -> dict[str, object]:
    """Return columns with an entry for each tensor; texts that come often are numbered in lists of their own."""
    tensors = examined.tensors
    data: dict[str, object] = {
        "pieces": made.pieces,
        "parents": made.parents,
        "levels": made.levels,
        "homes": made.homes,
        "leaves": made.leaves,
        "bytes": [0 if number in examined.tied else bounded(each.nbytes) for number, each in enumerate(tensors)],
        "elements": [bounded(tensor.numel) for tensor in tensors],
        "tied": {str(number): other for number, other in examined.tied.items()},
        "marks": marks(examined),
    }
    if _moved(examined):
        data["places"] = examined.places
    data["dtypes"], data["dtype"] = _numbered([tensor.dtype.name for tensor in tensors])
    data["shapes"], data["shape"] = _numbered([_shape(tensor) for tensor in tensors])
    data["devices"], data["device"] = _numbered([tensor.device for tensor in tensors])
    data["kinds"], data["kind"] = _numbered(kinds(examined))
    if examined.values is not None:
        data["values"] = _values(examined)
    if examined.difference is not None:
        data["states"], data["state"], data["change"] = _changes(examined.tensors, examined.difference)
    return data


def bounded(number: int) -> int:
    """Return an integer that a browser can hold."""
    return min(number, _LARGEST)


def kinds(examined: Examined) -> list[str]:
    """Return the role of each tensor: of a model, an optimizer, …; "other" outside of all state dicts."""
    roles: dict[KeyPath, str] = {}
    for each in examined.checkpoint.state_dicts if examined.checkpoint is not None else ():
        for tensor in each.tensors:
            roles.setdefault(tensor.path, each.role.value)
    return [roles.get(tensor.path, "other") for tensor in examined.tensors]


def marks(examined: Examined) -> list[int]:
    """Return the worst finding that names each tensor: 0 none, then 1 for info to 3 for error.

    A finding that names many of them is about the file, and marks none.
    """
    worst: dict[KeyPath, int] = {}
    most = max(8, len(examined.tensors) // 10)
    for finding in examined.report.findings:
        for key in finding.keys if len(finding.keys) <= most else ():
            worst[key] = max(worst.get(key, 0), finding.severity.rank + 1)
    return [worst.get(tensor.path, 0) for tensor in examined.tensors]


def _shape(tensor: Tensor) -> str:
    return and_so_on(map(plain, tensor.shape), 16, between=" × ", end=" × …")


def _numbered(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the different texts, and the number of each."""
    numbers: dict[str, int] = {}
    every = [numbers.setdefault(each, len(numbers)) for each in texts]
    return list(numbers), every


def _values(examined: Examined) -> dict[str, object]:
    found = [examined.measured(tensor) for tensor in examined.tensors]
    digits = 3 if len(found) > _MANY else 4
    columns: dict[str, object] = {
        name: [None if each is None else rounded(getattr(each, name), digits) for each in found] for name in _NUMBERS
    }
    for count in _COUNTS:
        columns[count] = [None if each is None else bounded(getattr(each, count)) for each in found]
    columns["bars"] = ["" if each is None else bars(each.histogram) for each in found]
    return columns


def rounded(number: float, digits: int = 4) -> float | int | None:
    """Return a float in ``digits`` digits; None for a value that is not a number in JSON."""
    if not isfinite(number):
        return None
    short = float(f"{number:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 10**digits else short


def bars(histogram: Histogram | None) -> str:
    """Return the heights of a histogram, one sign each: 0 is empty, z the highest."""
    if histogram is None:
        return ""
    counts = histogram.counts
    if len(counts) % _BARS == 0:
        step = len(counts) // _BARS
        counts = tuple([sum(counts[at : at + step]) for at in range(0, len(counts), step)])
    top, highest = max(counts, default=0) or 1, len(LEVELS) - 1
    return "".join([LEVELS[-(-count * highest // top)] for count in counts])


def _changes(
    tensors: Sequence[Tensor], difference: Difference
) -> tuple[list[str], list[int], list[float | int | None]]:
    """Return the fate of each tensor in the other file: in a word, and how far its values are away."""
    pairs = {pair.a.path: pair for pair in difference.pairs}
    gone = {single.tensor.path for single in difference.removed}
    words, far = [], []
    for tensor in tensors:
        pair = pairs.get(tensor.path)
        words.append(_word(pair) if pair is not None else "only in A" if tensor.path in gone else "not compared")
        numbers = pair.values.numbers if pair is not None and pair.values is not None else None
        same = pair is not None and pair.values is not None and pair.values.verdict is Verdict.EQUAL
        far.append(rounded(numbers.relative) if numbers is not None else 0 if same else None)
    return (*_numbered(words), far)


def _word(pair: Pair) -> str:
    told = [
        word for word, so in (("reshaped", pair.reshaped), ("recast", pair.recast), ("renamed", pair.renamed)) if so
    ]
    if pair.values is not None:
        word = "changed" if pair.changed else pair.values.verdict.value
        return ", ".join([*told, word]) if word != "not compared" or not told else ", ".join(told)
    return ", ".join(told) or "same header"
