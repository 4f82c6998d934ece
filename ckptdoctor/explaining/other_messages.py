"""These messages have their cause in the program, its libraries or the machine: no rule about checkpoints finds it."""

from __future__ import annotations

from ckptdoctor.rules.messages import CHECK, CONFIG_BESIDE, COPIED, COPYING, SHOW, Message, Way, Weight

# which program takes the tensor is not in the file, so that no check looks for it; the name is for explanations
NAMES = {"T555": "bf16-numpy"}

_ENDING = r"['\"]?[^'\"]{0,300}?\.(?:pt|pth|ckpt|bin|tar|pkl|safetensors)(?![A-Za-z0-9])['\"]?"
_GGUF = "ckptdoctor cannot write GGUF; convert the original again, or use a newer llama.cpp"
_A_MODEL = (Way("load it into a model", "model.load_state_dict(weights); model.eval()"), SHOW)
_OF_MODELS = (
    r"(?P<attribute>eval|train|to|cuda|cpu|half|float|parameters|named_parameters|modules|named_modules|children"
    r"|state_dict|load_state_dict|forward|fuse|requires_grad_|zero_grad|apply|module|names|stride|predict"
    r"|fc|features|model"
    r"|named_children|encode|generate|config|conv1|layer1|backbone|encoder)'"
)

