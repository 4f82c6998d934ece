"""These messages have their cause in the program, its libraries or the machine: no rule about checkpoints finds it."""

from __future__ import annotations

from ckptdoctor.rules.messages import CHECK, CONFIG_BESIDE, COPIED, COPYING, SHOW, Message, Way, Weight

# which program takes the tensor is not in the file, so that no check looks for it; the name is for explanations
NAMES = {"T555": "bf16-numpy"}

_ENDING = r"['\"]?[^'\"]{0,300}?\.(?:pt|pth|ckpt|bin|tar|pkl|safetensors)(?![A-Za-z0-9])"
_GGUF = "no command of ckptdoctor rewrites GGUF; convert the original again, or use a newer llama.cpp"
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
        "pickle was given a file that torch.save wrote, whose tensors lie outside of the pickle",
        (Way("load it with", "torch.load(path)"),),
    ),
    Message(
        COPYING,
        "the memory of the device ended while {key} was copied: the file is not to blame",
        (Way("load the file into the memory of the CPU first", 'torch.load(path, map_location="cpu")'),),
        then=COPIED + r".{0,200}?(?:outofmemory|notenoughmemory)",
        general=1,
    ),
    Message(
        COPYING,
        "{key} could not be copied though its shapes agree: what the message says behind “an exception occurred” is the"
        " cause. No command of ckptdoctor is known to help; whether the file has anything odd is told by",
        (CHECK,),
        then=COPIED,
        also=("A710", "X810"),
        general=1,
    ),
    Message(
        ("Can't find 'adapter_config.json' at",),
        "PEFT reads a folder with adapter_config.json and adapter_model.safetensors, and found no configuration there:"
        " the path is another, the download is not complete, or the file is no adapter of PEFT's. ckptdoctor cannot"
        " write the configuration; what the file is, is told by",
        (CHECK,),
    ),
    Message(
        ("'OrderedDict' object has no attribute '", "'collections.OrderedDict' object has no attribute '"),
        "the file holds weights by name (a state dict), and the program takes them for a model ({attribute}): build the"
        " model from its code first. No command makes a model of weights alone",
        _A_MODEL,
        then=_OF_MODELS,
    ),
    Message(
        ("'dict' object has no attribute '",),
        "the file holds a dict (weights by name, or a training checkpoint), and the program takes it for a model"
        " ({attribute}): build the model from its code first. No command makes a model of weights alone",
        _A_MODEL,
        then=_OF_MODELS,
        near=("torch.load", "checkpoint", "ckpt", ".eval()", "model"),
    ),
    Message(
        ("'collections.OrderedDict' object is not callable", "'OrderedDict' object is not callable"),
        "the file holds weights by name (a state dict), and the program calls them as a model: build the model from its"
        " code first. No command makes a model of weights alone",
        _A_MODEL,
    ),
    Message(
        ("KeyError: 'pytorch-lightning_version'",),
        "load_from_checkpoint reads checkpoints of Lightning's Trainer, and this file is none: it holds"
        " weights alone, or"
        " another program's",
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
        "the GGUF file holds {here} tensors and llama.cpp used {there}: it takes the file for a model of another kind"
        f" or of another version, or the conversion left tensors out or in; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<here>\d{1,9}),got(?P<there>\d{1,9})",
    ),
    Message(
        ("error loading model: missing tensor '", "missing tensor '"),
        f"the GGUF file lacks {{key}}, which llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'",
        near=("llama", "gguf", "ggml"),
    ),
    Message(
        # src/llama-model-loader.cpp, where a tensor is asked for without being made
        ("check_tensor_dims: tensor '",),
        f"the GGUF file lacks {{key}}, which llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'notfound",
    ),
    Message(
        ("check_tensor_dims: tensor '",),
        f"{{key}} in the GGUF file has another shape than llama.cpp expects of a model of this kind; {_GGUF}",
        (Way("see what it holds", "ckptdoctor check FILE"),),
        then=r"(?P<key>[\w.]{1,200})'haswrongshape",
    ),
    Message(
        ("unknown model architecture: '",),
        "the GGUF file is of a model, {kind}, that this llama.cpp does not know: it is older than the model",
        (Way("upgrade it; with Python", "pip install --upgrade llama-cpp-python"),),
        then=r"(?P<kind>[\w.-]{1,100})'",
    ),
    Message(
        ("Could not detect model type of:",),
        "ComfyUI does not know the file's keys: it is only a part of a model (a text encoder, a VAE, an adapter), of a"
        " newer kind, or no checkpoint at all; what it is, is told by",
        (CHECK,),
    ),
    Message(
        ("does not recognize this architecture",),
        "config.json names a kind of model that this version of transformers does not know; the weights are"
        " not to blame",
        (Way("upgrade transformers", "pip install --upgrade transformers"),),
        near=("Transformers", "transformers"),
    ),
    Message(
        ("Should have a `model_type` key in its config.json",),
        "config.json does not say what kind of model the folder holds: it is another program's folder, an adapter's, or"
        " not complete. ckptdoctor cannot write it; take it from where the weights are from",
        (CONFIG_BESIDE,),
    ),
    Message(
        ("appears to be an Ultralytics YOLOv5 model originally trained",),
        "the file is a pickled YOLOv5 model, whose code (github.com/ultralytics/yolov5) the package"
        " ultralytics does not"
        " have; the weights alone can be taken out",
        (Way("take the weights out", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),),
        also=("P204",),
    ),
    Message(
        ("Due to a serious vulnerability issue in `torch.load`",),
        "transformers reads pickles (.bin, .pt) with torch 2.6 or later only; safetensors files it reads with any",
        (Way("upgrade torch", 'pip install --upgrade "torch>=2.6"'), CHECK),
    ),
    Message(
        ("No such file or directory:",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=_ENDING,
        weight=Weight.OUTCOME,
        general=1,
    ),
    Message(
        ("open file failed because of errno 2 on fopen",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
    ),
    Message(
        ("The provided filename",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=r".{1,500}?doesnotexist",
    ),
    Message(
        ("Permission denied:",),
        "the file may not be read by whoever runs the program",
        (Way("look at its owner and mode", "ls -l FILE"),),
        then=_ENDING,
    ),
    Message(
        ("No space left on device",),
        "the disk is full; a checkpoint that was being written is not whole",
        (Way("see whether it is", "ckptdoctor check FILE"),),
        among=("torch.save", "save_file", "save_pretrained", "serialization"),
    ),
    Message(
        ("safetensors is not installed",),
        "the file is in the safetensors format, and the library for it is not installed",
        (Way("install it", "pip install safetensors"),),
    ),
)
