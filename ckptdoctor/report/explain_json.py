"""An explanation as JSON."""

from __future__ import annotations

from collections.abc import Collection

from ckptdoctor.explain.cause import Hit
from ckptdoctor.explain.explanation import Explanation, name_of
from ckptdoctor.report.explain import filled
from ckptdoctor.report.json import SCHEMA, dump


def as_json(explained: Explanation, documented: Collection[str]) -> str:
    """The document: what was read, the file that the text is about, and the causes, the root first."""
    verdict = explained.verdict
    return dump(
        {
            "schema": SCHEMA,
            "lines": explained.lines,
            "characters_left_out": explained.left_out,
            "file": explained.file,
            "explanations": [_hit(hit, explained, documented) for hit in explained.hits],
            "verdict": {"confirmed": verdict.confirmed, "why": verdict.why} if verdict is not None else None,
        }
    )


def _hit(hit: Hit, explained: Explanation, documented: Collection[str]) -> dict[str, object]:
    return {
        "code": hit.code or None,
        "name": name_of(hit.code) if hit.code else None,
        "words": hit.words,
        "meaning": hit.meaning,
        "ways": [{"label": way.label, "command": filled(way.command, explained)} for way in hit.ways],
        "may_also_be": list(hit.also),
        "documented": hit.code in documented,
    }