MESSAGES = (
    Message(
        ("A load persistent id instruction was encountered",),
        "pickle was given a file that torch.save wrote, whose tensors are outside of the pickle",
        (Way("load it with", "torch.load(path)"),),
    ),
    Message(
        COPYING,
        "the device ran out of memory while {key} was copied: the file is not the cause",
        (Way("load the file into CPU memory first", 'torch.load(path, map_location="cpu")'),),
        then=COPIED + r".{0,200}?(?:outofmemory|notenoughmemory)",
        general=1,
    ),
    Message(
        COPYING,
        '{key} could not be copied though its shapes agree: the text after "an exception occurred" is the '
        "cause. No command of ckptdoctor helps; to see whether the file has anything unusual:",
        (CHECK,),
        then=COPIED,
        also=("A710", "X810"),
        general=1,
    ),
    Message(
        ("copying from a non-meta parameter in the checkpoint to a meta parameter",),
        "the model was built on the meta device and has no memory to copy into: load_state_dict loaded nothing of "
        "these keys. The file is not the cause",
        (Way("load it with", "model.load_state_dict(weights, assign=True)"),),
        weight=Weight.OUTCOME,
    ),
    Message(
        ("Can't find 'adapter_config.json' at",),
        "PEFT reads a folder with adapter_config.json and adapter_model.safetensors, and found no "
        "configuration there: the path is wrong, the download is not complete, or the file is not a PEFT "
        "adapter. ckptdoctor cannot write the configuration; to see what the file is:",
        (CHECK,),
    ),
    Message(
        ("'OrderedDict' object has no attribute '", "'collections.OrderedDict' object has no attribute '"),
        "the file holds weights by name (a state dict), and the program expects a model ({attribute}): build "
        "the model from its code first. No command makes a model from weights alone",
        _A_MODEL,
        then=_OF_MODELS,
    ),
    Message(
        ("'dict' object has no attribute '",),
        "the file holds a dict (weights by name, or a training checkpoint), and the program expects a model "
        "({attribute}): build the model from its code first. No command makes a model from weights alone",
        _A_MODEL,
        then=_OF_MODELS,
        near=("torch.load", "checkpoint", "ckpt", ".eval()", "model"),
    ),
    Message(
        ("'collections.OrderedDict' object is not callable", "'OrderedDict' object is not callable"),
        "the file holds weights by name (a state dict), and the program calls them like a model: build the "
        "model from its code first. No command makes a model from weights alone",
        _A_MODEL,
    ),
    Message(
        ("KeyError: 'pytorch-lightning_version'",),
        "load_from_checkpoint reads checkpoints of Lightning's Trainer, and this file is not one: it holds "
        "only weights, or another program wrote it",
        (Way("load its weights", "model.load_state_dict(torch.load(path))"), SHOW),
    ),
    Message(
        ("Got unsupported ScalarType BFloat16",),
        "NumPy has no bfloat16",
        (Way("cast before", "tensor.float().numpy()"),),
        code="T555",
    ),
    Message(
        ("wrong number of tensors; expected",),
        "the GGUF file holds {here} tensors and llama.cpp used {there}: it takes the file for a different "
        f"model or version, or the conversion left tensors out or added some; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<here>\d{1,9}),got(?P<there>\d{1,9})",
    ),
    Message(
        ("error loading model: missing tensor '", "missing tensor '"),
        f"the GGUF file lacks {{key}}, which llama.cpp expects in such a model; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'",
        near=("llama", "gguf", "ggml"),
    ),
    Message(
        # src/llama-model-loader.cpp, where a tensor is asked for without being made
        ("check_tensor_dims: tensor '",),
        f"the GGUF file lacks {{key}}, which llama.cpp expects in such a model; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'notfound",
    ),
    Message(
        ("check_tensor_dims: tensor '",),
        f"{{key}} in the GGUF file does not have the shape that llama.cpp expects in such a model; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'haswrongshape",
    ),
    Message(
        ("unknown model architecture: '",),
        "the GGUF file holds a {kind} model, which this llama.cpp does not know: it is older than the model",
        (Way("upgrade it; with Python", "pip install --upgrade llama-cpp-python"),),
        then=r"(?P<kind>[\w.-]{1,100})'",
    ),
    Message(
        ("Could not detect model type of:",),
        "ComfyUI does not know the file's keys: it is only a part of a model (a text encoder, a VAE, an "
        "adapter), a newer model, or not a checkpoint at all; to see what it is:",
        (CHECK,),
    ),
    Message(
        ("does not recognize this architecture",),
        "config.json names a model type that this version of transformers does not know; the weights are not the cause",
        (Way("upgrade transformers", "pip install --upgrade transformers"),),
        near=("Transformers", "transformers"),
    ),
    Message(
        ("Should have a `model_type` key in its config.json",),
        "config.json does not give the model type of the folder: it is another program's folder, an "
        "adapter's, or not complete. ckptdoctor cannot write it; get it from the source of the weights",
        (CONFIG_BESIDE,),
    ),
    Message(
        ("appears to be an Ultralytics YOLOv5 model originally trained",),
        "the file is a pickled YOLOv5 model, whose code (github.com/ultralytics/yolov5) the package "
        "ultralytics does not have; the weights alone can be extracted",
        (Way("extract the weights", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),),
        also=("P204",),
    ),
    Message(
        ("Due to a serious vulnerability issue in `torch.load`",),
        "transformers reads pickles (.bin, .pt) only with torch 2.6 or later, and safetensors files with any version",
        (Way("upgrade torch", 'pip install --upgrade "torch>=2.6"'), CHECK),
    ),
    Message(
        ("No such file or directory:",),
        "the file is not where the program looks for it (a relative path starts in the folder where the "
        "program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=_ENDING,
        weight=Weight.OUTCOME,
        general=1,
    ),
    Message(
        ("open file failed because of errno 2 on fopen",),
        "the file is not where the program looks for it (a relative path starts in the folder where the "
        "program was started)",
        (Way("look for it with", "ls -l FILE"),),
    ),
    Message(
        ("The provided filename",),
        "the file is not where the program looks for it (a relative path starts in the folder where the "
        "program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=r".{1,500}?doesnotexist",
    ),
    Message(
        ("Permission denied:",),
        "the user who runs the program may not read the file",
        (Way("check its owner and mode", "ls -l FILE"),),
        then=_ENDING,
    ),
    Message(
        ("No space left on device",),
        "the disk is full; a checkpoint that was being written is not complete",
        (Way("see whether it is", "ckptdoctor check FILE"),),
        among=("torch.save", "save_file", "save_pretrained", "serialization"),
    ),
    Message(
        ("safetensors is not installed",),
        "the file is in the safetensors format, and the library for it is not installed",
        (Way("install it", "pip install safetensors"),),
    ),
)
