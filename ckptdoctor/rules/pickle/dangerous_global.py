"""The file names functions that can run commands when it is loaded with ``weights_only=False``.

Meaning
    A pickle is a program: loading it calls what it names. This one names something that starts processes, runs code,
    opens files or reaches any other function (``os.system``, ``builtins.eval``, ``builtins.getattr`` …). No checkpoint
    needs that.

Why it matters
    Whoever loads it with ``weights_only=False``, or with a torch before 2.6, runs whatever its author put there.

Symptoms
    Trying to load unsupported GLOBAL posix.system whose module posix is blocked.
    Unsupported global: GLOBAL getattr was not an allowed global by default.

Detection
    Every name in the pickle, used or not, is compared with lists of exact modules and names; names with dots are
    followed part by part. Nothing is imported. A file that is not reported here is not proven harmless: only
    ``weights_only=True`` keeps a pickle from calling other code.

    Every place from which a program might unpickle is searched: the pickle of the contents, up to the break if it
    breaks off, since a loader makes those calls before it fails; pickles after the end of another one, in its strings
    and bytes (in Base64 too), and in other records of an archive; the ``.metadata`` of a distributed checkpoint, and
    every file in the folder of a checkpoint; NumPy's arrays of objects, which ``numpy.load(allow_pickle=True)`` loads.
    In object arrays, ``.metadata`` and strings, which nothing protects, any name that is not provably harmless is a
    warning.

Repair
    None: do not load it. Get the weights from a source you trust, in safetensors if you can. ``builtins.getattr`` also
    comes from honest pickles of bound methods: check the value at the named key. Where it only looks up members of
    enums and classes within classes, it is P201.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, GlobalName, Lying
from ckptdoctor.facts.globals import (
    BlockedCause,
    blocked_by,
    dangerous,
    is_dangerous,
    is_harmless,
    modern,
    of_numpy,
    only_looks_up,
    outermost,
)
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import MOST
from ckptdoctor.rules.messages import NOT_ALLOWED, Message, Way
from ckptdoctor.rules.when import any_of, pickles_aside, unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
_CALL = b"cos\nsystem\n(S'echo hello'\ntR"


def _acts(groups: dict[str, str]) -> bool:
    """Return whether it is a function that acts; torch leaves out the name of the module ``builtins``."""
    module, _, name = groups["global"].rpartition(".")
    return is_dangerous(module or "builtins", name)


MESSAGES = (
    Message(
        ("Trying to load unsupported GLOBAL",),
        "the file asks for {global}, a function that no checkpoint needs and that could do anything to your "
        "machine. Do not work around this error",
        (Way("see what it asks for", "ckptdoctor check FILE"),),
        then=r"(?P<global>[\w.]{1,300}?)whosemodule[\w.]{1,100}isblocked",
    ),
    Message(
        ("GLOBAL",),
        "the file asks for {global}, a function that no checkpoint needs and that could do anything to your "
        "machine. Do not work around this error",
        (Way("see what it asks for", "ckptdoctor check FILE"),),
        then=NOT_ALLOWED,
        also=("P201",),
        holds=_acts,
    ),
    Message(
        ("GLOBAL getattr",),
        "the file looks something up with getattr: members of an enum, as Python 3.11.0 to 3.11.3 saves them, or a "
        "function that could do anything to your machine. Do not allow it in either case",
        (Way("see which", "ckptdoctor check FILE"),),
        then="wasnotanallowed",
        also=("P201",),
        general=-1,
    ),
)
SICK = (
    Example("a shell command", {"model": _WEIGHTS, "extra": Obj("os.system", arguments=("echo hello",))}),
    Example("code as text", {"model": _WEIGHTS, "extra": Obj("builtins.eval", arguments=("1 + 1",))}),
    Example("a call before a break", raw=b"\x80\2" + _CALL + b"\xff", suffix=".pkl"),
    Example("a pickle after the end of another one", raw=b"\x80\2}." + _CALL + b".", suffix=".pkl"),
    Example("a pickle in bytes", {"model": _WEIGHTS, "blob": b"\x80\2" + _CALL + b"."}),
)
HEALTHY = (Example("the names as text", {"model": _WEIGHTS, "extra": ["os.system", "builtins.eval"]}),)


@rule("P206", "dangerous-global", Severity.ERROR, when=any_of(pickles_aside, unusual_names))
def dangerous_global(subject: Container | Checkpoint) -> Iterator[Problem]:
    """Report names that can run code."""
    if isinstance(subject, Checkpoint):
        yield from _named(subject)
    told = [(aside, *worth_a_word(aside)) for aside in subject.asides]
    told = [each for each in told if each[1]]
    for aside, names, runs in told[:MOST]:
        yield _aside(aside, names, runs)
    rest = told[MOST:]
    if rest:
        aside, names, runs = max(rest, key=lambda each: each[2])
        more = wording.plural(len(rest), "more pickle")
        yield replace(_aside(aside, names, runs), message=f"{more} of this kind, the first: {_sentence(aside, names)}")


def _named(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Yield the names in the pickles of the contents."""
    found = blocked_by(checkpoint, BlockedCause.DANGEROUS)
    how = "allow_pickle=True" if of_numpy(checkpoint) else "weights_only=False"
    if found:
        places = outermost(found)
        where = f" ({refused.listed_places(places)})" if places else ""
        yield Problem(
            message=f"{_holders(checkpoint)} {refused.classes(found)}{where}: with {how} it can run commands",
            cause=f"No checkpoint needs this. Loading it with {how} runs whatever its author put there.",
            torch_says=() if of_numpy(checkpoint) else refused.refusal_lines(found),
            advice=f"Do not load it with {how}. {_TRUSTED}",
            keys=tuple([place.path for place in places]),
            location=refused.first_use(found),
        )
    strange = unknown(checkpoint.globals) if of_numpy(checkpoint) else []
    if strange:
        first = checkpoint.globals[0]
        yield Problem(
            message=f"an array of objects names {refused.listed_names(strange)}: numpy.load calls it with "
            "allow_pickle=True",
            cause=_UNKNOWN,
            advice="Load it with allow_pickle=True only if you trust whoever wrote it.",
            location=Location(member=first.member or None, offset=first.offset),
            severity=Severity.WARNING,
        )


