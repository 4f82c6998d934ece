"""Shapes that do not match, in a text that is cut off before it tells them: the key alone says what they are of."""

from __future__ import annotations

from ckptdoctor.explain.message import Message, Way, Weight

# torch.nn.modules.module.Module._load_from_state_dict, torch 0.4 to 2.13
_SAYS = ("size mismatch for",)
_CUT = (
    r":copyingaparam(?!withshapetorch\.Size\(\[[\d,]{0,200}\]\)fromcheckpoint,"
    r"theshapeincurrentmodelistorch\.Size\(\[[\d,]{0,200}\]\))"
)
_SEE = (Way("see the shapes", "ckptdoctor check FILE --model MODULE:CLASS"),)
_CUT_OFF = "the text is cut off before the shapes"

MESSAGES = (
    Message(
        "S502",
        _SAYS,
        f"the vocabularies of the file and of the model differ ({{key}}; {_CUT_OFF}): tokens were added, or the table"
        " was padded",
        _SEE,
        then=r"(?P<key>[\w.]{0,300}?(?:embed_tokens|word_embeddings|wte|tok_embeddings|lm_head|embed_out)[\w.]{0,80})"
        + _CUT,
        also=("S510", "R003"),
        weight=Weight.ECHO,
    ),
    Message(
        "S501",
        _SAYS,
        f"the last layer is for another number of classes ({{key}}; {_CUT_OFF})",
        _SEE,
        then=r"(?P<key>(?:[\w.]{0,300}?\.)?(?:head|classifier|cls_head|fc_cls|heads)(?:\.[\w.]{1,80})?\."
        r"(?:weight|bias))" + _CUT,
        also=("S510", "R003"),
        weight=Weight.ECHO,
    ),
    Message(
        "R003",
        _SAYS,
        f"a tensor has another shape in the file than in the model ({{key}}; {_CUT_OFF})",
        _SEE,
        then=r"(?P<key>[\w.]{1,400})" + _CUT,
        also=("S510", "S501", "S502", "S503"),
        weight=Weight.ECHO,
    ),
)
