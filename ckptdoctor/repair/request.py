"""Describes what was asked of a repair."""

from __future__ import annotations

import os
import re

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.process import complete
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits.casts import TARGETS, named
from ckptdoctor.edits.computing import ORTHOGONAL
from ckptdoctor.errors import UsageError
from ckptdoctor.match.shapes.projections import QKV_LAYOUTS
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.repair.name_map import NameMap
from ckptdoctor.shell import joined, quote
from ckptdoctor.wording import did_you_mean, not_one_of

ORTHOGONAL_MAPS = ORTHOGONAL
EXPERT_LAYOUTS = ("out-in", "in-out")  # of slices: as torch.nn.Linear has its weight, or transposed


@noun
class Substitution:
    """``--rename 'REGEX=REPL'``: ``text`` as it was given, taken apart at the last ``=``."""

    text: str
    pattern: re.Pattern[str]
    replacement: str


@noun
class FixRequest:
    """One file and what to do with it. Nothing named: the safe fixes of everything that is found.

    ``output`` None means next to the original, ``name.fixed.ext``; a directory takes a file of the original's name.
    What is named applies in this order: ``root``, ``drop`` and ``keep``, ``slim``, ``strip_module``,
    ``strip_prefixes``, ``renames``, ``add_prefix``, ``merge_adapter``, ``to_cpu``, ``weights_only_safe``,
    ``clone_shared``, ``tie``, and last the fixes of ``selection``, where that selects rules.
    ``unsafe`` admits fixes that change or drop something; ``force`` replaces an existing output. ``auto`` asks for
    the chain of repairs that makes the file fit ``target``, and for nothing at all where there is none; ``error`` is
    the path of a text with an error of ``load_state_dict`` that says instead what is wanted ("-": standard input).
    ``qkv_layout`` and ``heads`` say how queries, keys and values are laid out in a fused tensor, which no shape tells;
    ``heads`` alone serves layouts of which rows are permuted in each head. ``expert_layout`` says how the slices of
    stacked experts are laid out.
    ``orthogonal_map`` says how parametrized weights are computed, which no file does.
    ``name_map`` renames as an earlier repair did, after ``root``, and ``write_map`` is the file that the renames are
    written to, or the draft of them. ``remap_optimizer`` numbers the parameters of optimizers as ``target`` does, or
    else as the weights next to them, after ``auto``, which leaves the weights where they are then. ``dtype`` (torch's
    name) is what the weights are cast to, after everything that was named.
    """

    path: str
    output: str | None = None
    root: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    slim: bool = False
    strip_module: bool = False
    strip_prefixes: tuple[str, ...] = ()
    renames: tuple[Substitution, ...] = ()
    add_prefix: str | None = None
    merge_adapter: str | None = None
    to_cpu: bool = False
    weights_only_safe: bool = False
    clone_shared: bool = False
    tie: bool = False
    dtype: str | None = None
    remap_optimizer: bool = False
    selection: Selection = field(default_factory=Selection)
    unsafe: bool = False
    force: bool = False
    auto: bool = False
    reference: Reference | None = None
    error: str | None = None
    name_map: NameMap | None = None
    write_map: str | None = None
    qkv_layout: str | None = None
    heads: int | None = None
    expert_layout: str | None = None
    orthogonal_map: str | None = None
    in_place: bool = False

    def __post_init__(self) -> None:
        for option, word, words in (
            ("--qkv-layout", self.qkv_layout, QKV_LAYOUTS),
            ("--expert-layout", self.expert_layout, EXPERT_LAYOUTS),
            ("--orthogonal-map", self.orthogonal_map, ORTHOGONAL_MAPS),
        ):
            if word is not None and word not in words:
                raise UsageError(not_one_of(option, word, words))

    @property
    def named(self) -> bool:
        """Whether some change is named, other than the fixes of rules."""
        names = (self.strip_module, self.strip_prefixes, self.renames)
        sharing = (self.clone_shared, self.tie, self.remap_optimizer)
        changes = (self.drop, self.keep, self.slim, *names, self.to_cpu, self.weights_only_safe, *sharing)
        given = (self.root, self.add_prefix, self.merge_adapter, self.name_map, self.dtype)
        return any(changes) or any(each is not None for each in given)

    @property
    def target(self) -> str:
        """The option that names the target; "" where none was named on a command line."""
        if self.error is not None:
            return f"--error {quote(self.error)}"
        return self.reference.option if self.reference is not None else ""

    @property
    def fixes(self) -> bool:
        """Whether fixes of rules are wanted: all, because nothing is named, or those of the rules selected."""
        return (not self.named and not self.auto) or self.selection.select is not None


