"""What is wrong: each finding with its cause, what torch says, its keys, and the command that repairs it."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Coverage, Finding
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.markup import lines, name, section, text
from ckptdoctor.report.numbers import count, plural
from ckptdoctor.report.shell import fix_command, with_path
from ckptdoctor.wording import percent

_MOST = 200  # findings
_KEYS = 60  # keys of one
_OPEN = 3  # so few keys are shown at once
_LINES = 12  # of what torch says
_TOLD = 1200  # characters of a sentence
_SAFETY = {
    Safety.SAFE: "no value changes, and it can be taken back",
    Safety.CONFIRMED: "what it is held against proves it",
    Safety.UNSAFE: "it changes or drops values: look before you trust it",
}


def findings(examined: Examined) -> str:
    """The section: worst first, and one command for all that is safe."""
    report = examined.report
    shown = [_card(finding, report.path) for finding in report.findings[:_MOST]]
    rest = len(report.findings) - _MOST
    if rest > 0:
        shown.append(
            f'<p class="soft">{plural(rest, "more finding")}: <code>ckptdoctor check</code> names them all.</p>'
        )
    if not shown:
        shown = ['<p class="well">Nothing was found in what was examined.</p>']
    if report.coverage is not None:
        shown.insert(0, _coverage(report.coverage))
    return section("findings", "Findings", lines([*_all_at_once(examined), *shown]))


def _all_at_once(examined: Examined) -> Iterator[str]:
    report = examined.report
    safe = [each for each in report.findings if each.fix is not None and each.fix.safety is Safety.SAFE]
    if len(safe) > 1:
        every = "all" if len(safe) == len(report.findings) else count(len(safe))
        line = command(fix_command(report.path))
        yield f'<div class="all"><p>{every.capitalize()} of them can be repaired safely at once</p>{line}</div>'


def _card(finding: Finding, path: str) -> str:
    kind = finding.severity.value
    title = f'<b class="badge">{text(kind)}</b> <code>{text(finding.code)}</code> <span>{text(finding.name)}</span>'
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
    return f'<article class="finding {kind}">{lines(parts)}</article>'


def _says(said: tuple[str, ...]) -> str:
    if not said:
        return ""
    told = "\n".join([text(line) for line in said[:_LINES]])
    return f'<pre class="says" tabindex="0" aria-label="What torch says">{told}</pre>'


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
    rest = len(keys) - _KEYS
    items = "".join([f"<li>{name(show_path(key))}</li>" for key in keys[:_KEYS]])
    more = f'<li class="soft">{count(rest)} more; the table below marks them</li>' if rest > 0 else ""
    if len(keys) <= _OPEN:
        return f'<ul class="keys few">{items}</ul>'
    return f'<details><summary>{plural(len(keys), "key")}</summary><ul class="keys">{items}{more}</ul></details>'


def _repair(fix: Fix, path: str) -> str:
    safety = fix.safety.value
    told = f'<span class="safety {safety}">{text(safety)}</span> <span class="soft">{text(_SAFETY[fix.safety])}</span>'
    return f'<div class="repair"><p>{text(fix.title)} · {told}</p>{command(fix_command(path, fix))}</div>'


def command(line: str) -> str:
    """A command with a button that copies it."""
    return (
        f'<div class="command"><code tabindex="0">{text(line, 4000)}</code>'
        '<button type="button" class="copy scripted" aria-label="Copy the command">copy</button></div>'
    )


def _coverage(coverage: Coverage) -> str:
    """How much of a model fits, as it is and after each repair."""
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
