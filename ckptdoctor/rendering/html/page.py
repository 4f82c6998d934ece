"""Puts the whole page together."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Coverage, Finding, Severity
from ckptdoctor.rendering.contents import other_contents, state_dict_row
from ckptdoctor.rendering.html.charts import depth, distributions
from ckptdoctor.rendering.html.comparison import comparison
from ckptdoctor.rendering.html.damage import damage
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.html.markup import command, coordinate, element, lines, name, permalink, section, text
from ckptdoctor.rendering.html.table import bounded, modules, payload, table
from ckptdoctor.rendering.html.treemap import treemap
from ckptdoctor.rendering.numbers import amount, count, plural, size
from ckptdoctor.rendering.shell import fix_command, with_path
from ckptdoctor.rendering.summary import summarise
from ckptdoctor.wording import beyond, first_few, format_name, percent

KIND = b"<!doctype html>"  # what every page begins with

_TITLES = (
    ("findings", "Findings"),
    ("damage", "Damage"),
    ("contents", "Contents"),
    ("comparison", "Comparison"),
    ("size", "Sizes"),
    ("values", "Distributions"),
    ("depth", "Depth"),
    ("tensors", "Tensors"),
    ("unseen", "Not examined"),
)


@collector_paused()
def render(examined: Examined) -> bytes:
    """Return the page as UTF-8."""
    made = modules(examined)
    parts = {
        "findings": findings(examined),
        "damage": damage(examined),
        "contents": contents(examined),
        "comparison": comparison(examined),
        "size": treemap(examined, made),
        "values": distributions(examined),
        "depth": depth(examined),
        "tensors": table(examined, made),
        "unseen": _unseen(examined),
    }
    return framed(
        parts,
        titles=_TITLES,
        title=_title(examined),
        about="checkpoint report",
        header=_header(examined),
        tiles=tiles(examined),
        footer=_footer(examined),
        version=examined.version,
        data=payload(examined, made),
        script=script(),
    )


def framed(
    parts: Mapping[str, str],
    *,
    titles: Sequence[tuple[str, str]],
    title: str,
    about: str,
    header: str,
    tiles: str,
    footer: str,
    version: str,
    data: object,
    script: str,
) -> bytes:
    """Return a whole page around its sections, which ``titles`` name; ``data`` is what its script reads."""
    look = style()
    page = Template(asset("page.html")).substitute(
        policy=text(policy(look, script), 4000),
        version=text(version),
        title=text(title),
        about=text(about),
        style=look,
        header=header,
        nav="".join([f'<a href="#{key}">{name}</a>' for key, name in titles if parts[key]]),
        tiles=tiles,
        sections=lines(parts.values()),
        footer=footer,
        data=embedded(data),
        script=script,
    )
    return page.encode()


def _called(examined: Examined) -> str:
    path = examined.report.path.rstrip("/")
    return os.path.basename(path) or path


def _title(examined: Examined) -> str:
    """Return what a tab is called: both files of a comparison, for there are often many of one file."""
    other = examined.difference.b.path.rstrip("/") if examined.difference is not None else ""
    return f"{_called(examined)} ↔ {os.path.basename(other) or other}" if other else _called(examined)


def _header(examined: Examined) -> str:
    other = f" <span>compared with {name(examined.difference.b.path)}</span>" if examined.difference is not None else ""
    path = examined.report.path
    below = f'<p class="path">{name(path, 400)}</p>' if path != _called(examined) else ""
    return f"<h1>{name(_called(examined), 120)}{other}</h1>{below}"


def _unseen(examined: Examined) -> str:
    """Return the parts that were read, and those that were not: nothing left out may pass for healthy."""
    items = "".join([f"<li>{text(told)}</li>" for told in _left_out(examined)])
    return section("unseen", "Not examined", f'<ul class="unseen">{items}</ul>' if items else "")


def _left_out(examined: Examined) -> Iterator[str]:
    for each in examined.report.skipped:
        why = "left out by --headers-only" if each.why == "--deep" else each.why
        if why == "--model, --like":
            why = "name a model with --model, --config or --like"
        yield f"{each.what[:1].upper()}{each.what[1:]}" + (f": {why}" if why else "")
    found = examined.difference
    if found is not None:
        yield f"Problems in {found.b.path}: the findings are those of the first file"
        if not found.compared:
            yield "How far the values of both files are apart: left out by --headers-only"


def _footer(examined: Examined) -> str:
    report = examined.report
    read = ""
    if report.container is not None:
        read = f"Read {size(report.bytes_read)} of {size(report.container.size)} in {report.seconds:.2f} s. "
    told = f"{read}Nothing in the file was run. ckptdoctor {examined.version}"
    return f"<p>{text(told)}{', ' + text(examined.when) if examined.when else ''}</p>"


# ---- the page around the contents: its frame, how it looks, what moves in it; and what a browser may do with it


# in this order they are one script
_SCRIPTS = ("frame.js", "data.js", "folds.js", "tips.js", "copy.js", "treemap.js", "tensor.js", "table.js", "charts.js")

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@cache
def asset(name: str) -> str:
    """Return the text of a file of the package."""
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def style() -> str:
    """Return the style sheet."""
    return asset("style.css")


def script(names: Sequence[str] = _SCRIPTS) -> str:
    """Return the script: it only ever sets text, and gets no right to do anything else."""
    return '(() => {\n"use strict";\n' + "\n".join(map(asset, names)) + "})();\n"


def policy(style: str, script: str) -> str:
    """Return the rights of the page: this style sheet, this script, nothing else (https://www.w3.org/TR/CSP3/).

    Both are named by their digests, so that nothing that slips into the page could run; no request can leave it.
    """
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def embedded(data: object) -> str:
    """Data as JSON that no browser takes for the end of a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign, code in _UNSAFE.items():
        text = text.replace(sign, code)
    return text


# ---- what the file is, and what is in it


_NAMED = 6  # dtypes or devices in a list
_ROWS = 40  # state dicts
_OTHERS = 24
_WIDTH = 600.0


def tiles(examined: Examined) -> str:
    """Return the figures to see first."""
    return f'<dl class="tiles">{"".join(_tiles(examined))}</dl>'


def _tiles(examined: Examined) -> Iterator[str]:
    report = examined.report
    yield _verdict(examined)
    if report.container is not None:
        yield tile("Size", size(report.container.size), format_name(report.container.format) or "unknown contents")
    if examined.checkpoint is None:
        return
    figures = summarise(examined.checkpoint)
    noun = "Parameters" if figures.has_model else "Elements"
    tied = f", {plural(len(examined.tied), 'tied tensor')}" if examined.tied else ""
    yield tile(noun, amount(figures.parameters), count(figures.parameters) + tied)
    yield tile("Tensors", count(figures.tensors), f"in {plural(len(examined.checkpoint.state_dicts), 'state dict')}")
    for label, found in (("Dtype", figures.dtypes), ("Device tag", figures.devices)):
        if len(found) == 1:
            yield tile(label, next(iter(found)), "all tensors")
        elif found:
            (first, _), *rest = found.items()
            yield tile(label, first, ", ".join([f"{each} {number:,}" for each, number in rest[:2]]))


def _verdict(examined: Examined) -> str:
    tally = Counter(finding.severity for finding in examined.report.findings)
    if not tally:
        return tile("Findings", "none", "of what was examined", "good")
    worst = max(tally, key=lambda each: each.rank)
    nouns = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "info"}
    told = [plural(tally[each], each.value, nouns[each]) for each in nouns if tally[each]]
    return tile("Findings", told[0], ", ".join(told[1:]) or "and nothing else", worst.value)


