"""Reads every value of a checkpoint, or of a part of it, to be shown in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Tensor, show_path
from ckptdoctor.checkpoint.progress import Listener, Work, follow, in_thread
from ckptdoctor.errors import UsageError
from ckptdoctor.look.contents import Excerpt, part_of
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.statistics import Values


@noun
class Measurement:
    """The values of the tensors of a part; of some of them only where it was ``interrupted``."""

    part: Excerpt
    values: Values
    interrupted: bool = False


def measured(
    path: str,
    root: str | None = None,
    only: Iterable[str] = (),
    listener: Listener = lambda progress: None,
    text: str = "",
) -> Measurement:
    """Return the values of all tensors below ``root`` whose path or key matches one of ``only`` (none: all).

    Of these only what the filter ``text`` keeps. ``listener`` is told how far it is. Ctrl-C ends it with what is known
    by then. Raises what ``formats.read`` does, and UsageError where there is nothing to read.
    """
    with formats.opened(path) as (source, container):
        checkpoint = formats.read(source, container)
        part = part_of(checkpoint, root)
        part = replace(part, checkpoint=chosen(part.checkpoint, tuple(only)))
        if text:
            from ckptdoctor.look.filtered import filtered

            part = filtered(part, checkpoint, text, path)
        from ckptdoctor.values.distinct import bytes_to_read

        def read(work: Work) -> Values:
            from ckptdoctor.values.examine import examine_values

            return examine_values(part.checkpoint, source, work)

        found = follow(in_thread(read, "values", bytes_to_read(part.checkpoint)), listener)
    values = found.result if found.result is not None else Values(part.checkpoint, {}, complete=False)
    return Measurement(part, values, not (found.complete and values.complete))


def _nothing(checkpoint: Checkpoint, pattern: str) -> str:
    """Return the sentence for a pattern without a match, with one that has some, or the way to the keys."""
    from ckptdoctor.filters.found import Findings
    from ckptdoctor.filters.suggestions import better_filter
    from ckptdoctor.filters.table import Table
    from ckptdoctor.shell import quote

    table = Table(checkpoint.tensors)
    better = better_filter(pattern, table, Findings(table, ()))
    offer = f' Did you mean "{better}"?' if better else ""
    return f"--only {pattern} matches no tensor.{offer} List the keys: ckptdoctor show {quote(checkpoint.path)} --keys"


def chosen(checkpoint: Checkpoint, patterns: tuple[str, ...]) -> Checkpoint:
    """Return the checkpoint with the tensors that match. Raises UsageError for a pattern that matches none."""
    if not patterns:
        return checkpoint
    kept: set[int] = set()
    for pattern in patterns:
        matches = re.compile(translate(pattern)).match
        found = [id(each) for each in checkpoint.tensors if matches(show_path(each.path)) or matches(each.key)]
        if not found:
            raise UsageError(_nothing(checkpoint, pattern))
        kept.update(found)
    tensors: tuple[Tensor, ...] = tuple([each for each in checkpoint.tensors if id(each) in kept])
    return replace(checkpoint, tensors=tensors)
