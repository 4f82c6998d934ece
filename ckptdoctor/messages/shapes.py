"""What shapes that do not match mean, as far as the error alone tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from ckptdoctor.messages.cause import Cause, Repair
from ckptdoctor.messages.load_error import Mismatch, Shape
from ckptdoctor.messages.message import CHECK, Way

_VOCAB = re.compile(
    r".*(?:embed_tokens|word_embeddings|wte|tok_embeddings|embed_in|shared|lm_head|embed_out|vocab)\b.*"
)
_POSITION = re.compile(
    r".*(?:pos_embed|position_embedding|positional_embedding|relative_position|wpe|embed_positions).*"
)
_HEADS = re.compile(
    r"(?:.*\.)?(?:\w*(?:head|classifier|logits|score|cls|fc)\w*|linear|output|out|last_linear)(?:\.\d+)?"
)
_ADAPTER = re.compile(r"(?:.*\.)?lora_(?:A|B|embedding_A|embedding_B|down|up)(?:\..*)?")
_MANY = 8  # mismatches beyond which the whole model is of another size
_HEAD = 4  # tensors of a head

_SEE = Way("see what is wrong", "ckptdoctor check FILE TARGET")
_REPAIRS = {"S505": Repair.LOSS, "S506": Repair.SAFE}


def causes(mismatched: list[Mismatch]) -> Iterator[Cause]:
    """The cause of each group of shapes that do not match, the largest first."""
    groups: dict[str, list[Mismatch]] = {}
    for each in mismatched:
        groups.setdefault(_kind(each), []).append(each)
    plain = groups.pop("R003", [])
    for code, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        repair = _REPAIRS.get(code, Repair.BY_HAND)
        yield Cause(code, _MEANINGS[code].format(_shown(found[0])), repair, _ways(code, found))
    if not plain:
        return
    if _is_head(plain):
        here, there = plain[0].checkpoint[0], plain[0].model[0]
        module = plain[0].key.rpartition(".")[0]
        classes = f"the last layer is for {here:,} classes in the checkpoint and for {there:,} in the model"
        meaning = f"{classes} ({_shown(plain[0])})"
        yield Cause("S501", meaning, Repair.BY_HAND, _ways("S501", plain, module))
    elif len(plain) > _MANY:
        meaning = (
            f"{len(plain):,} tensors have other sizes ({_shown(plain[0])}, …): the model was built larger or smaller"
        )
        show = Way("build the model as it was for the file; its sizes", "ckptdoctor show FILE")
        yield Cause("S510", meaning, Repair.BY_HAND, (show,))
    else:
        differs = f"a tensor has another shape in the file than in the model ({_shown(plain[0])})"
        meaning = f"{differs}; no command changes it: build the model as it was for the file"
        yield Cause("R003", meaning, Repair.NONE, (_SEE,))


_MEANINGS = {
    "Q951": "a weight is packed to 4 bits by bitsandbytes on one side only ({}): a plain model cannot hold it",
    "L908": "an adapter's matrix has another size ({}): the rank in adapter_config.json is not the file's, or the"
    " adapter is for another base model",
    "S511": "the checkpoint holds empty placeholders ({}): DeepSpeed ZeRO-3 keeps the parameters elsewhere",
    "S502": "the vocabularies differ ({}): tokens were added, or the table was padded",
    "S503": "the position embeddings are for another length or resolution ({}); no command of ckptdoctor resizes them",
    "S504": "the first convolution expects another number of input channels ({}); no command of ckptdoctor changes it",
    "S505": "a matrix is stored the other way round ({}), as Conv1D, TensorFlow and Flax do",
    "S506": "the shapes differ only by dimensions of size one ({})",
}


def _kind(each: Mismatch) -> str:
    here, there = each.checkpoint, each.model
    if prod(here) == 0 and prod(there) != 0:
        return "S511"
    if _packed(here, there) or _packed(there, here):
        return "Q951"
    if _ADAPTER.fullmatch(each.key):
        return "L908"
    if _POSITION.fullmatch(each.key):
        return "S503"
    if _VOCAB.fullmatch(each.key) and here[1:] == there[1:] and here and there:
        return "S502"
    if [size for size in here if size != 1] == [size for size in there if size != 1]:
        return "S506"
    if len(here) == 2 and here == there[::-1]:
        return "S505"
    if len(here) == len(there) == 4 and here[1] != there[1] and here[:1] + here[2:] == there[:1] + there[2:]:
        return "S504"
    return "R003"


def _packed(here: Shape, there: Shape) -> bool:
    """Whether one is the bytes of the other in 4 bits, as bitsandbytes packs them: a column, two values a byte."""
    return len(here) == 2 and here[1] == 1 and len(there) >= 2 and 2 * here[0] == prod(there)


def _is_head(found: list[Mismatch]) -> bool:
    """Whether it is one layer, called as heads are, and only the number of its outputs differs."""
    modules = {each.key.rpartition(".")[0] for each in found}
    return len(modules) == 1 and len(found) <= _HEAD and _first_only(found) and bool(_HEADS.fullmatch(modules.pop()))


def _ways(code: str, found: list[Mismatch], module: str = "") -> tuple[Way, ...]:
    first = found[0]
    if code == "S501":
        build = Way("build the model with", f"num_classes={first.checkpoint[0]}")
        if not re.fullmatch(r"[\w.]{1,200}", module):
            return (build,)
        rest = f'{{key: value for key, value in weights.items() if not key.startswith("{module}.")}}'
        return build, Way("or train the head again", f"model.load_state_dict({rest}, strict=False)")
    if code == "S502":
        return (Way("resize the model to the file", f"model.resize_token_embeddings({first.checkpoint[0]})"),)
    if code == "S511":
        return (Way("collect them with", "python zero_to_fp32.py . weights.pt"), CHECK)
    return () if code in _REPAIRS else (_SEE,)


def _first_only(found: list[Mismatch]) -> bool:
    """Whether only the first dimension differs, and in the same way everywhere."""
    pairs = {(each.checkpoint[:1], each.model[:1]) for each in found}
    return len(pairs) == 1 and all(
        each.checkpoint and each.model and each.checkpoint[1:] == each.model[1:] for each in found
    )


def _shown(each: Mismatch) -> str:
    return f"{each.key}: {_shape(each.checkpoint)} in the file, {_shape(each.model)} in the model"


def _shape(sizes: Shape) -> str:
    return f"[{', '.join(map(str, sizes))}]"
