"""``ckptdoctor explain`` says what an error text means, or shows the page of one rule."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, rule_codes
from ckptdoctor.diagnose.catalogue import all_rules, find_rule, look_up
from ckptdoctor.errors import UsageError
from ckptdoctor.explaining.explanation import Explanation, explain
from ckptdoctor.explaining.reading import is_output, is_text, read_text
from ckptdoctor.rendering import rule_table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_EXAMPLES = (
    ("The meaning of an error message, and what to do", "ckptdoctor explain error.txt"),
    ("Its meaning for this file", "ckptdoctor explain model.pt --error error.txt"),
    ("The page of a rule", "ckptdoctor explain N401"),
)


def _rules_and_files(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    return rule_codes(context, parameter, word) or files(context, parameter, word)


@click.command("explain", cls=Command, examples=_EXAMPLES)
@click.argument("what", required=False, metavar="[CODE|FILE|TEXT]", shell_complete=_rules_and_files)
@click.option(
    "--error",
    "source",
    metavar="TEXT",
    shell_complete=files,
    help="The error text, or a file with it.  [default: -, standard input]",
)
@as_json
@color
def command(what: str | None, source: str | None, style: str, color: str) -> ExitStatus:
    """Explain an error message, or a rule.

    CODE is a rule's code or name, such as N401 or module-prefix: its page is printed. TEXT is an error message, or a
    file with a traceback or a whole log (.txt, .log, .out, .err); without it, that is read from standard input. What
    the messages of torch, safetensors and transformers in it mean is printed, and what to do. With FILE, a checkpoint,
    the explanation is checked against it.

    Exit status: 0 explained, 1 no known message in the text, 2 no text, or no rule of that name.
    """
    if (
        what is not None
        and source is None
        and (is_text(what) or is_output(what) or _is_message(what) or not what.strip())
    ):
        what, source = None, what
    if what is not None and source is None and _is_rule(what):
        rule = look_up(what)
        emit(rule_table.as_json([rule]) if style == "json" else rule_table.page(rule, width()))
        return ExitStatus.CLEAN
    source = "-" if source is None else source
    raw = _read(source, what)
    explained = explain(raw, what, None if source == "-" or _is_typed(source) else source)
    if what is not None and explained.hits:
        from ckptdoctor.examine.explained import judged

        explained = judged(explained, raw, what)
    _show(explained, style, color, source)
    return ExitStatus.CLEAN if explained.hits else ExitStatus.FINDINGS


def _is_rule(what: str) -> bool:
    """Return whether a word is meant as a rule: no file is called so, or nobody pipes in an error text for that."""
    return not os.path.exists(what) or (_is_terminal() and find_rule(what) is not None)


def _is_message(word: str) -> bool:
    """Return whether one word that is neither a file nor a rule is an error message: ``HeaderTooLarge``."""
    return bool(word.strip()) and not os.path.exists(word) and find_rule(word) is None and bool(explain(word).hits)


def _is_typed(source: str) -> bool:
    """Return whether the error text itself was typed, not the name of a file with it."""
    return is_text(source) or not source.strip() or _is_message(source)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _read(source: str, checkpoint: str | None) -> str:
    if source == "-" and _is_terminal():
        how = "pipe one in, or name a rule" if checkpoint is None else "pipe one in, or name a file with it (--error)"
        raise click.UsageError(f"No error text: {how}.", click.get_current_context())
    raw = source if source != "-" and _is_typed(source) else read_text(source)
    if not raw.strip():
        raise UsageError(f"{_called(source)} is empty: there is no error text to explain.")
    return raw


def _called(source: str) -> str:
    return "standard input" if source == "-" else "the text" if _is_typed(source) else source


def _show(explained: Explanation, style: str, color: str, source: str) -> None:
    documented = frozenset([rule.code for rule in all_rules()])
    if style == "json":
        from ckptdoctor.rendering.explain import as_json as rendered

        emit(rendered(explained, documented))
        return
    from ckptdoctor.rendering.explain import as_text, nothing

    if explained.hits:
        emit(as_text(explained, documented, paint(color), width()))
    else:
        emit(nothing(explained, _called(source)))
