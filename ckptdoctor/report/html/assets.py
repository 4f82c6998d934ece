"""The page around the contents: its frame, how it looks, what moves in it; and what a browser may do with it."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

# in this order they are one script
_SCRIPTS = ("data.js", "tips.js", "copy.js", "treemap.js", "tensor.js", "table.js", "charts.js")

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@cache
def asset(name: str) -> str:
    """The text of a file of the package."""
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet."""
    return asset("style.css")


def script() -> str:
    """The script: it only ever sets text, and gets no right to do anything else."""
    return '(() => {\n"use strict";\n' + "\n".join(map(asset, _SCRIPTS)) + "})();\n"


def policy(style: str, script: str) -> str:
    """What the browser may do: show this style sheet, run this script, and nothing else (https://www.w3.org/TR/CSP3/).

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