def tile(label: str, value: str, about: str, kind: str = "") -> str:
    """Return a figure with what it is above it, and a small word below."""
    inside = f"<dt>{text(label)}</dt><dd>{text(value, 40)}<small>{text(about, 80)}</small></dd>"
    return element("div", inside, class_=kind or None)


def contents(examined: Examined) -> str:
    """Return the state dicts, everything next to them, and the bytes of each dtype."""
    checkpoint = examined.checkpoint
    if checkpoint is None:
        return ""
    rows = [_row(*state_dict_row(checkpoint.tree, each)) for each in checkpoint.state_dicts[:_ROWS]]
    rest = beyond(len(checkpoint.state_dicts) - _ROWS, "state dict", before="")
    rows += [f'<tr><td colspan="5">{rest}</td></tr>'] if rest else []
    others = list(other_contents(checkpoint))
    shown = first_few(others, _OTHERS)
    head = (
        '<thead><tr><th>what</th><th>under</th><th class="n">tensors</th><th class="n">bytes</th><th></th></tr></thead>'
    )
    table = (
        f'<div class="scroll"><table class="plain">{head}<tbody>{"".join(rows)}</tbody></table></div>' if rows else ""
    )
    beside = "".join([f"<li>{name(each)}</li>" for each in shown])
    listed = f'<h3>Other values</h3><ul class="chips">{beside}</ul>' if beside else ""
    return section("contents", "Contents", lines((table, listed, _dtypes(examined))))


