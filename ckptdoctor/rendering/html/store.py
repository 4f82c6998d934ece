"""Shows the stores of an inventory as one page: health over time, what is broken, space, duplicates, and runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckptdoctor.noun import noun
from ckptdoctor.rendering.html.markup import command, coordinate, element, lines, name, section, text
from ckptdoctor.rendering.html.page import framed, script, tile
from ckptdoctor.rendering.html.treemap import Area, Rectangle, drawn, squarified
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.rendering.shell import quote, with_path
from ckptdoctor.stores.overview import HEALTH, Broken, Duplicate, Overview, Problem, RunRow
from ckptdoctor.stores.schema import audit_command
from ckptdoctor.wording import beyond, listed

_SCRIPTS = ("frame.js", "folds.js", "tips.js", "copy.js", "store.js")
_TITLES = (
    ("health", "Health over time"),
    ("broken", "Broken"),
    ("problems", "Problems"),
    ("size", "Space"),
    ("duplicates", "Duplicates"),
    ("runs", "Runs"),
    ("unseen", "Not examined"),
)
# how people call each health, with the colour of its bar
_HEALTH = (
    ("no problems found", "f1"),
    ("warnings", "f2"),
    ("errors, yet valid", "f6"),
    ("without weights", "f5"),
    ("broken", "broken"),
    ("unreadable", "f3"),
    ("unfinished", "f7"),
)
_WIDTH, _BARS, _MAP = 1120.0, 180.0, 460.0
_TOLD = 400  # characters of a sentence
_MOST = 60  # areas in one
_OPEN = 8  # broken checkpoints that are shown at once


def render(found: Overview, version: str) -> bytes:
    """Return the page as UTF-8."""
    parts = {
        "health": _health(found),
        "broken": _broken(found),
        "problems": _problems(found.problems),
        "size": _space(found),
        "duplicates": _duplicates(found),
        "runs": _runs(found),
        "unseen": _unseen(found),
    }
    title = listed([os.path.basename(store.rstrip("/")) or store for store in found.stores], 3) or "no store"
    stores = "".join([f'<p class="path">{name(store, 400)}</p>' for store in found.stores])
    return framed(
        parts,
        titles=_TITLES,
        title=title,
        about="stores of checkpoints",
        header=f"<h1>{name(title, 120)}</h1>{stores}",
        tiles=f'<dl class="tiles">{"".join(_tiles(found))}</dl>',
        footer=f"<p>From {text(found.inventory)}, audited {text(found.when)}. Nothing in a file was run. "
        f"ckptdoctor {text(version)}</p>",
        version=version,
        data=None,
        script=script(_SCRIPTS),
    )


def _tiles(found: Overview) -> Iterator[str]:
    totals = found.totals
    yield tile("Checkpoints", count(totals.checkpoints), f"in {plural(totals.runs, 'run')}")
    if totals.invalid:
        yield tile("Not valid", count(totals.invalid), "broken, unreadable or unfinished", "error")
    else:
        yield tile("Not valid", "none", "of what was examined", "good")
    if totals.blocks is not None and totals.blocks != totals.size:
        yield tile("On the disk", size(totals.blocks), f"{size(totals.size)} by their sizes")
    else:
        yield tile("Size", size(totals.size), "of all files")
    yield tile("Duplicates", size(totals.spare_bytes), "would be free with one copy of each")
    yield tile("Only to resume", size(totals.optimizer_bytes), "states of optimizers")
    if totals.wasted_bytes:
        yield tile("Wasted precision", size(totals.wasted_bytes), "of float32 that bfloat16 holds exactly")


# ---- health over time


def _health(found: Overview) -> str:
    """Return a bar for each period, and the key to its colours."""
    periods = found.periods
    if not periods:
        return ""
    most = max(sum(each.counts) for each in periods)
    wide = _WIDTH / len(periods)
    bars = []
    for at, period in enumerate(periods):
        top = _BARS
        told = ", ".join([f"{number:,} {_HEALTH[kind][0]}" for kind, number in enumerate(period.counts) if number])
        for kind, number in enumerate(period.counts):
            tall = (_BARS - 4) * number / most
            top -= tall
            if number:
                bars.append(
                    element(
                        "rect",
                        f"<title>{text(f'{period.start}: {told}')}</title>",
                        x=coordinate(at * wide + 0.5),
                        y=coordinate(top),
                        width=coordinate(max(0.5, wide - 1)),
                        height=coordinate(max(0.7, tall)),
                        class_=_HEALTH[kind][1],
                    )
                )
    drawing = element(
        "svg",
        "".join(bars),
        viewBox=f"0 0 {_WIDTH:.0f} {_BARS:.0f}",
        role="img",
        aria_label="Checkpoints by the time of their last change",
        class_="periods",
        preserveAspectRatio="none",
    )
    ends = f'<p class="ends"><span>{text(periods[0].start)}</span><span>{text(periods[-1].start)}</span></p>'
    there = [kind for kind in range(len(HEALTH)) if any(each.counts[kind] for each in periods)]
    key = "".join([f'<span><i class="{_HEALTH[kind][1]}"></i>{text(_HEALTH[kind][0])}</span>' for kind in there])
    about = f"Checkpoints by the day of their last change; the highest bar is {count(most)}."
    return section("health", "Health over time", f'{drawing}{ends}<p class="legend">{key}</p>', about)


# ---- what is broken, and what rules say


def _broken(found: Overview) -> str:
    rows = [_broken_row(each) for each in found.broken]
    if len(rows) > _OPEN:
        more = f"<summary>{count(len(rows) - _OPEN)} more</summary>"
        rows[_OPEN:] = [f"<details>{more}{''.join(rows[_OPEN:])}</details>"]
    rest = dict(found.left_out)["broken"]
    about = "The last changed comes first, each with what to do."
    if rest:
        about += f" {count(rest)} more are in the inventory: ckptdoctor check names what is wrong with each."
    return section("broken", "Broken", "".join(rows), about)


def _broken_row(each: Broken) -> str:
    kind = "warning" if each.health == "unfinished" else "error"
    advice = f"<p>{text(with_path(each.advice, each.member), _TOLD)}</p>" if each.advice else ""
    if each.command:
        line = command(with_path(each.command, each.member))
    else:
        line = "" if "ckptdoctor " in each.advice else command(f"ckptdoctor check {quote(each.path)}")
    head = f'<b class="badge">{text(each.health)}</b> <span>{text(size(each.size))}</span>'
    return (
        f'<article class="finding {kind}"><h3>{head}</h3><p class="message">{name(each.path, _TOLD)}</p>'
        f"<p>{text(each.trouble, _TOLD)}</p>{advice}{line}</article>\n"
    )


def _problems(problems: Sequence[Problem]) -> str:
    rows = [
        f'<tr><th scope="row"><code>{text(each.code)}</code></th><td>{text(each.severity)}</td>'
        f"<td>{text(each.name)}</td>"
        f'<td class="n" data-label="checkpoints">{count(each.checkpoints)}</td>'
        f'<td class="n">{text(size(each.size))}</td><td class="soft">{text(each.message, _TOLD)}</td></tr>'
        for each in problems
    ]
    columns = (("rule", ""), ("severity", ""), ("name", ""), ("checkpoints", "n"), ("size", "n"), ("for example", ""))
    about = "The findings by rule, with how many checkpoints have each. ckptdoctor explain CODE has the page of each."
    return section("problems", "Problems", _table("problem-table", columns, rows), about)


def _table(key: str, columns: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    if not rows:
        return ""
    head = "".join(
        [f'<th class="{kind}">{text(title)}</th>' if kind else f"<th>{text(title)}</th>" for title, kind in columns]
    )
    return (
        f'<div class="scroll"><table class="plain wide groups" id="{key}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines(rows)}</tbody></table></div>"
    )


def _filter(key: str, what: str) -> str:
    return (
        f'<div class="bar scripted"><label class="find">filter '
        f'<input type="search" data-filters="{key}" placeholder="{text(what)}"></label><output></output></div>'
    )


# ---- space


@noun(frozen=False)
class _Folder:
    """A folder with the bytes in it, and the folders below it by their names."""

    nbytes: int
    below: dict[str, _Folder]


def _space(found: Overview) -> str:
    """Return the folders as areas as large as what is in them, and who owns how much."""
    root = _Folder(0, {})
    for path, nbytes in found.folders:
        folder = root
        folder.nbytes += nbytes
        for part in path.strip("/").split("/"):
            folder = folder.below.setdefault(part, _Folder(0, {}))
            folder.nbytes += nbytes
    if not root.nbytes:
        return ""
    areas = "".join(_areas(root, "", Rectangle(0, 0, _WIDTH, _MAP), None, 0))
    drawing = f'<svg viewBox="0 0 {_WIDTH:.0f} {_MAP:.0f}" role="img" aria-label="Sizes of folders">{areas}</svg>'
    drawing = f'<div class="treemap scroll">{drawing}</div>' if areas else ""  # of a single folder it would be empty
    owners = [
        f'<tr><th scope="row">{text(owner or "not known")}</th><td class="n">{count(number)}</td>'
        f'<td class="n">{text(size(nbytes))}</td></tr>'
        for owner, number, nbytes in found.owners
    ]
    table = _table("owner-table", (("owner", ""), ("checkpoints", "n"), ("size", "n")), owners)
    about = (
        "Each area is a folder, as large as the checkpoints in it." if areas else "All checkpoints are in one folder."
    )
    return section("size", "Space", f"{drawing}{table}", about)


def _areas(folder: _Folder, path: str, box: Rectangle, colour: int | None, depth: int) -> Iterator[str]:
    while len(folder.below) == 1:  # a folder with nothing but one in it is one with it
        ((part, folder),) = folder.below.items()
        path += f"/{part}"
    inner = sorted(folder.below.items(), key=lambda each: -each[1].nbytes)
    rest = sum([each.nbytes for _, each in inner[_MOST:]])
    sizes = [float(each.nbytes) for _, each in inner[:_MOST]] + ([float(rest)] if rest else [])
    for number, place in enumerate(squarified(sizes, box)):
        own = number % 8 if colour is None else colour
        if number == _MOST:
            yield drawn(Area(beyond(len(inner) - _MOST, before="", spelt=str), rest), place, own, inner=depth > 0)
            continue
        part, below = inner[number]
        yield drawn(Area(part, below.nbytes, (), f"{path}/{part}"), place, own, inner=depth > 0)
        room = place.within(3, 22)
        if below.below and depth < 2 and room.width > 34 and room.height > 24:
            yield from _areas(below, f"{path}/{part}", room, own, depth + 1)


# ---- duplicates, runs, and what was not seen


def _duplicates(found: Overview) -> str:
    rows = [_duplicate(each, found.stores) for each in found.duplicates]
    rest = dict(found.left_out)["duplicates"]
    about = (
        "Checkpoints with the same tensors and the same checksums of each, by what one copy less of each would free."
    )
    about += f" {count(rest)} more groups are in the inventory." if rest else ""
    columns = (("copies", "n"), ("size", "n"), ("spare", "n"), ("paths", ""))
    return section("duplicates", "Duplicates", _table("duplicate-table", columns, rows), about)


def _duplicate(each: Duplicate, stores: Sequence[str]) -> str:
    more = beyond(each.copies - len(each.paths), before="… ")
    paths = "<br>".join([name(_in_store(path, stores), 400) for path in each.paths] + ([more] if more else []))
    return (
        f'<tr><td class="n" data-label="copies">{count(each.copies)}</td>'
        f'<td class="n" data-label="size">{text(size(each.size))}</td>'
        f'<td class="n" data-label="spare">{text(size(each.spare_bytes))}</td><td class="key">{paths}</td></tr>'
    )


def _runs(found: Overview) -> str:
    rows = [_run(each, found.stores) for each in found.runs]
    rest = dict(found.left_out)["runs"]
    about = "The newest valid checkpoint of each run by its step, and the newest that training can resume from."
    about += f" The largest are shown; {count(rest)} more are in the inventory." if rest else ""
    columns = (
        *(("run", ""), ("checkpoints", "n"), ("not valid", "n"), ("size", "n"), ("to resume", "n")),
        *(("newest valid", ""), ("level", ""), ("resumes from", "")),
    )
    table = _table("run-table", columns, rows)
    return section("runs", "Runs", f"{_filter('run-table', 'a run, a checkpoint')}{table}" if table else "", about)


def _in_store(path: str, stores: Sequence[str]) -> str:
    """Return a path as it is read where the only store is named above."""
    return path.removeprefix(f"{stores[0].rstrip('/')}/") if len(stores) == 1 else path


def _run(each: RunRow, stores: Sequence[str]) -> str:
    bad = (
        f'<td class="n odd" data-label="not valid">{count(each.invalid)}</td>'
        if each.invalid
        else '<td class="n"></td>'
    )
    newest = (
        f'<td class="key" data-label="newest valid">{name(each.newest)}</td>'
        if each.newest
        else '<td class="odd" data-label="newest valid">none</td>'
    )
    resumes = "the same" if each.resumable and each.resumable == each.newest else name(each.resumable)
    return (
        f'<tr><th scope="row" class="key">{name(_in_store(each.path, stores), 400)}</th>'
        f'<td class="n" data-label="checkpoints">{count(each.checkpoints)}</td>{bad}'
        f'<td class="n">{text(size(each.size))}</td>'
        f'<td class="n" data-label="to resume">{text(size(each.optimizer_bytes))}</td>{newest}'
        f'<td class="n" data-label="level">{"" if each.level is None else f"V{each.level}"}</td>'
        f'<td class="key" data-label="resumes from">{resumes}</td></tr>'
    )


def _unseen(found: Overview) -> str:
    """Return what was not read: nothing left out may pass for valid."""
    items = []
    inventory = os.path.abspath(found.inventory)
    if not found.complete:
        again = audit_command(found.stores, inventory)
        items.append(f"The audit did not finish: checkpoints may be missing. To continue: {again}")
    if not found.deep:
        deep = audit_command(found.stores, inventory, "--deep")
        items.append(f"Values and bytes: only headers were read. To read the rest: {deep}")
    items += [f"{folder}: {why}" for folder, why in found.unlisted]
    listed_ = "".join([f"<li>{text(each)}</li>" for each in items])
    return section("unseen", "Not examined", f'<ul class="unseen">{listed_}</ul>' if items else "")
