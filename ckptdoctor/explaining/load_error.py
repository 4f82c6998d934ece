"""The errors of ``load_state_dict``, old wording and new, are read into the keys and shapes that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

from ckptdoctor.explaining.text import PastedText, squeeze
from ckptdoctor.match.shapes.pairs import Pair, Shape
from ckptdoctor.noun import field, noun
from ckptdoctor.rules.incompatible_keys import LoadError
from ckptdoctor.wording import and_so_on


@noun(frozen=False)
class _Found:
    """What has been read so far; dicts keep the order and each key once."""

    missing: dict[str, None] = field(default_factory=dict)
    unexpected: dict[str, None] = field(default_factory=dict)
    mismatched: dict[str, Pair] = field(default_factory=dict)
    running_stats: dict[str, None] = field(default_factory=dict)
    complete: bool = True
    offsets: list[int] = field(default_factory=list)
    certain: bool = False  # an error, not a warning
    first_only: bool = False


_KEY = r"[^\"'\s:,|]{1,1000}?"
_SIZE = r"(?:torch\.Size\(\[(?P<{0}>[\d,]{{0,200}})\]\)|\((?P<{0}_>[\d,]{{0,200}})\))"
_HERE, _THERE = _SIZE.format("here"), _SIZE.format("there")

_OPEN = re.compile(r"[\"']?[\[{(]{1,3}")
_ITEM = re.compile(r"[\"']([^\"']{0,1000})[\"'](,?)")
_CLASS = re.compile(r"([A-Za-z_][\w.]{0,200}):")
_NAME = re.compile(r"([A-Za-z_]\w{0,200}?)(?:werenot|:|LOADREPORT)")
_HEADER = "Error(s) in loading state_dict for"
_HEADS = 2000  # headers that are looked at: each rank of a job may print one
_IN_ORDER = re.compile(r"(Missing|Unexpected)key\(s\)instate_dict:|sizemismatchfor([^\s:]{1,1000}):")
_STATS = re.compile(r"\"([^\"]{1,1000})\"and\"([^\"]{1,1000})\"for")
_OLD_KEY = re.compile(r"[\"'](" + _KEY + r")[\"']instate_dict")

# the words before a list of keys → whether they are missing, and whether the text is an error
_LISTS = {
    "Missing key(s) in state_dict:": (True, True),
    "missing keys in state_dict:": (True, True),
    "Unexpected key(s) in state_dict:": (False, True),
    "unexpected keys in state_dict:": (False, True),
    "missing_keys=": (True, False),
    "unexpected_keys=": (False, False),
    "and are newly initialized:": (True, False),
    "Following weights were not initialized from checkpoint:": (True, True),  # vLLM
}
_BARE_LISTS = {
    "missing keys in source state_dict:": (True, False),
    "unexpected key in source state_dict:": (False, False),
}
# the words before a key of another shape → what follows them
_MISMATCHES = {
    "size mismatch for": re.compile(
        rf"(?P<key>{_KEY}):copyingaparam(?:withshape|of){_HERE}fromcheckpoint,"
        rf"(?:theshapeincurrentmodelis|wheretheshapeis){_THERE}"
    ),
    "While copying the parameter named": re.compile(
        rf"[\"']?(?P<key>{_KEY})[\"']?,whosedimensionsinthemodelare{_THERE}andwhosedimensionsinthecheckpointare{_HERE}"
    ),
}
_MISMATCHES |= {
    # accelerate.utils.modeling.set_module_tensor_to_device, which knows the last token of the key only
    "Trying to set a tensor of shape": re.compile(rf"{_HERE}in[\"'](?P<key>{_KEY})[\"']\(whichhasshape{_THERE}\)"),
    # diffusers.models.model_loading_utils
    "Cannot load": re.compile(
        rf".{{1,600}}?because(?P<key>{_KEY})expectedshape(?:tensor\(\.\.\.,device='meta',size=)?{_THERE}\)?,butgot{_HERE}"
    ),
    # megatron/core/dist_checkpointing/strategies/torch.py (0.9 to 0.14), which prints sizes as tuples in parentheses
    "Global shape mismatch for loaded": re.compile(
        rf"\(?{_HERE}\)?andexpected\(?{_THERE}\)?tensorforkey(?P<key>[\w./]{{1,1000}})"
    ),
    "Cannot load ": re.compile(rf"(?P<key>{_KEY})becauseithasshape{_HERE}inthecheckpointbutshape{_THERE}in"),
    # fvcore.common.checkpoint, which detectron2 uses
    "Skip loading parameter": re.compile(
        rf"'(?P<key>{_KEY})'tothemodelduetoincompatibleshapes:{_HERE}inthecheckpointbut{_THERE}inthemodel"
    ),
}
_GROUPED_LISTS = {
    "Some model parameters or buffers are not found in the checkpoint:": True,
    "The checkpoint state_dict contains keys that are not used by the model:": False,
}
_GROUP = re.compile(r"\s{0,20}([\w.\-]{1,500}?\.?)(?:\{([\w, ]{1,500})\})?\s{0,20}")
_NOT_MATCHING = "because the shapes did not match:"
_WAS = re.compile(rf"-(?P<key>{_KEY}):foundshape{_HERE}inthecheckpointand{_THERE}inthemodelinstantiated")
_NAMED, _QUOTED = 3, 130  # keys of an error, and characters of a warning, that are shown
_ROW = re.compile(r"\s{0,80}(\S{1,1000})\s{0,1000}\|\s{0,20}(UNEXPECTED|MISSING|MISMATCH)\s{0,20}\|?(.{0,400})")
_IN_ROW = re.compile(rf".{{0,200}}?ckpt:{_HERE}vsmodel:{_THERE}")


def load_errors(text: PastedText) -> tuple[LoadError, ...]:
    """Return each error that the text has, in its order: what does not fit one model does not count for another.

    The same error, repeated by ranks and retries, is returned once.
    """
    found: list[LoadError] = []
    for start, end in _parts(text):
        error = _read(text.part(start, end), start)
        if error is None or any(_covers(each, error) for each in found):
            continue
        found = [each for each in found if not _covers(error, each)]
        found.append(error)
    return tuple(found)


def load_error(text: PastedText) -> LoadError | None:
    """Return the first error of the text, or None when nothing in it says that something does not fit a model."""
    return next(iter(load_errors(text)), None)


def _read(text: PastedText, offset: int) -> LoadError | None:
    found = _Found()
    readers = (_lists, _bare_lists, _grouped, _unused, _single, _stats, _mismatches, _not_matching, _report)
    for reader in readers:
        reader(text, found)
    if not found.offsets:
        return None
    return LoadError(
        tuple(found.missing),
        tuple(found.unexpected),
        tuple(found.mismatched.values()),
        found.complete and not text.left_out,
        _model_class(text),
        tuple(found.running_stats),
        not found.certain,
        offset + min(found.offsets),
        first_only=found.first_only and len(found.unexpected) == 1 and not found.missing,
    )


def _covers(one: LoadError, other: LoadError) -> bool:
    """Return whether the other is the same error again, or a copy of it that is cut short."""
    if other.model_class not in (one.model_class, ""):
        return False
    missing, unexpected, mismatched = ({*one.missing}, {*one.unexpected}, {*one.mismatched})
    less = missing.issuperset(other.missing) and unexpected.issuperset(other.unexpected)
    if not (less and mismatched.issuperset(other.mismatched)):
        return False
    named = len(missing) + len(unexpected) + len(mismatched)
    if named == len({*other.missing}) + len({*other.unexpected}) + len({*other.mismatched}):
        return one.complete or not other.complete
    return not other.complete or not other.model_class


def _parts(text: PastedText) -> list[tuple[int, int]]:
    """Return where the parts of a text begin and end that are each about one model."""
    heads = {start: found[1] for start, found in islice(_heads(text), _HEADS)}
    if len(heads) < 2:
        return [(0, len(text.squeezed))]
    starts = [*heads]
    # a warning that precedes the first header is about the same load; an error there is one of its own
    before = _read(text.part(0, starts[0]), 0)
    own = before is not None and not before.warning
    parts = [(0, starts[0])] if own else []
    name = ""
    for start, end in pairwise([starts[0] if own else 0, *starts[1:], len(text.squeezed)]):
        last, name = name, heads.get(start, heads[starts[0]])
        if last == name and _mixed(text.squeezed[start:end]):
            # ranks print at the same time: what this part has more than once belongs to the part before it as well
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    return list({text.squeezed[start:end]: (start, end) for start, end in reversed(parts)}.values())[::-1]


def _heads(text: PastedText) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield where the headers of errors are, each with the class that it names; source code names none."""
    for start, end in _all(text, _HEADER):
        named = _CLASS.match(text.squeezed, end)
        if named is not None:
            yield start, named