def _row(role: str, where: str, tensors: str, nbytes: str, remark: str) -> str:
    number = tensors.split(" ")[0]
    return (
        f'<tr><th scope="row">{text(role)}</th><td class="key">{name(where)}</td><td class="n">{text(number)}</td>'
        f'<td class="n">{text(nbytes)}</td><td class="soft">{text(remark)}</td></tr>'
    )


def _dtypes(examined: Examined) -> str:
    """Return the share of each dtype in the bytes: one bar, and its key."""
    totals: Counter[str] = Counter()
    for number, tensor in enumerate(examined.tensors):
        if number not in examined.tied:
            totals[tensor.dtype.name] += bounded(tensor.nbytes)
    whole = sum(totals.values())
    if len(totals) < 2 or not whole:
        return ""
    bars, key, at = [], [], 0.0
    for number, (dtype, nbytes) in enumerate(totals.most_common(_NAMED)):
        wide = _WIDTH * nbytes / whole
        told = f"{dtype}: {size(nbytes)}, {percent(nbytes, whole)}"
        place = {"x": coordinate(at), "width": coordinate(max(wide - 1, 0.5))}
        bars.append(element("rect", f"<title>{text(told)}</title>", **place, height=14, rx=3, class_=f"f{number % 8}"))
        key.append(f'<span><i class="f{number % 8}"></i>{text(told)}</span>')
        at += wide
    rest = beyond(len(totals) - _NAMED, before="")
    key += [f"<span>{rest}</span>"] if rest else []
    drawing = element("svg", "".join(bars), viewBox=f"0 0 {_WIDTH:.0f} 14", class_="stack", preserveAspectRatio="none")
    return f'<h3>Bytes by dtype</h3>{drawing}<p class="legend">{"".join(key)}</p>'


# ---- what is wrong: each finding with its cause, what torch says, its keys, and the command that repairs it


_MOST = 200  # findings
_KEYS = 60  # keys of one
_OPEN = 3  # so few keys are shown at once
_LINES = 12  # of what torch says
_TOLD = 1200  # characters of a sentence
_SAFETY = {
    Safety.SAFE: "no value changes, and it can be undone",
    Safety.CONFIRMED: "the target proves it",
    Safety.UNSAFE: "it changes or drops values: check the result",
}


def findings(examined: Examined) -> str:
    """Return the section: worst first, and one command for all that is safe."""
    report = examined.report
    numbers: Counter[str] = Counter()
    shown = []
    for finding in report.findings[:_MOST]:
        numbers[finding.code] += 1
        key = finding.code if numbers[finding.code] == 1 else f"{finding.code}-{numbers[finding.code]}"
        shown.append(_card(finding, report.path, key))
    rest = beyond(len(report.findings) - _MOST, "finding", before="")
    shown += [f'<p class="soft">{rest}: <code>ckptdoctor check</code> names them all.</p>'] if rest else []
    if not shown:
        shown = ['<p class="well">No problems found in what was examined.</p>']
    if report.coverage is not None:
        shown.insert(0, _coverage(report.coverage))
    return section("findings", "Findings", lines([*_all_at_once(examined), *shown]))


