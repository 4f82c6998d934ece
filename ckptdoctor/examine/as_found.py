"""An explanation is made more exact by the file: where a message may mean several things, what check finds is meant."""

from __future__ import annotations

import json
import re

from ckptdoctor.checkpoint import Checkpoint, Role
from ckptdoctor.explaining.explanation import Confirmation, Explanation
from ckptdoctor.explaining.recognise import Hit
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.noun import replace
from ckptdoctor.rules.messages import CHECK, Way
from ckptdoctor.rules.structure.odd_leaves import class_of, numbered

# rules of what torch rejects in a pickle: its message is the same, and names no more than a class
_REJECTED = frozenset({"P201", "P202", "P203", "P204", "P205"})
_GLOBAL = re.compile(r"GLOBAL\s{0,4}([\w.<>]{1,300})")
_NOT_A_DICT = re.compile(r"Expected state_dict to be dict-like, got <class '([\w.]{1,100})'")


def as_found(explained: Explanation, verdict: Confirmation, report: FileReport) -> tuple[Explanation, Confirmation]:
    """Return the explanation and its verdict as the file has them, where it shows which of several causes is meant."""
    root, checkpoint = explained.hits[0], report.checkpoint
    if checkpoint is None:
        return explained, verdict
    if root.code in _REJECTED:
        found = _meant(root, report)
        if found is not None:
            why = f"check finds {found.code} in {report.path}: {found.message}"
            return _with_root(explained, _rejected(root, found)), Confirmation(True, why)
    named = _NOT_A_DICT.search(root.words)
    if named is not None and verdict.confirmed is None and class_of(checkpoint.tree) == named[1]:
        return explained, Confirmation(True, f"{report.path} holds a {named[1]}, not a dict")
    if root.code == "W309" and not verdict.confirmed and numbered(checkpoint):
        return explained, Confirmation(True, f"{report.path} holds its tensors under numbers, not under names")
    key = _optimizer(checkpoint) if "param_groups" in root.words and root.code == "O753" else ""
    if key:
        meaning = (
            f"the loaded state has no param_groups: it is the whole checkpoint, which has its optimizer under {key}"
        )
        way = Way("load it with", f"optimizer.load_state_dict(torch.load(path)[{key}])")
        why = f"{report.path} has the state of an optimizer under {key}"
        return _with_root(explained, replace(root, meaning=meaning, ways=(way,))), Confirmation(True, why)
    return explained, verdict


def _with_root(explained: Explanation, root: Hit) -> Explanation:
    others = tuple([each for each in explained.hits[1:] if each.code != root.code])
    return replace(explained, hits=(root, *others))


def _meant(root: Hit, report: FileReport) -> Finding | None:
    """Return the finding about the class that the message names; else the first of the rules that it may mean."""
    found = [each for each in report.findings if each.code in _REJECTED and each.code in (root.code, *root.also)]
    named = _GLOBAL.search(root.words)
    about = [each for each in found if named is not None and any(named[1] in line for line in each.torch_says)]
    exact = [each for each in found if each.code == root.code]
    return next(iter(about or exact or found), None)


def _rejected(root: Hit, found: Finding) -> Hit:
    """Return the cause that was found, with the repair that it has, or with what to do where it has none."""
    meaning = root.meaning if found.code == root.code else f"{found.message}. {found.cause.rstrip('.')}"
    also = tuple([code for code in (root.code, *root.also) if code != found.code])
    if found.fix is not None:
        ways: tuple[Way, ...] = (Way("repair it", " ".join(("ckptdoctor fix FILE", *found.fix.options))),)
    else:
        meaning, ways = f"{meaning}. {found.advice.rstrip('.')}" if found.advice else meaning, (CHECK,)
    return replace(root, code=found.code, meaning=meaning, ways=ways, also=also)


def _optimizer(checkpoint: Checkpoint) -> str:
    """Return the key of the only optimizer at the top of the file, quoted as Python does; "" for none."""
    places = [each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    return json.dumps(places[0][0]) if len(places) == 1 and len(places[0]) == 1 else ""