def _mixed(words: str) -> bool:
    """Return whether the lists are not in torch's order, each once: lines of several errors are among one another."""
    found = [each[1] or each[2] for each in _IN_ORDER.finditer(words)]
    lists = [each for each in found if each in ("Missing", "Unexpected")]
    return len({*found}) < len(found) or found[: len(lists)] != sorted(lists)


def read_keys(text: str, at: int) -> tuple[list[str], bool]:
    """Return the quoted keys that begin at ``at``, one after the other, and whether the list is complete."""
    opened = _OPEN.match(text, at)
    at = opened.end() if opened is not None else at
    keys: list[str] = []
    whole = False
    while (found := _ITEM.match(text, at)) is not None:
        keys.append(found[1])
        at = found.end()
        whole = not found[2]
    return keys, whole and not text.startswith(("…", "...", '"', "'"), at)


def _all(text: PastedText, words: str) -> Iterator[tuple[int, int]]:
    """Yield where the words begin and end."""
    wanted = squeeze(words)
    at = text.squeezed.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.squeezed.find(wanted, at + len(wanted))


def _lists(text: PastedText, found: _Found) -> None:
    for words, (missing, error) in _LISTS.items():
        for start, end in _all(text, words):
            keys, whole = read_keys(text.squeezed, end)
            _add(found, keys, missing, whole or (words.endswith("=") and not keys))
            if keys:
                found.offsets.append(start)
                found.certain = found.certain or error


