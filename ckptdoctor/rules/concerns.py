"""Which files a rule may have something to say about, told before the rule is imported.

Importing all rules takes as long as the rest of a check of a small file, and most of them speak of what most files do
not have. Each condition holds wherever its rule finds something in a file by its headers alone; it may well hold where
the rule finds nothing. A rule that reads both a container and a checkpoint stands in both tables; what speaks of a
reference, of values or of all bytes only, stands in none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Container, Role, Tensor, show_path
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts import marks, outline
from ckptdoctor.facts.cut import ends_of_names
from ckptdoctor.facts.names import mentions
from ckptdoctor.facts.once import once
from ckptdoctor.facts.protocols import first_value, pickle_protocol
from ckptdoctor.facts.siblings import folder_of
from ckptdoctor.facts.sparse_files import is_sparse

OfContainer = Callable[[Container], bool]
OfCheckpoint = Callable[[Checkpoint], bool]

# ---- of the outside

_USUAL = ("torch zip", "torch legacy", "safetensors")  # formats that torch and safetensors write and read
_DEFAULT_PROTOCOL = 2  # of pickles, in torch.save


def _always(subject: Container | Checkpoint) -> bool:
    return True


def _noticed(subject: Container | Checkpoint) -> bool:
    """The reader noticed something."""
    return bool(subject.notes)


def _aside(subject: Container | Checkpoint) -> bool:
    """There are pickles besides those of the contents."""
    return bool(subject.asides)


def _unusual(container: Container) -> bool:
    return container.format not in _USUAL


def _long_header(container: Container) -> bool:
    """What may be a safetensors header: the length comes first."""
    return container.head[8:10] in (b'{"', b"{ ") and any(container.head[3:8])


def _unaligned(container: Container) -> bool:
    start = first_value(container)
    return start is not None and start % (64 if container.format == "torch zip" else 8) != 0


def _for_triton(container: Container) -> bool:
    return os.path.basename(container.path) == "model.pt"


OUTSIDE: dict[str, OfContainer] = {
    **dict.fromkeys(
        (
            *("container.archive_wrapped_checkpoint", "container.big_endian_storage"),
            *("container.extension_format_mismatch", "container.reader_too_old", "container.safetensors_bad_offsets"),
            *("container.safetensors_invalid_header", "file.crc_mismatch", "file.damaged_contents"),
            *("file.duplicate_key", "file.empty_file", "file.git_lfs_pointer", "file.html_error_page"),
            *("file.impossible_tensor", "file.replaced_values", "file.storage_size_mismatch", "file.text_error_body"),
            "file.trailing_bytes",
            *("file.truncated_legacy", "file.truncated_safetensors", "file.truncated_zip", "file.zero_filled_region"),
            *("pickle.ambiguous_pickle", "pickle.zip_evasion", "sharding.duplicate_key_across_shards"),
            *("sharding.index_omits_tensor", "sharding.index_tensor_missing", "sharding.index_total_size_wrong"),
            *("sharding.missing_shard", "sharding.stale_index"),
        ),
        _noticed,
    ),
    **dict.fromkeys(
        (
            *("container.exported_program", "container.framework_mismatch", "container.plain_pickle"),
            *("container.torchscript_archive", "container.unzipped_checkpoint_dir", "sharding.dcp_dir"),
        ),
        _unusual,
    ),
    "container.not_torchscript": _for_triton,
    "container.safetensors_header_too_big": _long_header,
    "file.leftover_temp_file": _always,
    "metadata.unaligned_storage": _unaligned,
    "pickle.dangerous_global": _aside,
}


def _cut_names(checkpoint: Checkpoint) -> bool:
    return any(ends_of_names(each.keys) for each in checkpoint.state_dicts)


# ---- of the contents

# what every state dict names: torch.load accepts all of it
HARMLESS = frozenset(
    {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"}
    | {f"torch.{name}Storage" for name in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Byte", "Bool")}
)
_WITH_NAMES = ("torch zip", "torch legacy", "safetensors")  # whose names are all among the globals, or have none
_SAYS_NOTHING: tuple[dict[str, str] | None, ...] = (None, {}, {"format": "pt"})  # of texts that people wrote
_FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
_COMMON = _FLOATS | {"int64", "int32", "int16", "int8", "uint8", "bool"}
_INTEGERS = ("int", "uint")


def _of(*roles: Role) -> OfCheckpoint:
    """There are state dicts of all these roles."""
    return lambda checkpoint: {each.role for each in checkpoint.state_dicts}.issuperset(roles)


def _beside(*names: str) -> OfCheckpoint:
    """One of these files lies in the folder of the checkpoint."""
    return lambda checkpoint: not _names_beside(checkpoint).isdisjoint(names)


@once
def _names_beside(checkpoint: Checkpoint) -> frozenset[str]:
    return folder_of(checkpoint.path).names


def _called(*endings: str) -> OfCheckpoint:
    return lambda checkpoint: checkpoint.path.endswith(endings)


def _format(name: str) -> OfCheckpoint:
    return lambda checkpoint: checkpoint.format == name


def _mention(*words: str) -> OfCheckpoint:
    """One of these words stands in the keys of the weights."""
    return once(lambda checkpoint: outline.mention(checkpoint, words))


def _either(*conditions: OfCheckpoint) -> OfCheckpoint:
    return lambda checkpoint: any(condition(checkpoint) for condition in conditions)


def _more_than_weights(checkpoint: Checkpoint) -> bool:
    return not outline.is_flat(checkpoint)


def _more_than_tensors(checkpoint: Checkpoint) -> bool:
    """There is a value that is no tensor; the attributes of a dict count."""
    return not outline.is_flat(checkpoint) or getattr(checkpoint.tree, "attributes", None) is not None


def _texts(checkpoint: Checkpoint) -> bool:
    """There may be texts besides names of tensors."""
    if checkpoint.metadata not in _SAYS_NOTHING:
        return True
    return not outline.is_flat(checkpoint) or not outline.has_only_versions(checkpoint)


def _inside(checkpoint: Checkpoint) -> bool:
    """There are weights below the top of the file."""
    return any(each.path for each in checkpoint.state_dicts)


def _empty(checkpoint: Checkpoint) -> bool:
    """There is no model, or weights of which the first has no elements."""
    weights = [each for each in checkpoint.state_dicts if each.role in WEIGHTS]
    return not all(each.tensors and each.tensors[0].numel for each in weights) or not any(
        each.role is Role.MODEL for each in weights
    )


def _strange_names(checkpoint: Checkpoint) -> bool:
    return checkpoint.format not in _WITH_NAMES or not {each.full for each in checkpoint.globals} <= HARMLESS


def _not_of_the_cpu(checkpoint: Checkpoint) -> bool:
    return not outline.on_the_cpu(checkpoint)


@once
def _generators(checkpoint: Checkpoint) -> bool:
    """A tensor may be the state of a random number generator, by its length and its dtype or name."""
    if not any(len(each) == 1 and each[0] in outline.RNG_STATE_LENGTHS for each in outline.shapes(checkpoint)):
        return False
    sized = [each for each in checkpoint.tensors if len(each.shape) == 1 and each.shape[0] in outline.RNG_STATE_LENGTHS]
    return any(each.dtype.name == "uint8" or _named_for_chance(each) for each in sized)


def _named_for_chance(tensor: Tensor) -> bool:
    name = show_path(tensor.path).lower()
    return any(word in name for word in ("rng", "random", "generator"))


def _views(checkpoint: Checkpoint) -> bool:
    return not outline.fill_their_storages(checkpoint)


def _out_of_order(checkpoint: Checkpoint) -> bool:
    return not outline.in_order(checkpoint)


def _gradients(checkpoint: Checkpoint) -> bool:
    return True in {each.requires_grad for each in checkpoint.tensors}


def _several_floats(checkpoint: Checkpoint) -> bool:
    return len(outline.dtypes(checkpoint) & _FLOATS) > 1


def _dtype(*names: str) -> OfCheckpoint:
    """There are dtypes whose names begin so."""
    return lambda checkpoint: any(each.startswith(names) for each in outline.dtypes(checkpoint))


def _rare_dtypes(checkpoint: Checkpoint) -> bool:
    return not outline.dtypes(checkpoint) <= _COMMON


def _placeholders(checkpoint: Checkpoint) -> bool:
    return any(0 in each or each == (1,) for each in outline.shapes(checkpoint))


def _flat_parameters(checkpoint: Checkpoint) -> bool:
    others = [key for each in checkpoint.state_dicts for key in each.others]
    return any("flat_param" in key for key in others) or outline.mention(checkpoint, ("flat_param",))


def _versioned(checkpoint: Checkpoint) -> bool:
    """A dict has ``_metadata``."""
    return any(each.metadata is not None for each in checkpoint.state_dicts)


def _running_stats(checkpoint: Checkpoint) -> bool:
    return _versioned(checkpoint) and outline.mention(checkpoint, ("running_mean", "running_var"))


def _layers(checkpoint: Checkpoint) -> bool:
    """A key may name one of several layers."""
    return any(mentions(each, marks.LAYER_LISTS) for each in checkpoint.state_dicts)


def _newer_protocol(checkpoint: Checkpoint) -> bool:
    return (pickle_protocol(checkpoint.container) or 0) > _DEFAULT_PROTOCOL


def _may_have_holes(checkpoint: Checkpoint) -> bool:
    return bool(checkpoint.notes) or not os.path.isfile(checkpoint.path) or is_sparse(checkpoint.path)


def _rank(checkpoint: Checkpoint) -> bool:
    return "rank" in os.path.abspath(checkpoint.path).lower()


def _numbered(checkpoint: Checkpoint) -> bool:
    """The name says that the file is one of several."""
    return "-of-" in os.path.basename(checkpoint.path)


def _slice(checkpoint: Checkpoint) -> bool:
    return os.path.basename(checkpoint.path).startswith(("consolidated", "model_part"))


def _piece(checkpoint: Checkpoint) -> bool:
    return "DCP_SHARDING_INFO" in (checkpoint.metadata or ())


_adapter = _mention(*marks.ADAPTERS)
_adapter_file = _called(*marks.ADAPTER_FILES)
_quantized = _mention(*marks.QUANTIZED)
_optimizer = _of(Role.OPTIMIZER)
_head = _mention("lm_head.weight", "embed_out.weight")

INSIDE: dict[str, OfCheckpoint] = {
    **dict.fromkeys(
        (
            *("container.big_endian_storage", "container.reader_too_old", "container.safetensors_bad_offsets"),
            *("container.safetensors_invalid_header", "file.crc_mismatch", "file.damaged_contents"),
            *("file.duplicate_key", "file.impossible_tensor", "file.replaced_values", "file.storage_size_mismatch"),
            "file.trailing_bytes",
            *("file.truncated_legacy", "file.truncated_safetensors", "file.truncated_zip"),
            *("metadata.null_or_nonstring_metadata", "pickle.ambiguous_pickle", "pickle.zip_evasion"),
            *("sharding.duplicate_key_across_shards", "sharding.index_omits_tensor", "sharding.index_tensor_missing"),
            *("sharding.index_total_size_wrong", "sharding.missing_shard", "sharding.stale_index"),
        ),
        _noticed,
    ),
    "adapter.adapter_includes_embeddings": _adapter,
    "adapter.adapter_not_merged": _adapter,
    "adapter.adapter_rank_config_mismatch": _beside("adapter_config.json"),
    "adapter.compile_token_in_adapter": _mention("_orig_mod"),
    "adapter.empty_adapter": _either(_adapter_file, _adapter),
    "adapter.lora_layout_mismatch": _adapter_file,
    "adapter.peft_adapter_name_token": _adapter,
    "container.legacy_format": _format("torch legacy"),
    "container.mixed_duplicate_weights": _called("model.safetensors", "model.bin"),
    "device.cuda_index_out_of_range": _not_of_the_cpu,
    "device.cuda_tag": _not_of_the_cpu,
    "device.foreign_backend_tag": _not_of_the_cpu,
    "device.meta_tag": _not_of_the_cpu,
    "device.mixed_device_tags": _not_of_the_cpu,
    "device.rng_on_cuda": _generators,
    "device.xla_rebuild": _not_of_the_cpu,
    "dtype.bool_uint8_mask": _dtype("uint8"),
    "dtype.double_precision": _dtype("float64", "complex128"),
    "dtype.dtype_unsupported_by_target": _rare_dtypes,
    "dtype.float8_raw": _dtype("float8"),
    "dtype.integer_weights": _dtype(*_INTEGERS),
    "dtype.mixed_float_dtypes": _several_floats,
    "file.zero_filled_region": _may_have_holes,
    "metadata.config_weights_disagree": _beside("config.json"),
    "metadata.tokenizer_beyond_embedding": _beside("tokenizer.json", "added_tokens.json", "tokenizer_config.json"),
    "metadata.missing_format_metadata": _format("safetensors"),
    "metadata.pii_or_secret": _texts,
    "metadata.state_dict_metadata_prefix": _versioned,
    "metadata.torch_dtype_drift": _beside("config.json"),
    "metadata.unknown_provenance": _optimizer,
    "naming.checkpoint_wrapper_prefix": _mention("_checkpoint_wrapped_module"),
    "naming.compile_prefix": _mention("_orig_mod"),
    "naming.flat_param": _flat_parameters,
    "naming.fsdp_prefix": _mention("_fsdp_wrapped_module", "_fpw_module"),
    "naming.lit_ema": _mention("num_updates"),
    "naming.mangled_by_naive_replace": _cut_names,
    "naming.module_prefix": _mention("module."),
    "naming.num_batches_tracked_missing": _running_stats,
    "naming.pruning_masks": _mention("_mask"),
    "naming.profiler_buffers": _mention("total_ops", "total_params"),
    "naming.swa_ema_prefix": _mention("ema", "averaged", "shadow"),
    "naming.wrapper_prefix_other": _mention("_module.", "_forward_module."),
    "optimizer.optimizer_bloat": _optimizer,
    "optimizer.optimizer_class_mismatch": _optimizer,
    "optimizer.optimizer_group_mismatch": _optimizer,
    "optimizer.optimizer_missing": _either(_more_than_weights, _mention("pytorch-lightning_version")),
    "optimizer.optimizer_order_mismatch": _optimizer,
    "optimizer.optimizer_step_dtype": _optimizer,
    "optimizer.partial_resume_set": _beside("trainer_state.json"),
    "optimizer.progress_inconsistent": _more_than_weights,
    "optimizer.scaler_or_amp_state": _more_than_weights,
    "optimizer.scheduler_mismatch": _of(Role.OPTIMIZER, Role.SCHEDULER),
    "optimizer.stale_hparams": _more_than_weights,
    "pickle.compat_protocol": _newer_protocol,
    "pickle.dangerous_global": _either(_aside, _strange_names),
    "pickle.huge_non_tensor_payload": _more_than_tensors,
    "pickle.needs_package": _strange_names,
    "pickle.numpy_module_drift": _strange_names,
    "pickle.old_torch_internal_global": _strange_names,
    "pickle.path_object": _strange_names,
    "pickle.py2_strings": _more_than_tensors,
    "pickle.unimportable_class_junk": _strange_names,
    "pickle.weights_only_blocked_global": _strange_names,
    "pickle.whole_module_pickle": _strange_names,
    "quantization.bnb_4bit_state": _quantized,
    "quantization.bnb_int8_state": _quantized,
    "quantization.fp8_scales": _quantized,
    "quantization.gptq_awq_packed": _quantized,
    "quantization.quanto_hqq": _quantized,
    "quantization.mixed_quant_dir": _either(_beside("config.json"), _quantized),
    "quantization.quantization_config_disagrees": _beside("config.json"),
    "quantization.quantized_member_missing": _quantized,
    "quantization.qat_observers": _mention(*marks.OBSERVERS),
    "quantization.torch_quantized": _rare_dtypes,
    "shape.placeholder_shape": _placeholders,
    "sharding.deepspeed_dir": _either(_more_than_weights, _mention("ds_config", "ds_version", "dp_world_size")),
    "sharding.dtensor_in_file": outline.composed,
    "sharding.layer_gap": _layers,
    "sharding.lone_shard": _numbered,
    "sharding.oversharded": _format("sharded Hugging Face checkpoint"),
    "sharding.piece_of_tensors": _piece,
    "sharding.rank_local_checkpoint": _rank,
    "sharding.shardedtensor_in_file": outline.composed,
    "sharding.tp_shards": _slice,
    "storage.expanded_tensor": _out_of_order,
    "storage.grad_attached": _gradients,
    "storage.grad_without_type": _rare_dtypes,
    "storage.non_contiguous": _out_of_order,
    "storage.overlapping_views": _views,
    "storage.shared_tensors": _views,
    "storage.sparse_or_nested_layout": _out_of_order,
    "storage.storage_bloat": _views,
    "storage.tensor_subclass": outline.composed,
    "storage.tied_but_diverged": _head,
    "storage.tied_dropped_wrong_name": _head,
    "storage.tied_redundant": _head,
    "structure.bare_list_or_tuple": _more_than_weights,
    "structure.empty_state_dict": _empty,
    "structure.multiple_networks": _inside,
    "structure.multiple_weight_sets": _inside,
    "structure.nested_state_dict": _inside,
    "structure.non_string_keys": _more_than_weights,
    "structure.non_tensor_in_state_dict": _more_than_weights,
    "structure.numpy_leaves": _more_than_weights,
    "structure.optimizer_file_as_model": _either(_more_than_weights, _generators),
}


def outside(container: Container) -> Iterator[str]:
    """The modules, below this package, of the rules that a container concerns."""
    return (name for name, condition in OUTSIDE.items() if condition(container))


def inside(checkpoint: Checkpoint) -> Iterator[str]:
    """The modules, below this package, of the rules that a checkpoint concerns."""
    return (name for name, condition in INSIDE.items() if condition(checkpoint))
