"""transformers and diffusers, around a failure. Lists of keys are in ``load_error``."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, Message, Way, Weight

_CONFIG = Way("compare it with the configuration beside it", "ckptdoctor check FILE")

MESSAGES = (
    Message(
        "R001",
        ("is on the meta device, we need a `value` to put in on",),
        "the checkpoint lacks a tensor, so that the model has nothing to put there: a shard is missing, the"
        " names begin with"
        " another prefix, or tied weights were not tied",
        (CHECK,),
        near=("accelerate", "set_module_tensor_to_device", "meta"),
        also=("X801", "A702", "N410"),
    ),
    Message(
        "R002",
        ("does not have a parameter or a buffer named",),
        "the checkpoint has a tensor, {key}, in a layer that has none of its name: it is of another model,"
        " or quantised",
        (CHECK,),
        then=r"(?P<key>[\w.]{1,200}?)\.?(?=$|[^\w.])",
        also=("Q951", "Q953", "N410"),
    ),
    Message(
        "Q951",
        ("Supplied state dict for",),
        "the configuration says that the weights are packed to 4 bits by bitsandbytes, and {key} has none of"
        " what belongs"
        " to that (absmax, quant_state): config.json and weights are of two models",
        (_CONFIG,),
        then=r"(?P<key>[\w.]{1,300}?)doesnotcontain`bitsandbytes__",
        also=("M974",),
    ),
    Message(
        "",
        ("does not recognize this architecture",),
        "config.json names a kind of model that this version of transformers does not know; the weights are"
        " not to blame",
        (Way("upgrade transformers", "pip install --upgrade transformers"),),
        near=("Transformers", "transformers"),
    ),
    Message(
        "",
        ("Should have a `model_type` key in its config.json",),
        "config.json does not say what kind of model the folder holds: it is another program's folder, an adapter's, or"
        " not complete. ckptdoctor cannot write it; take it from where the weights are from",
        (_CONFIG,),
    ),
    Message(
        "A702",
        ("This checkpoint seem corrupted. The tied weights mapping",),
        "neither of two tied weights is in the checkpoint ({source} and {target}): both were left out when"
        " it was saved."
        " No command brings them back",
        (CHECK,),
        then=r"forthismodelspecifiestotie(?P<source>[\w.]{1,200}?)to(?P<target>[\w.]{1,200}?),but",
        also=("R001",),
    ),
    Message(
        "M974",
        ("You set `ignore_mismatched_sizes` to `False`, thus raising an error",),
        "tensors of the checkpoint have other shapes than config.json says; the table above this line names them",
        (_CONFIG,),
        weight=Weight.OUTCOME,
        also=("R003", "S501", "S502"),
    ),
    Message(
        "A701",
        ("The weights trying to be saved contained shared tensors",),
        "several names stand for the same memory, and transformers does not know them for tied weights",
        (Way("save a copy of each", "model.save_pretrained(path, safe_serialization=False)"),),
        also=("A706",),
    ),
    Message(
        "",
        ("appears to be an Ultralytics YOLOv5 model originally trained",),
        "the file is a pickled YOLOv5 model, whose code (github.com/ultralytics/yolov5) the package"
        " ultralytics does not"
        " have; the weights alone can be taken out",
        (Way("take the weights out", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),),
        also=("P204",),
    ),
    Message(
        "R001",
        ("Cannot load model parameters from checkpoint",),
        "fairseq could not load the weights: file and model are not of one architecture. The error above this line says"
        " which keys",
        (CHECK,),
        near=("please ensure that the architectures match",),
        weight=Weight.OUTCOME,
        also=("R002", "R003"),
    ),
    Message(
        "R001",
        ("Weights for this component appear to be missing in the checkpoint",),
        "the file does not hold every part of the pipeline (a text encoder or the VAE is not in it)",
        (Way("see what it holds", "ckptdoctor show FILE"),),
        also=("W304",),
    ),
    Message(
        "F001",
        ("You seem to have cloned a repository without having git-lfs installed",),
        "the file is a Git LFS pointer: a small text that stands for the real file",
        (Way("get the real file", "git lfs install && git lfs pull"), Way("then look again", "ckptdoctor check FILE")),
    ),
    Message(
        "",
        ("Due to a serious vulnerability issue in `torch.load`",),
        "transformers reads pickles (.bin, .pt) with torch 2.6 or later only; safetensors files it reads with any",
        (Way("upgrade torch", 'pip install --upgrade "torch>=2.6"'), CHECK),
    ),
    Message(
        "F014",
        ("Unable to load weights from pytorch checkpoint file", "Unable to load weights from checkpoint file"),
        "transformers could not read the weights file: it is damaged, cut short or no weights at all, as after a"
        " download that broke off. That it might be TensorFlow's is only its guess",
        (CHECK, Way("then", "download it again")),
        weight=Weight.OUTCOME,
        also=("F001", "F002", "F004", "F005", "F014"),
    ),
    Message(
        "X801",
        ("does not appear to have files named",),
        "the index names shards that are not there: the download is not complete",
        (Way("download the rest, then", "ckptdoctor check FILE"),),
    ),
    Message(
        "X801",
        ("does not appear to have a file named", "Error no file named"),
        "there is no weights file of a name that the loader knows where it looked: the download is not complete, or"
        " the path is another",
        (Way("look into the directory", "ls"),),
        then=r"[`'\"]?(?P<name>[\w.,\[\]'-]{1,300})",
        weight=Weight.OUTCOME,
    ),
    Message(
        "X801",
        ("No such file or directory:",),
        "a shard of the checkpoint is not there: the download is not complete",
        (Way("download it again, then", "ckptdoctor check FILE"),),
        then=r"['\"]?[^'\"\n]{0,300}?-\d{5}-of-\d{5}\.(?:safetensors|bin)",
    ),
)