def _bare_lists(text: PastedText, found: _Found) -> None:
    """Read keys without quotes, up to the end of their line (mmcv, mmengine)."""
    for words, (missing, _) in _BARE_LISTS.items():
        seen = -1
        for start, end in _all(text, words):
            number, last = text.line_at(end - 1), seen
            seen = number
            if number == last:
                continue
            rest = text.lines[number].partition("state_dict:")[2]
            keys = [key.strip() for key in rest.split(",") if key.strip()]
            _add(found, keys, missing, not rest.rstrip().endswith((",", "...", "…")))
            if keys:
                found.offsets.append(start)


def _grouped(text: PastedText, found: _Found) -> None:
    """Read a module and its leaves on each line: "layer.{bias, weight}" (fvcore 0.1, for detectron2)."""
    for words, missing in _GROUPED_LISTS.items():
        seen = -1
        for start, end in _all(text, words):
            number, last = text.line_at(end - 1), seen
            seen = number
            if number == last:
                continue
            keys: list[str] = []
            for line in islice(text.lines, number + 1, None):
                row = _GROUP.fullmatch(line) if "." in line or "{" in line else None
                if row is None:
                    break
                leaves = [leaf.strip() for leaf in row[2].split(",")] if row[2] else [""]
                keys += [f"{row[1]}{leaf}" for leaf in leaves]
            _add(found, keys, missing, bool(keys))
            if keys:
                found.offsets.append(start)


def _unused(text: PastedText, found: _Found) -> None:
    for start, end in _all(text, "were not used when initializing"):
        name = _CLASS.match(text.squeezed, end)
        keys, whole = read_keys(text.squeezed, name.end() if name else end)
        _add(found, keys, False, whole)
        if keys:
            found.offsets.append(start)


