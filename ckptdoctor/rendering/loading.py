"""Says what loads a file that was written, or what has to be done first."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.findings import Loader, NextStep
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged, wrapped
from ckptdoctor.shell import quote

_REASON = 90  # characters of why torch refuses it

_CALLS = {
    Loader.TORCH: "torch.load({})",
    Loader.TORCH_ON_CPU: 'torch.load({}, map_location="cpu")',
    Loader.SAFETENSORS: "safetensors.torch.load_file({})",
    Loader.TRUSTED: "torch.load({}, weights_only=False)",
    Loader.OURS: "ckptdoctor.load({})",
}


def line(after: NextStep, path: str, weights: KeyPath) -> str:
    """Return the call that loads the file, down to its ``weights``, or the command before it; "" if none is known."""
    if after.loader is Loader.CONVERT:
        return " ".join(["ckptdoctor convert", quote(path), *map(quote, after.options)])
    if after.loader is Loader.FIX:
        return " ".join(["ckptdoctor fix", quote(path), *map(escape, after.options)])
    call = _CALLS.get(after.loader)
    if call is None:
        return ""
    steps = "".join(f"[{literal(part) if isinstance(part, str) else part}]" for part in weights)
    flat = after.loader is Loader.SAFETENSORS or not all(isinstance(part, (str, int)) for part in weights)
    return f"{call.format(literal(path))}{'' if flat else steps}"


def caution(after: NextStep | None) -> str:
    """Return a warning about that; "" where torch.load loads the file as it is."""
    if after is None or not after.refusal:
        return ""
    if after.loader is Loader.CONVERT:
        told = not after.refusal.startswith("it is ")  # what it is was said before
        return f"torch.load fails: {abridged(escape(after.refusal), _REASON)}" if told else ""
    refused = f"torch.load rejects it with weights_only=True: {abridged(escape(after.refusal), _REASON)}"
    if after.loader is Loader.TRUSTED:
        return f"{refused}. weights_only=False runs code from the file: use it only if you trust the author"
    if after.loader is Loader.OURS:
        return f"{refused}. ckptdoctor.load runs nothing, and returns such objects as records"
    return refused


def lines(after: NextStep | None, line: str, paint: Paint, width: int | None) -> Iterator[str]:
    """Yield the closing lines of a report: the warning, if there is one, and the ``line`` that is next."""
    if why := caution(after):
        yield from wrapped(f"note · {why}", width, "", "  ")
    yield f"next · {paint.accent(line)}" if line else "next · nothing is known to load it as it is"


def literal(text: str) -> str:
    """Return text as Python and people write it; what cannot be shown is escaped."""
    return json.dumps(text, ensure_ascii=escape(text) != text)