def command_line(request: FixRequest) -> str:
    """Return the command line that makes this request."""
    words: list[str] = []
    given = (("--root", request.root), ("--add-prefix", request.add_prefix), ("--dtype", request.dtype))
    merged = (("--merge-adapter", request.merge_adapter), ("--orthogonal-map", request.orthogonal_map))
    laid = ("--expert-layout", request.expert_layout)
    for option, value in (*given, *merged, ("--error", request.error), ("--qkv-layout", request.qkv_layout), laid):
        words += [] if value is None else [option, value]
    for option, values in (
        ("--drop", request.drop),
        ("--keep", request.keep),
        ("--strip-prefix", request.strip_prefixes),
    ):
        words += [word for value in values for word in (option, value)]
    words += [word for each in request.renames for word in ("--rename", each.text)]
    words += [] if request.selection.select is None else ["--select", ",".join(request.selection.select)]
    words += [] if request.heads is None else ["--heads", str(request.heads)]
    asked = (("--slim", request.slim), ("--strip-module", request.strip_module), ("--to-cpu", request.to_cpu))
    more = (("--weights-only-safe", request.weights_only_safe), ("--clone-shared", request.clone_shared))
    last = (("--tie", request.tie), ("--remap-optimizer", request.remap_optimizer), ("--unsafe-fixes", request.unsafe))
    words += [
        option
        for option, wanted in (*asked, *more, *last, ("--in-place", request.in_place), ("--force", request.force))
        if wanted
    ]
    words += [] if request.name_map is None or not request.name_map.file else ["--map", request.name_map.file]
    words += [] if request.write_map is None else ["--write-map", request.write_map]
    words += ["--auto"] if request.auto else []
    line = " ".join(["ckptdoctor fix", quote(request.path), *([joined(*words)] if words else [])])
    if request.error is None and request.target:
        line += f" {request.target}"
    line += "" if request.output is None else f" -o {quote(request.output)}"
    return complete(line)


def into_a_new_folder(request: FixRequest, flat: bool) -> FixRequest:
    """Return the request whose output is a new folder, or, if the contents are not ``flat``, a new file of torch.

    It is next to the folder that is repaired, or in the one that was named for the output.
    """
    stem = f"{stem_of(request.path)}.fixed"
    if request.output is not None:
        folder = request.output if os.path.isdir(request.output) else os.path.dirname(request.output)
        stem = os.path.join(folder, os.path.basename(stem))
    return replace(request, output=f"{stem}/" if flat else f"{stem}.pt")


def draft_path(path: str) -> str:
    """Return where the draft map of a file goes: next to it."""
    return f"{os.path.splitext(stem_of(path))[0]}.map.json"


def substitution(text: str) -> Substitution:
    """Return ``REGEX=REPL``, taken apart at the last ``=``.

    Raises UsageError, with the position of the mistake.
    """
    expression, sign, replacement = text.rpartition("=")
    if not sign or not expression:
        raise UsageError(f"--rename: \"{text}\" is not REGEX=REPL. Use --rename 'encoder\\.norm=enc_norm'.")
    try:
        pattern = re.compile(expression)
    except re.error as error:
        place = "" if error.pos is None else f" at character {error.pos + 1}"
        raise UsageError(f'--rename: "{expression}" is not a regular expression{place}: {error.msg}.') from error
    try:
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise UsageError(f'--rename: "{replacement}" cannot be filled in from "{expression}": {error}.') from error
    return Substitution(text, pattern, replacement)


def cast_target(text: str) -> str:
    """Return the dtype of ``--dtype``, however it was called. Raises UsageError for one that nothing is cast to."""
    found = named(text)
    if found is None:
        offer = did_you_mean(text, TARGETS)
        raise UsageError(f'--dtype: "{text}" is not one of {", ".join(TARGETS)} (also fp16, bf16).{offer}')
    return found


def index_path(request: FixRequest, name: str) -> str:
    """Return where a new index of the folder goes.

    It goes next to the old one under another name, or with ``force`` in its place, which it has at once where there is
    no old one.
    """
    if request.output is not None:
        return os.path.join(request.output, name) if os.path.isdir(request.output) else request.output
    stem, suffix = os.path.splitext(os.path.join(request.path, name))
    free = request.force or not os.path.lexists(f"{stem}{suffix}")
    return f"{stem}{suffix}" if free else f"{stem}.fixed{suffix}"


def output_path(request: FixRequest, suffix: str | None, inside: str | None = None) -> str:
    """Return where the output goes. ``suffix`` is the one that fits the contents, None to keep the original's.

    ``inside`` is what an original that was packed is called without that: a name of its own, which the output takes.
    """
    if request.output is not None and not os.path.isdir(request.output):
        return request.output
    stem, own = os.path.splitext(inside or stem_of(request.path))
    if request.output is not None:
        return os.path.join(request.output, os.path.basename(stem) + (own if suffix is None else suffix))
    free = inside is not None and stem + (suffix or own) != request.path
    return f"{stem}{'' if free else '.fixed'}{own if suffix is None else suffix}"
