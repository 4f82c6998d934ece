"""Keys that tell a cause by their last token."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckptdoctor.messages.message import AUTO, CHECK, COMPARE, SAFE, Way


@dataclass(frozen=True, slots=True)
class Leaves:
    """A cause that shows in keys that the model misses, keys that it does not know, or both at once."""

    code: str
    meaning: str
    ways: tuple[Way, ...]
    missing: str = ""  # a pattern of whole keys, "" for none
    unexpected: str = ""
    both: bool = False

    def is_missing(self, key: str) -> bool:
        """Whether a missing key shows it."""
        return bool(self.missing) and re.fullmatch(self.missing, key) is not None

    def is_unexpected(self, key: str) -> bool:
        """Whether an unexpected key shows it."""
        return bool(self.unexpected) and re.fullmatch(self.unexpected, key) is not None

    def enough(self, missing: list[str], unexpected: list[str]) -> bool:
        """Whether these keys are enough of a sign."""
        return bool(missing and unexpected) if self.both else bool(missing or unexpected)


def _leaf(names: str) -> str:
    return rf"(?:.*\.)?(?:{names})"


_OLD_WEIGHT_NORM, _NEW_WEIGHT_NORM = _leaf(r"\w+_[gv]"), _leaf(r"parametrizations\.\w+\.original[01]")
_OLD_SPECTRAL = _leaf(r"\w+_(?:orig|u|v)")
_NEW_SPECTRAL = _leaf(r"parametrizations\.\w+\.(?:original|0\._[uv])")
_DERIVED = _leaf(
    r"position_ids|inv_freq|rotary_emb\.\w+|freqs|freqs_cis|masked_bias|attn\.bias|relative_position_index|attn_mask"
    r"|causal_mask"
)
_NORMS = "the model's normalisation layers are of the other kind (a parametrisation since torch 2.1, hooks before it)"
_FUSED, _SPLIT = (
    _leaf(r"in_proj_weight|in_proj_bias|(?:qkv|Wqkv|c_attn|query_key_value)\.\w+"),
    _leaf(r"(?:q|k|v)(?:_proj|_proj\w*|_lin)?\.\w+|(?:query|key|value)\.\w+|to_[qkv]\.\w+"),
)

LEAVES = (
    Leaves(
        "A702",
        "the file lacks the input embeddings, most likely because they are tied to lm_head and only that name was"
        " saved: the loader may fill them with random values without a word",
        (COMPARE,),
        missing=_leaf(r"embed_tokens\.weight|wte\.weight|word_embeddings\.weight"),
    ),
    Leaves(
        "N412",
        "weight norm is spelt in two ways, and file and model do not agree: weight_g and weight_v, or parametrizations."
        f"…original0 and original1; {_NORMS}",
        (COMPARE, AUTO),
        missing=_NEW_WEIGHT_NORM,
        unexpected=_OLD_WEIGHT_NORM,
        both=True,
    ),
    Leaves(
        "N412",
        "weight norm is spelt in two ways, and file and model do not agree: parametrizations.…original0 and original1,"
        f" or weight_g and weight_v; {_NORMS}",
        (COMPARE, AUTO),
        missing=_OLD_WEIGHT_NORM,
        unexpected=_NEW_WEIGHT_NORM,
        both=True,
    ),
    Leaves(
        "N413",
        f"spectral norm is spelt in two ways, and file and model do not agree; {_NORMS}",
        (COMPARE, AUTO),
        missing=_NEW_SPECTRAL,
        unexpected=_OLD_SPECTRAL,
        both=True,
    ),
    Leaves(
        "N413",
        f"spectral norm is spelt in two ways, and file and model do not agree; {_NORMS}",
        (COMPARE, AUTO),
        missing=_OLD_SPECTRAL,
        unexpected=_NEW_SPECTRAL,
        both=True,
    ),
    Leaves(
        "N414",
        "the file names the parameters of its norms gamma and beta, as TensorFlow does; the model, weight and bias",
        (Way("repair it", r"ckptdoctor fix FILE --rename '\.gamma$=.weight' --rename '\.beta$=.bias'"),),
        missing=_leaf(r"\w*[Nn]orm\w*\.(?:weight|bias)"),
        unexpected=_leaf("gamma|beta"),
        both=True,
    ),
    Leaves(
        "S507",
        "one side keeps query, key and value in one fused tensor, the other in three; which rows are whose depends on"
        " the architecture",
        (COMPARE,),
        missing=_SPLIT,
        unexpected=_FUSED,
        both=True,
    ),
    Leaves(
        "S507",
        "one side keeps query, key and value in one fused tensor, the other in three; which rows are whose depends on"
        " the architecture",
        (COMPARE,),
        missing=_FUSED,
        unexpected=_SPLIT,
        both=True,
    ),
    Leaves(
        "S508",
        "the file keeps the gate and up projections in one fused tensor, the model in two",
        (COMPARE,),
        missing=_leaf(r"(?:gate_proj|up_proj)\.\w+"),
        unexpected=_leaf(r"(?:gate_up_proj|w13)\.\w+"),
        both=True,
    ),
    Leaves(
        "N420",
        "a profiler (thop) has left its counters in the model before it was saved",
        (SAFE,),
        unexpected=_leaf("total_ops|total_params"),
    ),
    Leaves(
        "N416",
        "the file lacks num_batches_tracked, a counter that BatchNorm has since torch 0.4.1 and that inference does"
        " not need",
        (Way("load it with", "model.load_state_dict(weights, strict=False)  # and look at what it returns"), AUTO),
        missing=_leaf("num_batches_tracked"),
    ),
    Leaves(
        "N417",
        "the file has num_batches_tracked, a counter of BatchNorm that the model's layers do not keep",
        (Way("leave it out", "ckptdoctor fix FILE --drop '*num_batches_tracked'"),),
        unexpected=_leaf("num_batches_tracked"),
    ),
    Leaves(
        "N421",
        "Transformer Engine keeps an _extra_state beside the weights, and only one side has it",
        (COMPARE, AUTO),
        missing=_leaf("_extra_state"),
        unexpected=_leaf("_extra_state"),
    ),
    Leaves(
        "Q951",
        "the weights are packed to 4 bits by bitsandbytes; a plain model cannot hold them, and strict=False would load"
        " nonsense",
        (CHECK,),
        unexpected=r".*\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*)",
    ),
    Leaves(
        "Q952",
        "the weights are 8-bit integers of bitsandbytes; a plain model cannot hold them",
        (CHECK,),
        unexpected=_leaf("SCB|weight_format"),
    ),
    Leaves(
        "Q953",
        "the weights are packed by GPTQ or AWQ; a plain model cannot hold them",
        (CHECK,),
        missing=_leaf("qweight|qzeros|g_idx"),
        unexpected=_leaf("qweight|qzeros|g_idx"),
    ),
    Leaves(
        "Q954",
        "one side is quantised by torch itself (scale, zero_point, packed parameters), the other is not",
        (CHECK,),
        missing=_leaf(r"_packed_params\.\w+|zero_point"),
        unexpected=_leaf(r"_packed_params\.\w+|zero_point"),
    ),
    Leaves(
        "Q955",
        "the file has the observers of quantisation-aware training, which a float model has not",
        (CHECK,),
        unexpected=_leaf(r"activation_post_process\.\w+|fake_quant_enabled|observer_enabled"),
    ),
    Leaves(
        "Q956",
        "the weights are float8 with scales of their own; a plain cast would lose the scales",
        (CHECK,),
        unexpected=_leaf("weight_scale|weight_scale_inv|input_scale"),
    ),
    Leaves(
        "L906",
        "the file was saved from a model with LoRA layers in it (PEFT): adapter and base are not merged",
        (Way("before saving", "model = model.merge_and_unload()"), CHECK),
        unexpected=r".*(?:\.base_layer\.|lora_[AB]\.).*",
    ),
    Leaves(
        "N419",
        "buffers that the model can compute by itself (positions, rotary frequencies, masks) are saved by some versions"
        " of a library and not by others",
        (COMPARE, AUTO),
        missing=_DERIVED,
        unexpected=_DERIVED,
    ),
    Leaves(
        "N422",
        "the file also holds what only training needs: a loss, a metric, a teacher",
        (COMPARE, AUTO),
        unexpected=r"(?:criterion|loss|loss_fn|metric|metrics|train_metrics|val_metrics|teacher|lpips)\..*",
    ),
)