def _all_at_once(examined: Examined) -> Iterator[str]:
    report = examined.report
    safe = [each for each in report.findings if each.fix is not None and each.fix.safety is Safety.SAFE]
    if len(safe) > 1:
        every = "all" if len(safe) == len(report.findings) else count(len(safe))
        line = command(fix_command(report.path))
        yield f'<div class="all"><p>{every.capitalize()} of them can be fixed safely at once</p>{line}</div>'


def _card(finding: Finding, path: str, key: str) -> str:
    kind = finding.severity.value
    title = f'<b class="badge">{text(kind)}</b> <code>{text(finding.code)}</code> <span>{text(finding.name)}</span>'
    title += permalink(key, f"{finding.code} {finding.name}")
    parts = [
        f"<h3>{title}</h3>",
        f'<p class="message">{name(finding.message, _TOLD)}</p>',
        f"<p>{text(finding.cause, _TOLD)}</p>" if finding.cause else "",
        _says(finding.torch_says),
        _place(finding),
        _keys(finding),
        _repair(finding.fix, path) if finding.fix is not None else "",
        f"<p>{text(with_path(finding.advice, path), _TOLD)}</p>" if finding.advice else "",
        *[command(with_path(each, path)) for each in finding.commands],
    ]
    return f'<article class="finding {kind}" id="{key}">{lines(parts)}</article>'


def _says(said: tuple[str, ...]) -> str:
    if not said:
        return ""
    told = "\n".join([text(line) for line in said[:_LINES]])
    return f'<pre class="says" tabindex="0" aria-label="The error of torch">{told}</pre>'


def _place(finding: Finding) -> str:
    location = finding.location
    if location.offset is None:
        return ""
    where = f" of {location.member}" if location.member is not None else ""
    return f'<p class="soft">at byte {count(location.offset)}{text(where)}</p>'


def _keys(finding: Finding) -> str:
    keys = finding.keys
    if not keys:
        return ""
    rest = beyond(len(keys) - _KEYS, before="", after="; the table below marks them")
    items = "".join([f"<li>{name(show_path(key))}</li>" for key in keys[:_KEYS]])
    more = f'<li class="soft">{rest}</li>' if rest else ""
    if len(keys) <= _OPEN:
        return f'<ul class="keys few">{items}</ul>'
    return f'<details><summary>{plural(len(keys), "key")}</summary><ul class="keys">{items}{more}</ul></details>'


def _repair(fix: Fix, path: str) -> str:
    safety = fix.safety.value
    told = f'<span class="safety {safety}">{text(safety)}</span> <span class="soft">{text(_SAFETY[fix.safety])}</span>'
    return f'<div class="repair"><p>{text(fix.title)} · {told}</p>{command(fix_command(path, fix))}</div>'


def _coverage(coverage: Coverage) -> str:
    """Return the share of a model that fits, as it is and after each repair."""
    rows = [("as it is", "", coverage.keys, coverage.parameters)]
    rows += [(step.title, step.code, step.keys, step.parameters) for step in coverage.steps]
    body = "".join(
        [
            f'<tr><th scope="row">{text(title, 120)}</th><td><code>{text(code)}</code></td>'
            f'<td class="n">{count(keys)}</td><td class="n">{percent(parameters, coverage.total_parameters)}</td></tr>'
            for title, code, keys, parameters in rows
        ]
    )
    head = (
        f"<thead><tr><th>fit to {text(coverage.reference, 120)}</th><th></th>"
        f'<th class="n">of {plural(coverage.total_keys, "key")}</th><th class="n">of parameters</th></tr></thead>'
    )
    return f'<div class="scroll"><table class="plain">{head}<tbody>{body}</tbody></table></div>'
