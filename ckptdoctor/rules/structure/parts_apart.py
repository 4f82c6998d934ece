"""The parts of one model are in dicts of their own.

Meaning
    Somebody saved ``{"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}``, or a tree of dicts with a
    tensor at each end (``{"encoder": {"weight": …}}``), as Flax and Haiku keep parameters. The target has all of them
    under names with dots: ``encoder.weight``.

Why it matters
    ``load_state_dict`` expects one flat dict. Each part loads into its own module, but none into the whole model.

Symptoms
    Missing key(s) in state_dict: "encoder.weight", "decoder.weight".
    Unexpected key(s) in state_dict: "encoder", "decoder".

Detection
    Only with a reference, with exactly its keys and shapes once the names along the path are joined by dots, and
    nothing else in the same parts. Where a second set has the keys and shapes of a part (an average, a teacher), or
    more than one dict fits, nothing is put together.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` makes one flat state dict from them. No value changes; anything else in
    the file (an epoch, an optimizer) is left out, as with ``--root``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Mapping
from ckptdoctor.edits import Fix, Flatten, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.structure.sets import BESIDE
from ckptdoctor.wording import and_so_on

_ENCODER = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
_DECODER = {"out.weight": T((4, 2))}
_WHOLE = {"encoder.fc.weight": T((2, 4)), "encoder.fc.bias": T((2,)), "decoder.out.weight": T((4, 2))}
ALSO = ("W304", "W301")
SICK = (
    Example("an encoder and a decoder for a model of both", {"encoder": _ENCODER, "decoder": _DECODER}, like=_WHOLE),
    Example("next to the training state", {"epoch": 3, "encoder": _ENCODER, "decoder": _DECODER}, like=_WHOLE),
    Example(
        "a tree of dicts",
        {"encoder": {"fc": {"weight": T((2, 4)), "bias": T((2,))}}, "decoder": {"out": {"weight": T((4, 2))}}},
        like=_WHOLE,
    ),
)
HEALTHY = (
    Example("the flat dict", _WHOLE, like=_WHOLE),
    Example("a target that is one of the parts", {"encoder": _ENCODER, "decoder": _DECODER}, like=_ENCODER),
    Example(
        "an average next to them",
        {"encoder": _ENCODER, "decoder": _DECODER, "encoder_ema": _ENCODER},
        like=_WHOLE,
    ),
)


@rule("W312", "parts-apart", Severity.ERROR)
def parts_apart(comparison: Comparison) -> Iterator[Problem]:
    """Report all parts of the target, in dicts of their own."""
    found = comparison.parts
    if found is None:
        return
    tree = comparison.checkpoint.tree
    assert isinstance(tree, Mapping)
    listed = wording.listed([f'"{name}"' for name in found.names[:4]])
    more = wording.beyond(len(found.names) - 4)
    total = len(comparison.reference.tensors)
    yield Problem(
        message=f"the parts of {comparison.reference.source} are in dicts of their own: {listed}{more}",
        cause="Joined by dots, the names along the path are those of the model, which expects one flat dict.",
        torch_says=(
            wording.missing_line([key for key, _ in found.tensors]),
            wording.unexpected_line([str(part) for part, _ in tree.entries]),
        ),
        keys=tuple([(*found.path, *place) for _, place in found.tensors]),
        location=Location(path=found.path),
        fix=Fix(
            f"put {wording.plural(total, 'tensor')} into one flat dict, by the names along the path",
            (Flatten(found.path, found.tensors),),
            Safety.CONFIRMED,
            auto_option(comparison),
        ),
    )


_NAMED = 3  # parts that a sentence names


@judges(Turn.FILE, general=1)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The first tokens of missing keys are at the top of the file: each part has a state dict of its own."""
    parts = {key.partition(".")[0] for key in rest.missing if "." in key} & rest.top
    covered = [key for key in rest.missing if key.partition(".")[0] in parts]
    if not parts or 2 * len(covered) < len(rest.missing) or len(covered) < len(parts):
        return
    meaning = (
        f"the file holds one state dict for each part of the model ({and_so_on(sorted(parts), _NAMED)}), and "
        "load_state_dict expects one for all of it"
    )
    chosen = "".join(f'"{part}", ' for part in sorted(parts))
    inner = f'{{f"{{part}}.{{key}}": value for part in ({chosen}) for key, value in weights[part].items()}}'
    ways = (Way("load it with", f"model.load_state_dict({inner})"),)
    yield Cause(meaning, Repair.BY_HAND, ways, missing=covered, unexpected=parts | (rest.top & BESIDE))
