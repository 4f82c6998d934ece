"""What shapes that do not match mean, as far as the error alone tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from ckptdoctor.explain.cause import Cause
from ckptdoctor.explain.load_error import Mismatch, Shape
from ckptdoctor.rules.messages import CHECK, Way
from ckptdoctor.rules.signs import Repair

_VOCAB = re.compile(
    r".*(?:embed_tokens|word_embeddings|wte|tok_embeddings|embed_in|shared|lm_head|embed_out|vocab)\b.*"
)
_POSITION = re.compile(
    r".*(?:pos_embed|position_embedding|positional_embedding|relative_position|wpe|embed_positions).*"
)
_HEADS = re.compile(
    r"(?:.*\.)?(?:\w*(?:head|classifier|logits|score|cls|fc)\w*|linear|output|out|last_linear)(?:\.\d+)?"
)
# parts of detectors that give a number for each class: "classifier.header", "cls_branches.3", "bbox_head.0.fc_cls"
_CLASSES = re.compile(r"(?:^|[._])(?:cls|classifier|classification|logits|class_net|class_embed|cls_logits)(?:[._]|$)")
# SpatialTransformer of Stable Diffusion: convolutions in version 1, linear layers in 2 and XL
_PROJECTION = re.compile(
    r"(?:.*\.)?(?:input_blocks|output_blocks|middle_block|down_blocks|up_blocks|mid_block)\..*\.proj_(?:in|out)\.weight"
)
_ADAPTER = re.compile(r"(?:.*\.)?lora_(?:A|B|embedding_A|embedding_B|down|up)(?:\..*)?")
# layers that tensor parallelism splits, as Megatron, Meta and transformers call them
_SPLIT = re.compile(
    r"(?:.*\.)?(?:(?:self_attention|attention|self_attn|attn)\.(?:dense|query_key_value|qkv_proj|[qkvo]_proj|w[qkvo])"
    r"|(?:mlp|feed_forward)\.(?:dense_h_to_4h|dense_4h_to_h|gate_proj|up_proj|down_proj|w[123])|linear_(?:qkv|proj|fc1|fc2)"
    r"|word_embeddings|embed_tokens|tok_embeddings|lm_head|output_layer)\.(?:weight|bias)"
)
_RANKS = {2, 4, 8, 16, 32, 64}
_FEW = 3  # mismatches of several layers from which it is the whole model
_MANY = 8  # mismatches beyond which it is so, of whatever layers they are
_IMAGES = 12  # channels of what is not yet a feature: colours, masks, latents
_HEAD = 4  # tensors of a head

_SEE = Way("see what is wrong", "ckptdoctor check FILE TARGET")
_SIZES = Way("build the model as it was for the file; its sizes", "ckptdoctor show FILE")
_REPAIRS = {"S505": Repair.LOSS, "S506": Repair.SAFE}
_OF_ANOTHER = ("R003", "S503", "S504", "S506")  # kinds that another size of the model shows as, too
_CODES = {"empty model": ""}


def causes(mismatched: list[Mismatch]) -> Iterator[Cause]:
    """The cause of each group of shapes that do not match, the largest first."""
    groups: dict[str, list[Mismatch]] = {}
    for each in mismatched:
        groups.setdefault(_kind(each), []).append(each)
    plain = groups.pop("R003", [])
    vocabularies = {pair for each in groups.get("S502", []) for pair in [(each.checkpoint[0], each.model[0])]}
    tied = [each for each in plain if _differing(each) in vocabularies]  # a bias of the head, the logits' bias
    if tied:
        groups["S502"] += tied
        plain = [each for each in plain if each not in tied]
    if _is_other(plain, groups):
        plain = [each for each in mismatched if _kind(each) in _OF_ANOTHER]
        groups = {code: found for code, found in groups.items() if code not in _OF_ANOTHER}
    for code, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        repair = _REPAIRS.get(code, Repair.BY_HAND)
        yield Cause(_CODES.get(code, code), _MEANINGS[code].format(_shown(found[0])), repair, _ways(code, found))
    if plain:
        yield _of_plain(plain)


def _of_plain(plain: list[Mismatch]) -> Cause:
    """Sizes that differ in a way that no single layer explains, or in the last layer."""
    if _is_head(plain):
        here, there = plain[0].checkpoint[0], plain[0].model[0]
        module = plain[0].key.rpartition(".")[0]
        classes = f"the last layer is for {here:,} classes in the checkpoint and for {there:,} in the model"
        if len(plain[0].checkpoint) > 2:
            classes = "the layers that give a number for each class have other sizes: the numbers of classes differ"
        return Cause("S501", f"{classes} ({_shown(plain[0])})", Repair.BY_HAND, _ways("S501", plain, module))
    ranks = _ranks(plain)
    if ranks:
        meaning = (
            f"the file has 1/{ranks} of what the model wants, in one dimension ({_shown(plain[0])}), as the part of one"
            f" of {ranks} ranks of tensor parallelism has: no command makes it whole without the others'"
        )
        return Cause("S512", meaning, Repair.BY_HAND, (CHECK,))
    if _is_other(plain, {}):
        count = f"{len(plain):,} tensors have other sizes" if len(plain) > 1 else "a tensor has other sizes"
        more = ", …" * (len(plain) > 1)
        meaning = (
            f"{count} ({_shown(plain[0])}{more}): the model was built larger or smaller, or is another one; no command"
            " changes it"
        )
        return Cause("S510", meaning, Repair.BY_HAND, (_SIZES,))
    differs = f"a tensor has another shape in the file than in the model ({_shown(plain[0])})"
    meaning = f"{differs}; no command changes it: build the model as it was for the file"
    return Cause("R003", meaning, Repair.NONE, (_SEE,))


def _differing(each: Mismatch) -> tuple[int, int] | None:
    """The sizes of the only dimension that differs."""
    pairs = [pair for pair in zip(each.checkpoint, each.model, strict=False) if pair[0] != pair[1]]
    return pairs[0] if len(pairs) == 1 and len(each.checkpoint) == len(each.model) else None


def _is_other(plain: list[Mismatch], groups: dict[str, list[Mismatch]]) -> bool:
    """Whether file and model are two sizes, or two models: then what single layers would mean is none of it."""
    if not plain or _is_head(plain):
        return False
    if any(_is_width(each) for each in plain) or any(code in groups for code in _OF_ANOTHER):
        return True
    modules = {each.key.rpartition(".")[0] for each in plain}
    return len(plain) > _MANY or (len(plain) >= _FEW and len(modules) > 1)


def _is_width(each: Mismatch) -> bool:
    """Whether a table of embeddings has other columns, or a transformer in a UNet is of another Stable Diffusion."""
    if _PROJECTION.fullmatch(each.key):
        return True
    table = _VOCAB.fullmatch(each.key) or _POSITION.fullmatch(each.key)
    here, there = each.checkpoint, each.model
    return bool(table) and len(here) == len(there) >= 2 and here[-1] != there[-1]


def _ranks(plain: list[Mismatch]) -> int:
    """How many ranks the file is one of, as the shapes of split layers tell; 0 where they do not."""
    ratios = set()
    for each in plain:
        differing = _differing(each)
        if differing is None or not _SPLIT.fullmatch(each.key):
            return 0
        here, there = differing
        if not here or there % here:
            return 0
        ratios.add(there // here)
    return ratios.pop() if len(ratios) == 1 and ratios <= _RANKS else 0


_MEANINGS = {
    "Q951": "a weight is packed to 4 bits by bitsandbytes on one side only ({}): a plain model cannot hold it",
    "L908": "an adapter's matrix has another size ({}): the rank in adapter_config.json is not the file's, or the"
    " adapter is for another base model; no command changes it",
    "L909": "an adapter's matrix is for a layer of another size ({}): the adapter was made for another base model,"
    " and no command changes it",
    "N406": "the file has one flat run of numbers where the model has a matrix ({}), as FSDP keeps its parameters when"
    " they are not gathered; no command makes whole weights of this file alone",
    "empty model": "the model's parameters are empty ({}): it was made under DeepSpeed ZeRO-3, which keeps a part of"
    " each on each rank. The file is not to blame, and no command changes it",
    "S511": "the checkpoint holds empty placeholders ({}): DeepSpeed ZeRO-3 keeps the parameters in other files, beside"
    " it if the save was whole; no command makes weights of this file alone",
    "S502": "the vocabularies differ ({}): tokens were added, or the table was padded",
    "S503": "the position embeddings are for another length or resolution ({}); no command of ckptdoctor resizes them",
    "S504": "the first convolution expects another number of input channels ({}); no command of ckptdoctor changes it",
    "S505": "a matrix is stored the other way round ({}), as Conv1D, TensorFlow and Flax do",
    "S506": "the shapes differ only by dimensions of size one ({})",
}


def _kind(each: Mismatch) -> str:
    here, there = each.checkpoint, each.model
    if prod(there) == 0 and prod(here) != 0:
        return "empty model"
    if _is_placeholder(each):
        return "S511"
    if _packed(here, there) or _packed(there, here):
        return "Q951"
    if _ADAPTER.fullmatch(each.key):
        return "L908" if _is_rank(each) else "L909"
    if len(here) == 1 < len(there) and here[0] > max(there):
        return "N406"
    if _is_width(each):
        return "R003"
    if _POSITION.fullmatch(each.key):
        return "S503"
    if _VOCAB.fullmatch(each.key) and here[1:] == there[1:] and here and there:
        return "S502"
    return _of_sides(here, there)


def _of_sides(here: Shape, there: Shape) -> str:
    """Sides that were added, exchanged, or count the channels of images."""
    if [size for size in here if size != 1] == [size for size in there if size != 1]:
        return "S506"
    if len(here) == 2 and here == there[::-1]:
        return "S505"
    if len(here) == len(there) == 4 and here[:1] + here[2:] == there[:1] + there[2:]:
        return "S504" if min(here[1], there[1]) <= _IMAGES else "R003"
    return "R003"


def _is_placeholder(each: Mismatch) -> bool:
    """Whether the file has nothing there: no element, or (DeepSpeed before 0.5) one where there are many."""
    here, there = prod(each.checkpoint), prod(each.model)
    return there > 1 and (here == 0 or (each.checkpoint == (1,) and each.model != (1,) and there > _IMAGES))


def _is_rank(each: Mismatch) -> bool:
    """Whether an adapter's matrix differs in its rank only: A (down) has it as rows, B (up) as columns."""
    here, there = each.checkpoint, each.model
    first = any(name in each.key for name in ("lora_A", "lora_down", "lora_embedding_A"))
    rank, rest = (0, 1) if first else (1, 0)
    both = len(here) > 1 and len(there) > 1
    return both and here[rank] != there[rank] and here[rest] == there[rest]


def _packed(here: Shape, there: Shape) -> bool:
    """Whether one is the bytes of the other in 4 bits, as bitsandbytes packs them: a column, two values a byte."""
    return len(here) == 2 and here[1] == 1 and len(there) >= 2 and there[1] != 1 and 2 * here[0] == prod(there)


def _is_head(found: list[Mismatch]) -> bool:
    """Whether it is one layer, called as heads are, or layers for classes, and only the number of outputs differs."""
    modules = {each.key.rpartition(".")[0] for each in found}
    if not _first_only(found):
        return False
    if len(modules) == 1 and len(found) <= _HEAD and any(_HEADS.fullmatch(module) for module in modules):
        return True
    return all(_CLASSES.search(module) for module in modules)


def _ways(code: str, found: list[Mismatch], module: str = "") -> tuple[Way, ...]:
    first = found[0]
    if code == "S501" and len(first.checkpoint) != 2 and len(found[0].checkpoint) > 1:  # anchors times classes
        return (Way("build the model with as many classes as the file has; its sizes", "ckptdoctor show FILE"),)
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
    if code == "empty model":
        inside = "with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0): ..."
        return (Way("load the weights inside", inside),)
    if code == "N406":
        return (Way("save again with", "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)"), CHECK)
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
