"""The whole page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from string import Template

from ckptdoctor.checkpoint.collecting import collector_paused
from ckptdoctor.report.html.assets import asset, embedded, policy, script, style
from ckptdoctor.report.html.comparison import comparison
from ckptdoctor.report.html.depth import depth
from ckptdoctor.report.html.distributions import distributions
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.findings import findings
from ckptdoctor.report.html.markup import lines, name, section, text
from ckptdoctor.report.html.modules import Modules, modules
from ckptdoctor.report.html.payload import payload
from ckptdoctor.report.html.summary import contents, tiles
from ckptdoctor.report.html.table import table
from ckptdoctor.report.html.treemap import treemap
from ckptdoctor.report.numbers import size

KIND = b"<!doctype html>"  # what every page begins with

_TITLES = (
    ("findings", "Findings"),
    ("contents", "Contents"),
    ("comparison", "Comparison"),
    ("size", "Sizes"),
    ("values", "Distributions"),
    ("depth", "Depth"),
    ("tensors", "Tensors"),
)


@collector_paused()
def render(examined: Examined) -> bytes:
    """The page as UTF-8."""
    made = modules(examined.checkpoint) if examined.checkpoint is not None else Modules()
    parts = {
        "findings": findings(examined),
        "contents": contents(examined),
        "comparison": comparison(examined),
        "size": treemap(examined, made),
        "values": distributions(examined),
        "depth": depth(examined),
        "tensors": table(examined, made),
    }
    look, moves = style(), script()
    page = Template(asset("page.html")).substitute(
        policy=text(policy(look, moves), 4000),
        version=text(examined.version),
        title=text(_called(examined)),
        style=look,
        header=_header(examined),
        nav="".join([f'<a href="#{key}">{title}</a>' for key, title in _TITLES if parts[key]]),
        tiles=tiles(examined),
        sections=lines(parts.values()),
        unseen=_unseen(examined),
        footer=_footer(examined),
        data=embedded(payload(examined, made)),
        script=moves,
    )
    return page.encode()


def _called(examined: Examined) -> str:
    path = examined.report.path.rstrip("/")
    return os.path.basename(path) or path


def _header(examined: Examined) -> str:
    other = f" <span>against {name(examined.difference.b.path)}</span>" if examined.difference is not None else ""
    path = examined.report.path
    below = f'<p class="path">{name(path, 400)}</p>' if path != _called(examined) else ""
    return f"<h1>{name(_called(examined), 120)}{other}</h1>{below}"


def _unseen(examined: Examined) -> str:
    """What was read, and what was not: nothing that was left out may pass for healthy."""
    items = "".join([f"<li>{text(told)}</li>" for told in _left_out(examined)])
    return section("unseen", "What was not examined", f'<ul class="unseen">{items}</ul>' if items else "")


def _left_out(examined: Examined) -> Iterator[str]:
    for each in examined.report.skipped:
        why = "left out by --headers-only" if each.why == "--deep" else each.why
        if why == "--model, --like":
            why = "name a model with --model, --config or --like"
        yield f"{each.what[:1].upper()}{each.what[1:]}" + (f": {why}" if why else "")
    found = examined.difference
    if found is not None:
        yield f"What is wrong with {found.b.path}: findings are those of the first file"
        if not found.compared:
            yield "How far the values of both files are apart: left out by --headers-only"


def _footer(examined: Examined) -> str:
    report = examined.report
    read = ""
    if report.container is not None:
        read = f"Read {size(report.bytes_read)} of {size(report.container.size)} in {report.seconds:.2f} s. "
    told = f"{read}Nothing in the file was run. ckptdoctor {examined.version}"
    return f"<p>{text(told)}{', ' + text(examined.when) if examined.when else ''}</p>"
