"""The file's checksum is not the expected one: it is not the file that was published.

Meaning
    A checksum of the file is known: its name ends in the first digits (``resnet18-f37072fd.pth``, as torch.hub and many
    model zoos name files), it is in the cache of ``huggingface_hub`` or the store of Git LFS, which name files by their
    checksum, ``huggingface_hub`` recorded it when it downloaded the file, or a list of SHA-256 or MD5 sums is next to
    it (``model.pt.sha256``, ``SHA256SUMS``, ``model.pt.md5``), or a seal of it, or of a folder that it is in, that
    ``ckptdoctor seal`` made. The bytes in the file give a different one.

Why it matters
    The download was damaged or joined from wrong parts, or it is another version under the same name. Both load
    silently, since torch never checks checksums.

Symptoms
    Nothing, or: invalid hash value (expected "f37072fd", got "…")

Detection
    ``check --deep`` reads the whole file, but only where a checksum is promised. A SHA-256 is preferred to an MD5.
    Digits that end a name may mean something else, such as a commit: then it is a warning. Eight digits without a
    letter are taken for a date. A seal that is damaged or cannot be read is a warning, since it shows nothing.

Repair
    None: delete the file first, or the cache will return it again, and then download it again. If it was sealed,
    ``ckptdoctor verify`` names the tensors that changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.values.damage import Integrity, Promise

_MODEL = {"w": T((3,))}
_SUM = b"4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
_SEAL = (
    b'{"format":"ckptdoctor seal","version":1,"algorithm":"sha256","block":1048576,"folder":false,"files":['
    b'{"name":"model.pt","size":9,"sha256":"%s","rest":"%s","regions":[]}]}' % (_SUM, _SUM)
)
MESSAGES = (
    Message(
        ("invalid hash value (expected",),
        "the file's SHA-256 is not the one in its name: the download was interrupted or altered",
        (Way("see whether it does", "ckptdoctor check --deep FILE"),),
    ),
    Message(
        # openai-whisper 20230314 to 20250625, whisper/__init__.py _download; whisperx/vad.py; OpenAI's clip/clip.py
        ("SHA256 checksum does not",),
        "the downloaded file's SHA-256 is not the one that the program expects: the download was "
        "interrupted, an error page came instead, or the file at that address is a new one, for which the "
        "program is too old",
        (Way("see what came", "ckptdoctor check FILE"), Way("then", "delete it and download it again")),
        among=("whisper", "clip", "download"),
    ),
)
SICK = (
    Example("not the file that the name claims", _MODEL, name="resnet18-f37072fd.pth", deep=True),
    Example(
        "not the file that its list names",
        _MODEL,
        name="model.pt",
        beside={"model.pt.sha256": _SUM + b"  model.pt\n"},
        deep=True,
    ),
    Example("not the file that was downloaded", _MODEL, name="blobs/" + _SUM.decode(), deep=True),
    Example(
        "not the file in its list of MD5 sums",
        _MODEL,
        name="model.pt",
        beside={"MD5SUMS": _SUM[:32] + b"  model.pt\n"},
        deep=True,
    ),
    Example("a seal that is damaged", _MODEL, name="model.pt", beside={"model.pt.seal.json": b"{"}, deep=True),
    Example("not the file that was sealed", _MODEL, name="model.pt", beside={"model.pt.seal.json": _SEAL}, deep=True),
)
HEALTHY = (
    Example("without a known checksum", _MODEL, deep=True),
    Example("a date in the name", _MODEL, name="model-20240501.pt", deep=True),
    Example(
        "a list of other files",
        _MODEL,
        name="weights.pt",
        beside={"SHA256SUMS": _SUM + b"  model.pt\n"},
        deep=True,
    ),
)


@rule("F012", "checksum-mismatch", Severity.ERROR)
def checksum_mismatch(integrity: Integrity) -> Iterator[Problem]:
    """Report another checksum than was promised, and seals that can promise nothing."""
    for each in integrity.bad_seals:
        why, _, what_next = each.partition(". ")
        yield Problem(
            message=f"its seal cannot be used: {why}",
            cause="The file was not compared with it, so nothing shows whether it is what was sealed.",
            advice=what_next,
            severity=Severity.WARNING,
        )
    promise = integrity.promise
    if promise is None or integrity.digest.startswith(promise.digits):
        return
    shown = integrity.digest[: len(promise.digits)]
    yield Problem(
        message=f"its {promise.kind} is {_short(shown)}, but {promise.by} gives {_short(promise.digits)}",
        cause=(
            "These are not the bytes that were published: the download was damaged, or it is another version."
            if promise.sure
            else "If these digits are a checksum, as torch.hub and model zoos name files, this is not that file."
        ),
        torch_says=()
        if promise.sure
        else (f'invalid hash value (expected "{promise.digits}", got "{_got(integrity)}',),
        advice=_advice(promise),
        severity=Severity.ERROR if promise.sure else Severity.WARNING,
    )


def _advice(promise: Promise) -> str:
    if promise.sealed:
        return "See what changed with ckptdoctor verify; if it was changed on purpose, seal it again."
    return "Delete it and download it again; if it was changed on purpose, give it another name."


def _short(digits: str) -> str:
    return digits if len(digits) <= 16 else f"{digits[:12]}…"


def _got(integrity: Integrity) -> str:
    return f'{integrity.digest}")'
