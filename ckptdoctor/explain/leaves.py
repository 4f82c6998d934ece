"""Keys that tell a cause by their last token."""

from __future__ import annotations

import re

from ckptdoctor.explain.cause import Repair
from ckptdoctor.noun import noun
from ckptdoctor.rules.messages import CHECK, Way


@noun
class Leaves:
    """A cause that shows in keys that the model misses, keys that it does not know, or both at once."""

    code: str
    meaning: str
    repair: Repair = Repair.NONE
    ways: tuple[Way, ...] = ()
    missing: str = ""  # a pattern of whole keys, "" for none
    unexpected: str = ""
    both: bool = False
    without: bool = False  # the model does without what is missing
    lonely: bool = False  # only keys of layers whose other keys fit
    beside: tuple[str, ...] = ()  # leaves of which the same layer must have one in the list

    def among_missing(self, keys: list[str]) -> list[str]:
        """The missing keys that show it."""
        return self._among(keys, self.missing)

    def among_unexpected(self, keys: list[str]) -> list[str]:
        """The unexpected keys that show it."""
        return self._among(keys, self.unexpected)

    def _among(self, keys: list[str], pattern: str) -> list[str]:
        if not pattern:
            return []
        found = [key for key in keys if re.fullmatch(pattern, key) is not None]
        if self.beside:
            there = set(keys)
            found = [key for key in found if any(f"{key.rpartition('.')[0]}.{leaf}" in there for leaf in self.beside)]
        if not self.lonely:
            return found
        others = {key.rpartition(".")[0] for key in set(keys).difference(found)}
        return [key for key in found if key.rpartition(".")[0] not in others]

    def enough(self, missing: list[str], unexpected: list[str]) -> bool:
        """Whether these keys are enough of a sign."""
        return bool(missing and unexpected) if self.both else bool(missing or unexpected)


def _leaf(names: str) -> str:
    return rf"(?:.*\.)?(?:{names})"


_DERIVED = _leaf(
    r"position_ids|inv_freq|rotary_emb\.\w+|freqs|freqs_cis|masked_bias|attn\.bias|relative_position_index|attn_mask"
    r"|causal_mask"
)
_FUSED, _SPLIT = (
    _leaf(r"in_proj_weight|in_proj_bias|(?:qkv|Wqkv|c_attn|query_key_value)\.\w+"),
    _leaf(r"(?:q|k|v)(?:_proj|_proj\w*|_lin)?\.\w+|(?:query|key|value)\.\w+|to_[qkv]\.\w+"),
)

