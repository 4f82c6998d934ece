"""The file has another checksum than it is said to have: it is not the file that was published.

What it means
    A checksum of the file is known: its name ends in the first digits (``resnet18-f37072fd.pth``, as torch.hub and many
    model zoos name files), it lies in the cache of ``huggingface_hub`` or the store of Git LFS, which name files by
    their checksum, ``huggingface_hub`` noted it when it downloaded the file, or a list of SHA-256 or MD5 sums lies
    beside it (``model.pt.sha256``, ``SHA256SUMS``, ``model.pt.md5``), or a seal that ``ckptdoctor seal`` made. The
    bytes in the file give another.

Why it matters
    The download was damaged or joined from wrong parts, or it is another version under the same name. Both load without
    a word, as torch never looks at checksums.

What you see
    Nothing, or: invalid hash value (expected "f37072fd", got "…")

How it is found
    ``check --deep`` reads the whole file, but only where a checksum is promised. A SHA-256 goes before an MD5. Digits
    that end a name may mean something else, such as a commit: then it is a warning. Eight digits without a letter are
    taken for a date.

Repair
    None: download the file again, and delete this one first, or the cache will give it to you again. If it was sealed,
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
        "the file has another SHA-256 than its name promises: the download broke off or was changed",
        (Way("see whether it does", "ckptdoctor check --deep FILE"),),
    ),
    Message(
        # openai-whisper 20230314 to 20250625, whisper/__init__.py _download; whisperx/vad.py; OpenAI's clip/clip.py
        ("SHA256 checksum does not",),
        "the downloaded file has another SHA-256 than the program knows for it: the download broke off, a page of an"
        " error came instead, or the file at that address is a new one, for which the program is too old",
        (Way("see what came", "ckptdoctor check FILE"), Way("then", "delete it and download it again")),
        among=("whisper", "clip", "download"),
    ),
)
SICK = (
    Example("another file than the name says", _MODEL, name="resnet18-f37072fd.pth", deep=True),
    Example(
        "another file than its list says",
        _MODEL,
        name="model.pt",
        beside={"model.pt.sha256": _SUM + b"  model.pt\n"},
        deep=True,
    ),
    Example("another file than was downloaded", _MODEL, name="blobs/" + _SUM.decode(), deep=True),
    Example(
        "another file than its list of MD5 sums says",
        _MODEL,
        name="model.pt",
        beside={"MD5SUMS": _SUM[:32] + b"  model.pt\n"},
        deep=True,
    ),
    Example("another file than was sealed", _MODEL, name="model.pt", beside={"model.pt.seal.json": _SEAL}, deep=True),
)
HEALTHY = (
    Example("no checksum is known", _MODEL, deep=True),
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
    """Report another checksum than was promised."""
    promise = integrity.promise
    if promise is None or integrity.digest.startswith(promise.digits):
        return
    shown = integrity.digest[: len(promise.digits)]
    yield Problem(
        message=f"its {promise.kind} is {_short(shown)}, but {promise.by} says {_short(promise.digits)}",
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
    return "Delete it and download it again; where it was changed on purpose, give it another name."


def _short(digits: str) -> str:
    return digits if len(digits) <= 16 else f"{digits[:12]}…"


def _got(integrity: Integrity) -> str:
    return f'{integrity.digest}")'