def _single(text: PastedText, found: _Found) -> None:
    """Before torch 0.4 only the first unexpected key was named."""
    for start, end in _all(text, "unexpected key"):
        named = _OLD_KEY.match(text.squeezed, end)
        if named is not None:
            _add(found, [named[1]], False, False)
            found.first_only = True
            found.offsets.append(start)
            found.certain = True


def _stats(text: PastedText, found: _Found) -> None:
    for start, end in _all(text, "Unexpected running stats buffer(s)"):
        named = _STATS.match(text.squeezed, end)
        if named is not None:
            found.running_stats.update(dict.fromkeys(named.groups()))
            _add(found, list(named.groups()), False, True)
            found.offsets.append(start)
            found.certain = True


def _mismatches(text: PastedText, found: _Found) -> None:
    for words, pattern in _MISMATCHES.items():
        for start, end in _all(text, words):
            named = pattern.match(text.squeezed, end)
            if named is not None and _mismatch(found, named, named["key"]):
                found.offsets.append(start)
                found.certain = True


def _not_matching(text: PastedText, found: _Found) -> None:
    for start, end in _all(text, _NOT_MATCHING):
        at = end
        while (named := _WAS.match(text.squeezed, at)) is not None:
            _mismatch(found, named, named["key"])
            at = named.end()
            found.offsets.append(start)


def _report(text: PastedText, found: _Found) -> None:
    """Read the table of transformers 5: one row a key."""
    if "LOADREPORT" not in text.squeezed:
        return
    for number, line in enumerate(text.lines):
        row = _ROW.match(line) if "|" in line else None
        if row is None:
            continue
        found.offsets.append(text.starts[number])
        key, status, rest = row.groups()
        if "{" in key:  # several keys in one row, abridged
            found.complete = False
        elif status == "MISMATCH":
            sizes = _IN_ROW.match(squeeze(rest))
            if sizes is not None:
                _mismatch(found, sizes, key)
        else:
            _add(found, [key], status == "MISSING", True)


def _add(found: _Found, keys: list[str], missing: bool, whole: bool) -> None:
    (found.missing if missing else found.unexpected).update(dict.fromkeys(keys))
    found.complete = found.complete and whole


def _mismatch(found: _Found, named: re.Match[str], key: str) -> bool:
    """Take the shapes of a key; not where they are the same, since then something else is wrong with it."""
    each = Pair(key, _shape(named, "here"), _shape(named, "there"))
    if each.here != each.there:
        found.mismatched[key] = each
    return each.here != each.there


def _shape(named: re.Match[str], which: str) -> Shape:
    sizes = named[which] or named[f"{which}_"] or ""
    return tuple([int(size[:18]) for size in sizes.split(",") if size])


def _model_class(text: PastedText) -> str:
    for words in (_HEADER, "were not used when initializing"):
        for _, end in _all(text, words):
            named = _CLASS.match(text.squeezed, end)
            if named is not None:
                return named[1]
    for _, end in _all(text, "Some weights of"):
        named = _NAME.match(text.squeezed, end)
        if named is not None and not named[1].startswith("themodel"):
            return named[1]
    return ""


def line_of(error: LoadError, text: PastedText) -> str:
    """Return the line of a warning, abridged."""
    line = " ".join(text.lines[text.line_at(error.offset)].split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]} …"


def words_of(error: LoadError) -> str:
    """Return the error in one line, in torch's words, abridged."""
    parts = [
        f"{name} key(s) in state_dict: {and_so_on(keys, _NAMED)}"
        for name, keys in (("Missing", error.missing), ("Unexpected", error.unexpected))
        if keys
    ]
    parts += [f"size mismatch for {each.key}" for each in error.mismatched[:1] if not parts]
    model = f"Error(s) in loading state_dict for {error.model_class}: " if error.model_class else ""
    return model + "; ".join(parts)
