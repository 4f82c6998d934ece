"""The token embedding has more or fewer rows than the target's: tokens were added, or the table was padded.

Meaning
    The token embedding and the output head have a row for each token. Fine-tuning with additional special tokens adds
    rows, and some trainers pad to a multiple of 64; or the tokenizer is a different one.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too. Cutting rows off blindly gives a model that produces nonsense
    wherever a cut token is used.

Symptoms
    size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([32001, 4096]) from checkpoint,
    the shape in current model is torch.Size([32000, 4096]).

Detection
    Only with a reference: a table with the name of a token embedding differs only in its rows, and everything else with
    these two sizes (``lm_head``, its bias) belongs to it. If less than half of the reference fits, W311 is reported
    instead.

Repair
    None: rows cannot be made up, and only the tokenizer shows which ones may be removed. Resize the model to the
    checkpoint (``model.resize_token_embeddings(32001)``), load, and then resize it to what you need.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch
from ckptdoctor.rules.messages import CUT, CUT_OFF, MISMATCH, SEE_SHAPES, Message, Way, Weight

_BODY = {"layers.0.fc.weight": T((4, 4)), "layers.1.fc.weight": T((4, 4)), "norm.weight": T((4,))}
MESSAGES = (
    Message(
        MISMATCH,
        f"the vocabularies of the file and of the model differ ({{key}}; {CUT_OFF}): tokens were added, or the table"
        " was padded",
        SEE_SHAPES,
        then=r"(?P<key>[\w.]{0,300}?(?:embed_tokens|word_embeddings|wte|tok_embeddings|lm_head|embed_out)[\w.]{0,80})"
        + CUT,
        also=("S510", "R003"),
        weight=Weight.ECHO,
    ),
)
SICK = (
    Example(
        "one token was added",
        {"embed_tokens.weight": T((33, 4)), **_BODY, "lm_head.weight": T((33, 4))},
        like={"embed_tokens.weight": T((32, 4)), **_BODY, "lm_head.weight": T((32, 4))},
    ),
    Example(
        "a padded table with the bias of its head",
        {"bert.embeddings.word_embeddings.weight": T((64, 4)), **_BODY, "cls.predictions.bias": T((64,))},
        like={"bert.embeddings.word_embeddings.weight": T((61, 4)), **_BODY, "cls.predictions.bias": T((61,))},
    ),
)
HEALTHY = (
    Example(
        "the same vocabulary",
        {"embed_tokens.weight": T((32, 4)), **_BODY},
        like={"embed_tokens.weight": T((32, 4)), **_BODY},
    ),
    Example(
        "more positions", {"pos_embed.weight": T((33, 4)), **_BODY}, like={"pos_embed.weight": T((32, 4)), **_BODY}
    ),
    Example("a separate head", {**_BODY, "head.weight": T((33, 4))}, like={**_BODY, "head.weight": T((32, 4))}),
    Example(
        "two tables that disagree",
        {"encoder.embed_tokens.weight": T((33, 4)), "decoder.embed_tokens.weight": T((41, 4)), **_BODY},
        like={"encoder.embed_tokens.weight": T((32, 4)), "decoder.embed_tokens.weight": T((40, 4)), **_BODY},
    ),
)

_MULTIPLES = (64, 128, 8)  # what tables are padded to
_SMALL = 40  # a difference of more than a fortieth is another tokenizer's


@rule("S502", "vocab-resize", Severity.ERROR)
def vocab_resize(comparison: Comparison) -> Iterator[Problem]:
    """Report embeddings of tokens with other rows."""
    found = shapes(comparison).vocabulary
    if found is None:
        return
    call = f"model.resize_token_embeddings({found.here})"
    advice = f"Resize the model before loading, in transformers {call}, and afterwards to the size of the tokenizer. "
    advice += "Cutting rows off instead gives nonsense wherever a cut token is used."
    yield mismatch(comparison, found.pairs, likewise(found.pairs), _cause(found.here, found.there), advice)


def _cause(here: int, there: int) -> str:
    sizes = f"The checkpoint's vocabulary has {here:,} tokens, the model's {there:,}"
    more, fewer = max(here, there), min(here, there)
    if (more - fewer) * _SMALL > more:
        return f"{sizes}: they seem to belong to different tokenizers."
    side = "the checkpoint's" if here > there else "the model's"
    for multiple in _MULTIPLES:
        if more % multiple == 0 and more - fewer < multiple:
            return f"{sizes}: {side} table seems to be padded to a multiple of {multiple}."
    return f"{sizes}: tokens were added to {side} table, or it was padded."


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Tables of tokens, and what has as many rows."""
    found = pairs_for(rest, "S502")
    if found:
        label = "resize the model to the file" + ("" if rest.error.transformers else ", in transformers with")
        resize = Way(label, f"model.resize_token_embeddings({found[0].here[0]})")
        meaning = f"the vocabularies differ ({both_shapes(found[0])}): tokens were added, or the table was padded"
        yield Cause(meaning, Repair.BY_HAND, (resize,), mismatched=[pair.key for pair in found])
