"""Programs that run models: vLLM, SGLang, llama.cpp, ComfyUI."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.explain.message import CHECK, Message, Way, Weight
from ckptdoctor.noun import noun

_GGUF = "no command of ckptdoctor rewrites GGUF; convert the original again, or use a newer llama.cpp"

_STRIP = Way("repair it", "ckptdoctor fix FILE --strip-module")
_MERGE = Way("merge before saving", "model = model.merge_and_unload()")
_PLACED = "the model that the program built has no place for it"
_CONFIG = (
    "the program does not know that the checkpoint is quantised, or not this way (quantization_config in config.json)"
)


@noun
class _Kind:
    """What a key that a program does not know says of the checkpoint; ``key`` is a pattern of the whole of it."""

    code: str
    key: str
    meaning: str
    ways: tuple[Way, ...] = (CHECK,)
    also: tuple[str, ...] = ()


# of several that fit, the first is meant
_KINDS = (
    _Kind(
        "Q956",
        r"[\w.]{0,300}?(?:weight_scale|weight_scale_inv|input_scale|weight_scale_2|weight_packed|weight_global_scale"
        r"|input_global_scale|[kvq]_scale|kv_scale|weight_shape|weight_zero_point|deq_scale|quant_bias|input_offset)",
        f"the file has scales of quantised weights ({{key}}), and {_PLACED}: {_CONFIG}",
        also=("R002", "Q953"),
    ),
    _Kind(
        "Q953",
        r"[\w.]{1,300}?\.(?:qweight|qzeros|g_idx|scales)",
        f"the file has weights packed by GPTQ or AWQ ({{key}}), and {_PLACED}: {_CONFIG}",
    ),
    _Kind(
        "Q951",
        r"[\w.]{1,300}?\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state[\w.]{0,60})",
        "the file has weights packed to 4 bits by bitsandbytes ({key}), and the program does not know that it is"
        " quantised",
        (Way("with vLLM", "vllm serve FOLDER --load-format bitsandbytes --quantization bitsandbytes"), CHECK),
    ),
    _Kind(
        "Q952",
        r"[\w.]{1,300}?\.(?:SCB|weight_format)",
        "the file has weights of 8 bits by bitsandbytes ({key}), and the program wants plain ones: load the model in"
        " full precision, and merge and save it then",
    ),
    _Kind(
        "L906",
        r"[\w.]{0,400}?(?:lora_[AB]|base_layer)[\w.]{0,100}",
        "the file has layers of an adapter (LoRA) in it ({key}): it was saved from a PEFT model without merging, and"
        " the program wants a plain model",
        (_MERGE, CHECK),
        ("L901",),
    ),
    _Kind(
        "N404",
        r"[\w.]{0,300}?_orig_mod[\w.]{0,300}",
        "the file was saved from a model inside torch.compile, which put “_orig_mod.” into its keys",
        (_STRIP,),
    ),
    _Kind(
        "N401",
        r"module(?:\.[\w.]{0,300})?",
        "the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with “module.”",
        (_STRIP,),
    ),
    _Kind(
        "N414",
        r"[\w.]{1,300}?\.(?:gamma|beta)",
        "the file names the parameters of its norms gamma and beta ({key}), as TensorFlow does, and the program wants"
        " weight and bias",
    ),
    _Kind(
        "N426",
        r"[\w.]{0,100}?layers\.\d{1,4}\.(?:attention\.w[qkvo]|feed_forward\.w[123]|attention_norm|ffn_norm)\.weight",
        "the file has the names of Meta's and Mistral's own programs ({key}), as consolidated.safetensors has, and the"
        " program wants those of transformers: where the folder has both, leave out the consolidated files",
        also=("C115", "R002"),
    ),
)
_OF_LAYER = r"(?:[\w.]{0,300}\.)?(?:layers|blocks|block|h)\.\d{1,4}\.[\w.]{1,300}"
_OTHER = (
    "the file has tensors called {key}, which the model that the program built does not have: the program is older than"
    " the model, does not know it, or the names begin at another level"
)


def _of_keys() -> Iterator[Message]:
    """Programs that name the first key that they do not know, each in its own words."""
    quoted = r"(?P<key>{0})'"
    # vLLM 0.4 to 0.11 models/*.py and SGLang 0.4 srt/models/*.py: params_dict[name]
    for kind in _KINDS:
        if kind.code not in ("N401", "N414"):  # KeyError: 'module' is said of much else
            yield _message(kind, "KeyError: '", quoted.format(kind.key))
    yield Message("R002", ("KeyError: '",), _OTHER, (CHECK,), quoted.format(_OF_LAYER), ("N409", "N410", "Q956"))
    # vllm/model_executor/models/utils.py AutoWeightsLoader since 0.6.4
    named = "There is no module or parameter named '"
    yield Message("L906", (named,), _KINDS[4].meaning, (_MERGE, CHECK), r"(?P<key>base_model[\w.]{0,300})'")
    for kind in _KINDS:
        yield _message(kind, named, quoted.format(kind.key))
    yield Message("R002", (named,), _OTHER, (CHECK,), r"(?P<key>[\w.]{1,300})'", ("N409", "N410", "Q956"))
    # llama.cpp convert_hf_to_gguf.py (convert-hf-to-gguf.py before June 2024), Model.map_tensor_name
    for kind in _KINDS:
        yield _message(kind, "Can not map tensor '", quoted.format(kind.key))
    yield Message(
        "N410",
        ("Can not map tensor '",),
        "llama.cpp's converter wants keys that begin with “model.”, and the file has {key}: it holds the bare inner"
        " model",
        (Way("where all of its keys lack it", "ckptdoctor fix FILE --add-prefix model."), CHECK),
        r"(?P<key>(?:embed_tokens|layers\.\d{1,4}|norm)\.[\w.]{1,200})'",
        ("N409", "R002"),
    )
    yield Message(
        "R002",
        ("Can not map tensor '",),
        "llama.cpp's converter does not know a tensor called {key}: it does not convert models of this kind, or the"
        " names carry a prefix",
        (CHECK,),
        r"(?P<key>[\w.]{1,300})'",
        ("N409", "N410"),
    )


def _message(kind: _Kind, says: str, then: str) -> Message:
    return Message(kind.code, (says,), kind.meaning, kind.ways, then, kind.also)


MESSAGES = (
    *_of_keys(),
    Message(
        "R003",
        ("Attempted to load weight (",),
        "a tensor is {here} in the file and {there} in the model that the program built: the configuration is another"
        " model's, or the weights are packed and the program does not know it",
        (CHECK,),
        then=r"(?:torch\.Size\()?(?P<here>\[[\d,]{0,80}\])\)?\)intoparameter\((?:torch\.Size\()?(?P<there>\[[\d,]{0,80}\])",
        also=("M974", "S502", "Q953"),
    ),
    Message(
        "R003",
        (
            "assert param_data.shape == loaded_weight.shape",
            "assert param.shape == loaded_weight.shape",
            "assert loaded_weight.shape[output_dim] == self.org_vocab_size",
        ),
        "a tensor has another shape in the file than in the model that the program built: the configuration is another"
        " model's, or the weights are packed and the program does not know it",
        (CHECK,),
        also=("M974", "S502", "Q953"),
    ),
    Message(
        "X801",
        ("Cannot find any model weights with",),
        "there is no weights file where the program looked: the download is not complete, or the path is another",
        (Way("look into the folder", "ckptdoctor check FILE"),),
    ),
    Message(
        "",
        ("wrong number of tensors; expected",),
        "the GGUF file holds {here} tensors and llama.cpp used {there}: it takes the file for a model of another kind"
        f" or of another version, or the conversion left tensors out or in; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<here>\d{1,9}),got(?P<there>\d{1,9})",
    ),
    Message(
        "",
        ("error loading model: missing tensor '", "missing tensor '"),
        f"the GGUF file lacks {{key}}, which llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'",
        near=("llama", "gguf", "ggml"),
    ),
    Message(
        # src/llama-model-loader.cpp, where a tensor is asked for without being made
        "",
        ("check_tensor_dims: tensor '",),
        f"the GGUF file lacks {{key}}, which llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'notfound",
    ),
    Message(
        "",
        ("check_tensor_dims: tensor '",),
        f"{{key}} in the GGUF file has another shape than llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'haswrongshape",
    ),
    Message(
        "",
        ("unknown model architecture: '",),
        "the GGUF file is of a model, {kind}, that this llama.cpp does not know: it is older than the model",
        (Way("upgrade it; with Python", "pip install --upgrade llama-cpp-python"),),
        then=r"(?P<kind>[\w.-]{1,100})'",
    ),
    Message(
        "F014",
        ("data is not within the file bounds",),
        "the GGUF file is cut short: its list of tensors goes on behind its end. No command brings the rest back:"
        " download it again",
        (Way("see how long it is", "ls -l FILE"),),
    ),
    Message(
        "C101",
        ("invalid magic characters",),
        "llama.cpp was given a file that is not GGUF",
        (CHECK,),
        near=("gguf", "GGUF", "llama"),
        also=("F001", "F002", "F014"),
    ),
    Message(
        "",
        ("Could not detect model type of:",),
        "ComfyUI does not know the file's keys: it is only a part of a model (a text encoder, a VAE, an adapter), of a"
        " newer kind, or no checkpoint at all; what it is, is told by",
        (CHECK,),
    ),
    Message(
        "R001",
        ("clip missing:", "unet missing:"),
        "the file lacks some of the keys that ComfyUI's model has; the parts that need them keep random values",
        (CHECK,),
        then=r"\[",
        weight=Weight.OUTCOME,
    ),
    Message(
        "R002",
        ("unet unexpected:", "clip unexpected:", "left over keys in unet:", "left over keys in diffusion model:"),
        "the file has keys that ComfyUI's model does not know, and leaves out",
        (CHECK,),
        then=r"\[",
        weight=Weight.OUTCOME,
    ),
)