FUSED = (
    Leaves(
        "S507",
        "one side keeps query, key and value in one fused tensor, the other in three; which rows are whose depends on"
        " the architecture, and no command knows it unless it is told",
        Repair.BY_HAND,
        (Way("where you know it", "ckptdoctor fix FILE --auto --model MODULE:CLASS --qkv-layout LAYOUT"),),
        missing=_SPLIT,
        unexpected=_FUSED,
        both=True,
    ),
    Leaves(
        "S507",
        "one side keeps query, key and value in one fused tensor, the other in three; which rows are whose depends on"
        " the architecture, and no command knows it unless it is told",
        Repair.BY_HAND,
        (Way("where you know it", "ckptdoctor fix FILE --auto --model MODULE:CLASS --qkv-layout LAYOUT"),),
        missing=_FUSED,
        unexpected=_SPLIT,
        both=True,
    ),
    Leaves(
        "S508",
        "the file keeps the gate and up projections in one fused tensor, the model in two",
        Repair.BY_HAND,
        (Way("split it", "ckptdoctor fix FILE --auto --model MODULE:CLASS --unsafe-fixes"),),
        missing=_leaf(r"(?:gate_proj|up_proj)\.\w+"),
        unexpected=_leaf(r"(?:gate_up_proj|w13)\.\w+"),
        both=True,
    ),
)
LEAVES = (
    Leaves(
        "N420",
        "a profiler (thop) has left its counters in the model before it was saved",
        Repair.LOSS,
        unexpected=_leaf("total_ops|total_params"),
    ),
    Leaves(
        "N416",
        "the file lacks num_batches_tracked, a counter that BatchNorm has since torch 0.4.1 and that inference does"
        " not need",
        Repair.SAFE,
        missing=_leaf("num_batches_tracked"),
        lonely=True,
    ),
    Leaves(
        "N417",
        "the file has num_batches_tracked, a counter of BatchNorm that the model's layers do not keep",
        Repair.LOSS,
        unexpected=_leaf("num_batches_tracked"),
        lonely=True,
    ),
    Leaves(
        "N421",
        "Transformer Engine keeps an _extra_state beside the weights, and only one side has it",
        Repair.SAFE,
        missing=_leaf("_extra_state"),
        unexpected=_leaf("_extra_state"),
        without=True,
    ),
    Leaves(
        "Q951",
        "the weights are packed to 4 bits by bitsandbytes; a plain model cannot hold them, and strict=False would load"
        " nonsense",
        Repair.NONE,
        (CHECK,),
        unexpected=r".*\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*)",
    ),
    Leaves(
        "Q952",
        "the weights are 8-bit integers of bitsandbytes; a plain model cannot hold them",
        Repair.NONE,
        (CHECK,),
        unexpected=_leaf("SCB|weight_format"),
    ),
    Leaves(
        "Q953",
        "the weights are packed by GPTQ or AWQ; a plain model cannot hold them",
        Repair.NONE,
        (CHECK,),
        unexpected=_leaf("qweight|qzeros|g_idx|quant_weight"),
    ),
    Leaves(
        "Q953",
        "the model was built for weights packed by GPTQ or AWQ, and the file lacks what belongs to them: it is not"
        " quantised, or by another version of the program, which names them in another way; no command packs weights",
        Repair.NONE,
        (CHECK,),
        missing=_leaf("qweight|qzeros|g_idx|quant_weight|scales|zeros"),
        beside=("qweight", "qzeros", "g_idx", "quant_weight"),
    ),
    Leaves(
        "Q954",
        "one side is quantised by torch itself (scale, zero_point, packed parameters), the other is not",
        Repair.NONE,
        (CHECK,),
        missing=_leaf(r"_packed_params\.\w+|_packed_params"),
        unexpected=_leaf(r"_packed_params\.\w+|_packed_params"),
    ),
    Leaves(
        "Q954",
        "one side is quantised by torch itself (scale, zero_point, packed parameters), the other is not",
        Repair.NONE,
        (CHECK,),
        missing=_leaf("zero_point"),
        unexpected=_leaf("zero_point"),
        beside=("scale",),
    ),
    Leaves(
        "Q956",
        "the model was built for weights of 8 bits (int8_weight, with a scale), and the file does not hold them: it is"
        " not quantised, or in another way; no command makes them",
        Repair.NONE,
        (CHECK,),
        missing=_leaf("int8_weight|scale"),
        beside=("int8_weight",),
    ),
    Leaves(
        "Q955",
        "the file has the observers of quantisation-aware training, which a float model has not",
        Repair.NONE,
        (CHECK,),
        unexpected=_leaf(
            r"activation_post_process\.\w+|fake_quant_enabled|observer_enabled"
            r"|_?(?:input|output|weight|act|activation)_quantizer(?:_\w+)?\.\w+"
        ),
    ),
    Leaves(
        "Q956",
        "the weights are float8 with scales of their own; a plain cast would lose the scales",
        Repair.NONE,
        (CHECK,),
        unexpected=_leaf("weight_scale|weight_scale_inv|input_scale"),
    ),
    Leaves(
        "L906",
        "the file was saved from a model with LoRA layers in it (PEFT): adapter and base lie side by side, and are not"
        " merged",
        Repair.BY_HAND,
        (
            Way(
                "merge them, with the settings of the adapter",
                "ckptdoctor fix FILE --merge-adapter adapter_config.json",
            ),
            Way("or in the model that was saved", "model = model.merge_and_unload()"),
        ),
        unexpected=r".*(?:\.base_layer\.|lora_[AB]\.).*",
    ),
    Leaves(
        "L906",
        "the model has LoRA layers in it (PEFT, which calls the weights under them base_layer), and the file lacks"
        " these weights: it holds the adapter alone, or the base model alone, or was saved by PEFT before 0.6."
        " Of an adapter alone no command makes a whole model: that takes its base, too",
        Repair.BY_HAND,
        (
            Way("see which of them the file is", "ckptdoctor check FILE"),
            Way("if it is an adapter", "peft.PeftModel.from_pretrained(model, FOLDER)"),
        ),
        missing=r"(?:.*\.)?base_layer\..*",
    ),
    Leaves(
        "N419",
        "buffers that the model can compute by itself (positions, rotary frequencies, masks) are saved by some versions"
        " of a library and not by others",
        Repair.LOSS,
        missing=_DERIVED,
        unexpected=_DERIVED,
        without=True,
    ),
    Leaves(
        # mmcv 1.x runner/hooks/ema.py: register_buffer(f"ema_{name.replace('.', '_')}")
        "N411",
        "the file also holds averaged weights, as mmcv's EMAHook keeps them beside the others (ema_…, with underscores"
        " for dots), and the model has no such hook",
        Repair.BY_HAND,
        (Way("load the others with", "model.load_state_dict(weights, strict=False)  # and look at what it returns"),),
        unexpected=r"ema_\w+_(?:weight|bias|running_mean|running_var|num_batches_tracked)",
    ),
    Leaves(
        "N422",
        "the file also holds what only training needs: a loss, a metric, a teacher",
        Repair.SAFE,
        unexpected=r"(?:criterion|loss|loss_fn|metric|metrics|train_metrics|val_metrics|teacher|lpips)\..*",
    ),
)
