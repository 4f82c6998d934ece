"""Programs that run models: vLLM, SGLang, llama.cpp, ComfyUI."""

from __future__ import annotations

from ckptdoctor.messages.message import CHECK, Message, Way, Weight

_KEY = r"(?P<key>(?:model\.|language_model\.|transformer\.|visual\.|mtp\.|decoder\.|encoder\.|h\.|blocks\.)*"
_LOADERS = ("load_weights", "params_dict", "vllm", "sglang")
_GGUF = "no command of ckptdoctor rewrites GGUF; convert the original again, or use a newer llama.cpp"

MESSAGES = (
    Message(
        "Q956",
        ("KeyError: '",),
        "the file has scales of quantised weights ({key}), and the model that the program built has no place for them:"
        " it does not know that the checkpoint is quantised, or not this way (quantization_config in config.json)",
        (CHECK,),
        then=r"(?P<key>[\w.]{0,300}?(?:layers|blocks|h)\.\d{1,4}\.[\w.]{1,300}?(?:weight_scale|weight_scale_inv|input_scale|weight_packed"
        r"|weight_global_scale|k_scale|v_scale|kv_scale|weight_shape|weight_zero_point))'",
        also=("R002", "Q953"),
    ),
    Message(
        "Q953",
        ("KeyError: '",),
        "the file has weights packed by GPTQ or AWQ ({key}), and the model that the program built has no"
        " place for them:"
        " it does not know that the checkpoint is quantised (quantization_config in config.json)",
        (CHECK,),
        then=r"(?P<key>[\w.]{0,300}?(?:layers|blocks|h)\.\d{1,4}\.[\w.]{1,300}?(?:qweight|qzeros|g_idx|scales))'",
    ),
    Message(
        "Q951",
        ("KeyError: '",),
        "the file has weights packed to 4 bits by bitsandbytes ({key}), and the program does not know that it is"
        " quantised",
        (Way("with vLLM", "vllm serve FOLDER --load-format bitsandbytes --quantization bitsandbytes"), CHECK),
        then=r"(?P<key>[\w.]{0,300}?(?:layers|blocks|h)\.\d{1,4}\.[\w.]{1,300}?(?:absmax|quant_map|quant_state[\w.]{0,60}))'",
    ),
    Message(
        "L906",
        ("KeyError: '",),
        "the file has layers of an adapter (LoRA) in it ({key}): it was saved from a PEFT model without"
        " merging, and the"
        " program wants a plain model",
        (Way("merge before saving", "model = model.merge_and_unload()"), CHECK),
        then=r"(?P<key>[\w.]{0,400}?(?:lora_[AB]|base_layer)[\w.]{0,100})'",
        also=("L901",),
    ),
    Message(
        "R002",
        ("KeyError: '",),
        "the file has a tensor, {key}, that the model which the program built does not have: the program is older than"
        " the model, does not know it, or the names begin with another prefix",
        (CHECK,),
        then=r"(?P<key>(?:[\w.]{0,300}\.)?(?:layers|blocks|h)\.\d{1,4}\.[\w.]{1,300})'",
        also=("N409", "N410", "Q956"),
    ),
    Message(
        "N404",
        ("There is no module or parameter named '",),
        "the file was saved from a model inside torch.compile, which put “_orig_mod.” into its keys",
        (Way("repair it", "ckptdoctor fix FILE --strip-module"),),
        then=r"[\w.]{0,300}?_orig_mod",
    ),
    Message(
        "N401",
        ("There is no module or parameter named '",),
        "the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with “module.”",
        (Way("repair it", "ckptdoctor fix FILE --strip-module"),),
        then=r"module['.]",
    ),
    Message(
        "L906",
        ("There is no module or parameter named '",),
        "the file holds an adapter (LoRA), or a model with one in it that is not merged; the program wants a"
        " plain model",
        (Way("merge before saving", "model = model.merge_and_unload()"), CHECK),
        then=r"(?:base_model|[\w.]{0,300}?(?:lora_|base_layer))",
    ),
    Message(
        "Q956",
        ("There is no module or parameter named '",),
        "the file has scales of quantised weights ({key}), and the model that the program built has no place for them:"
        " that layer is not quantised there, or not this way (quantization_config in config.json)",
        (CHECK,),
        then=r"(?P<key>[\w.]{1,300}?(?:_scale|_scale_inv|weight_packed|weight_shape|weight_zero_point))'",
        also=("R002",),
    ),
    Message(
        "R002",
        ("There is no module or parameter named '",),
        "the file has tensors under {key}, which the model that the program built does not have: the program is older"
        " than the model or does not know it, or the names begin at another level",
        (CHECK,),
        then=r"(?P<key>[\w.]{1,300})'",
        also=("N409", "N410", "Q956"),
    ),
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
        ("Can not map tensor '",),
        "llama.cpp's converter does not know a tensor called {key}: the model is of a kind that it does not convert, or"
        " the names carry a prefix, an adapter or a quantisation",
        (CHECK,),
        then=r"(?P<key>[\w.]{1,300})'",
        also=("N404", "L906", "Q956"),
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
