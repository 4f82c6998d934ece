"""Checkpoints that are not the dict of tensors that was expected."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, Message, Way

_SHOW = Way("see what it holds", "ckptdoctor show FILE")
_WHOLE = (
    Way("take the weights of", "model.state_dict()"),
    Way("or out of the file", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),
)

_A_MODEL = (Way("load it into a model", "model.load_state_dict(weights); model.eval()"), _SHOW)
_OF_MODELS = (
    r"(?P<attribute>eval|train|to|cuda|cpu|half|float|parameters|named_parameters|modules|named_modules|children"
    r"|state_dict|load_state_dict|forward|fuse|requires_grad_|zero_grad|apply|module|names|stride|predict"
    r"|fc|features|model"
    r"|named_children|encode|generate|config|conv1|layer1|backbone|encoder)'"
)

MESSAGES = (
    Message(
        "",
        ("'OrderedDict' object has no attribute '", "'collections.OrderedDict' object has no attribute '"),
        "the file holds weights by name (a state dict), and the program takes them for a model ({attribute}): build the"
        " model from its code first. No command makes a model of weights alone",
        _A_MODEL,
        then=_OF_MODELS,
    ),
    Message(
        "",
        ("'dict' object has no attribute '",),
        "the file holds a dict (weights by name, or a training checkpoint), and the program takes it for a model"
        " ({attribute}): build the model from its code first. No command makes a model of weights alone",
        _A_MODEL,
        then=_OF_MODELS,
        near=("torch.load", "checkpoint", "ckpt", ".eval()", "model"),
    ),
    Message(
        "",
        ("'collections.OrderedDict' object is not callable", "'OrderedDict' object is not callable"),
        "the file holds weights by name (a state dict), and the program calls them as a model: build the model from its"
        " code first. No command makes a model of weights alone",
        _A_MODEL,
    ),
    Message(
        "P204",
        ("' object is not subscriptable",),
        "what was loaded is a whole pickled model, and the program takes it for a dict of weights",
        _WHOLE,
        near=("torch.load", "checkpoint[", "ckpt[", "state_dict["),
    ),
    Message(
        "W310",
        ("contains no parameters.",),
        "the file has no weights: what saved it collected none (an overridden state_dict(), a strategy that shards)."
        " No command brings them back",
        (_SHOW,),
        near=("The state dict in",),
    ),
    Message(
        "",
        ("KeyError: 'pytorch-lightning_version'",),
        "load_from_checkpoint reads checkpoints of Lightning's Trainer, and this file is none: it holds"
        " weights alone, or"
        " another program's",
        (Way("load its weights", "model.load_state_dict(torch.load(path))"), _SHOW),
    ),
    Message(
        "O762",
        ("__init__() missing",),
        "the arguments of the model are not in the checkpoint: its __init__ did not call save_hyperparameters()",
        (Way("name them", "MODEL.load_from_checkpoint(path, NAME=VALUE)"), _SHOW),
        then=r"\d{1,3}requiredpositionalargument",
        near=("load_from_checkpoint", "_load_state", "core/saving.py"),
    ),
    Message(
        "W301",
        ("KeyError: '",),
        'the program looks for the weights under "{key}"; in this file they lie elsewhere, or at the top',
        (_SHOW,),
        among=("load", "ckpt", "checkpoint"),
        then=r"(?P<key>state_dict|params_ema|params|model_state_dict|model_state|model|net|network|module|weights|ema"
        r"|generator|g_ema|teacher|student)'",
    ),
    Message(
        "W305",
        ("Expected state_dict to be dict-like, got <class '",),
        "what was given to load_state_dict is a {kind}, where a dict of names and tensors was expected",
        (_SHOW,),
        then=r"(?P<kind>list|tuple|set|str|NoneType|torch\.Tensor|numpy\.ndarray)'",
    ),
    Message(
        "C107",
        ("Expected state_dict to be dict-like, got <class '",),
        "the file is a program that torch.jit.save wrote, and not a state dict: torch.load gives a module",
        (Way("load it with", 'model.load_state_dict(torch.jit.load(path, map_location="cpu").state_dict())'),),
        then=r"torch\.jit\.[\w.]{1,100}ScriptModule'",
    ),
    Message(
        "P204",
        ("Expected state_dict to be dict-like, got <class '",),
        "what was given to load_state_dict is an object of the class {kind}, most likely the whole model instead of its"
        " state dict",
        _WHOLE,
        then=r"(?P<kind>[\w.]{1,200})'",
        also=("W305",),
    ),
    Message(
        "W305",
        ("'list' object has no attribute 'items'", "'tuple' object has no attribute 'items'"),
        "the checkpoint is a list where a dict of names and tensors was expected",
        (_SHOW,),
        among=("load_state_dict", "torch.load", "state_dict"),
    ),
    Message(
        "P204",
        ("object has no attribute 'copy'",),
        "the file holds a whole model rather than its state dict",
        _WHOLE,
        near=("in load_state_dict",),
        also=("W305",),
    ),
    Message(
        "W306",
        ("expected torch.Tensor or Tensor-like object from checkpoint but received",),
        "an entry of the checkpoint is no tensor ({kind}), though the model has a parameter of its name",
        (_SHOW,),
        then=r"<class'(?P<kind>[\w.]{1,200})'>",
        also=("W307",),
    ),
    Message(
        "T551",
        ("expected scalar type",),
        "tensors of different data types meet ({one} and {other}): the checkpoint or the input was cast in part",
        (Way("bring all of it to one", "model.float()"), CHECK),
        then=r"(?P<one>Half|Float|BFloat16|Double)butfound(?P<other>Half|Float|BFloat16|Double)",
    ),
    Message(
        "T555",
        ("Got unsupported ScalarType BFloat16",),
        "NumPy has no bfloat16",
        (Way("cast before", "tensor.float().numpy()"),),
    ),
)
