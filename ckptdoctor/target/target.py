"""Reads the target that ``--model`` names: ``pkg.mod:Net``, ``nets.py:build(classes=10)``. Nothing is evaluated."""

from __future__ import annotations

import ast
import os
import re
import warnings
from typing import Any

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun

# the module or file, then the first colon behind which a dotted name stands, with or without arguments: other colons
# belong to a path (a drive letter) or to the arguments
_FORM = re.compile(r"\s*(?P<module>.+?):(?P<rest>\s*[^\W\d]\w*(\s*\.\s*[^\W\d]\w*)*\s*(\(.*\))?\s*)", re.DOTALL)
_EXAMPLES = "nets:Net, pkg.nets:build(num_classes=10) or path/to/nets.py:Net"
_LITERALS = "numbers, strings, True, False, None, and tuples, lists, sets and dicts of them"
_LONGEST = 60  # characters of arguments in a name

# what taking hostile text apart may raise besides SyntaxError: NUL bytes, nesting, keys that cannot be hashed
_UNFIT = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


@noun
class NamedTarget:
    """A class, function or module object in the user's code. ``called``: there were parentheses, if only empty ones.

    ``module`` is a dotted name or the path of a file; ``attributes`` lead from it to what is meant.
    """

    module: str
    attributes: tuple[str, ...]
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    called: bool = False

    @property
    def is_file(self) -> bool:
        """Whether ``module`` is the path of a file."""
        return self.module.endswith(".py") or os.sep in self.module or "/" in self.module

    @property
    def stem(self) -> str:
        """The module as people call it: ``nets`` for ``path/to/nets.py``."""
        return re.split(r"[/\\]", self.module)[-1].removesuffix(".py") if self.is_file else self.module

    @property
    def place(self) -> str:
        """``nets:Net``, without arguments."""
        return f"{self.stem}:{'.'.join(self.attributes)}"

    @property
    def text(self) -> str:
        """All of it, as it is written behind ``--model``."""
        given = [repr(value) for value in self.arguments] + [f"{key}={value!r}" for key, value in self.keywords]
        return f"{self.module}:{'.'.join(self.attributes)}" + (f"({', '.join(given)})" if self.called else "")

    @property
    def name(self) -> str:
        """``nets:Net(num_classes=10)``: what reports call it."""
        given = [repr(value) for value in self.arguments] + [f"{key}={value!r}" for key, value in self.keywords]
        text = ", ".join(given)
        if not text:
            return self.place
        return f"{self.place}({text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'})"


def parse_target(text: str) -> NamedTarget:
    """Take ``module:name(arguments)`` apart. Raises UsageError for anything else, and for arguments that are code."""
    form = _FORM.fullmatch(text)
    expression = _expression(form["rest"].strip()) if form else None
    call = expression if isinstance(expression, ast.Call) else None
    names = _names(call.func if call is not None else expression)
    if form is None or not names or not _importable(form["module"]):
        raise UsageError(f'--model: "{text}" is not a module and a name in it. Use {_EXAMPLES}, for example.')
    module = form["module"].strip()
    if call is None:
        return NamedTarget(module, names)
    values = tuple([_value(each, text) for each in call.args])
    keywords = tuple([(_keyword(each, text), _value(each.value, text)) for each in call.keywords])
    if len({name for name, _ in keywords}) < len(keywords):
        raise UsageError(f'--model "{text}" gives an argument twice.')
    return NamedTarget(module, names, values, keywords, True)


def _importable(module: str) -> bool:
    named = NamedTarget(module.strip(), ())
    return named.is_file or all(part and not part.isspace() for part in named.module.split("."))


def _expression(text: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts that Python will not take for much longer
            return ast.parse(text, mode="eval").body
    except _UNFIT:
        return None


def _names(node: ast.expr | None) -> tuple[str, ...]:
    """Return the parts of a dotted name; () for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _keyword(node: ast.keyword, text: str) -> str:
    if node.arg is None:
        raise UsageError(f'--model "{text}" has ** in its arguments: give each by name.')
    return node.arg


def _value(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except _UNFIT:
        raise UsageError(
            f'--model "{text}": the arguments must be Python literals ({_LITERALS}); for anything else write '
            "a function that builds the model, and name that."
        ) from None
