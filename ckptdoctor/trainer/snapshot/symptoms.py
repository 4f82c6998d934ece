"""What ``ckptdoctor check`` must report of a file that was made like this, and what repairs it."""

from __future__ import annotations

from ckptdoctor.trainer.snapshot.tags import WITHOUT_STORAGE

_OF_STYLE = {"training": "W301", "whole": "P204", "legacy": "C105", "ema": "N411"}
_OF_PREFIX = {"module.": "N401", "_orig_mod.": "N404"}


def codes(style: str, prefix: str, tag: str, averaged: bool = False) -> list[str]:
    """The codes of all rules that apply, in order: of the style, of the wrappers in the keys, of the device tag.

    ``averaged``: the averaged weights are in the file beside the raw ones.
    """
    found = {_OF_STYLE[style]} if style in _OF_STYLE else set()
    if averaged:  # which of two sets is meant says more than that each lies under a name
        found = found - {"W301"} | {"W302"}
    if style != "ema":  # an averaged model is one finding, wrapper and counter together
        found |= {code for wrapper, code in _OF_PREFIX.items() if wrapper in prefix}
    return sorted(found | _of_tag(tag))


def repair(file: str, style: str, prefix: str, tag: str) -> str | None:
    """The command that leaves a file which loads into the bare model; None where there is none, or no need of one."""
    if style == "whole":  # what all its repairs are follows from the first of them
        return f"ckptdoctor fix {file}"
    options = []
    if prefix and style != "ema":
        options.append("--strip-module")
    if _of_tag(tag):
        options.append("--to-cpu")
    if style == "ema":
        options.append("--select N411")
    return f"ckptdoctor fix {file} {' '.join(options)}" if options else None


def _of_tag(tag: str) -> set[str]:
    backend, _, index = tag.partition(":")
    if backend == "cuda":
        return {"D602" if int(index or 0) else "D601"}
    if backend == "cpu":
        return set()
    return {"D605" if backend in WITHOUT_STORAGE else "D604"}