def _holders(checkpoint: Checkpoint) -> str:
    """Return the file that names them; of a folder each that does, without the records in it."""
    if not os.path.isdir(checkpoint.path):
        return "the file names"
    members = [each.member for each in checkpoint.globals if dangerous([each])]
    files = list(dict.fromkeys([_file(checkpoint.path, member) for member in members]))
    return f"{wording.abridged(files)} {'names' if len(files) == 1 else 'name'}"


def _file(folder: str, member: str) -> str:
    """Return the file of a folder that a record is in: ``a.bin`` of ``a.bin/archive/data.pkl``."""
    while "/" in member and not os.path.isfile(os.path.join(folder, member)):
        member = member.rpartition("/")[0]
    return member


def _aside(aside: Aside, names: list[str], runs: bool) -> Problem:
    return Problem(
        message=_sentence(aside, names),
        cause=_RUNS if runs else _UNKNOWN,
        advice=f"Do not load it. {_TRUSTED}" if runs else "Unpickle it only if you trust whoever wrote it.",
        location=Location(member=aside.member or None, offset=aside.offset),
        severity=None if runs else Severity.WARNING,
    )


def _sentence(aside: Aside, names: list[str]) -> str:
    """Return what the pickle is, what it names, and when that is called."""
    where, at, named = aside.member or "the file", f"byte {aside.offset:,}", refused.listed_names(names)
    if aside.lying is Lying.BROKEN:
        return f"{where} names {named} and then breaks off at {at}: a loader can call it before it fails"
    if aside.lying is Lying.BEHIND:
        return f"{where} has another pickle after the end of the first, at {at}, which names {named}"
    if aside.lying is Lying.INSIDE:
        return f"{where} has a string at {at} that is a pickle itself and names {named}: unpickling the string calls it"
    if aside.lying is Lying.INDEX:
        return f"{where} names {named}: torch.distributed.checkpoint loads it with pickle.load, which calls it"
    return f"{where} names {named}: with weights_only=False it can run commands"


_RUNS = "No checkpoint needs this. Any program that unpickles it runs whatever its author put there."
_UNKNOWN = "It may be harmful: unpickling imports it and calls it, whatever it does."
_TRUSTED = "Get the weights from a source you trust, in safetensors."


# what is loaded without the protection of weights_only: a name that nobody knows is worth a word
_UNPROTECTED = (Lying.INSIDE, Lying.INDEX)


def unknown(names: Iterable[GlobalName]) -> list[str]:
    """Return those that are neither dangerous nor known to be harmless, the same way."""
    found = [modern(each.module, each.name) for each in names if not only_looks_up(each)]
    strange = [each for each in found if not is_dangerous(*each) and not is_harmless(*each)]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in strange]))


def worth_a_word(aside: Aside) -> tuple[list[str], bool]:
    """Return what of its names has to be told, and whether that can run code.

    Where none does, those that nobody knows are told.
    """
    found = dangerous(aside.names)
    if found:
        return found, True
    return (unknown(aside.names) if aside.lying in _UNPROTECTED else []), False
