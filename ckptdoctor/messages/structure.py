"""Checkpoints that are not the dict of tensors that was expected."""

from __future__ import annotations

from ckptdoctor.messages.message import CHECK, Message, Way

_SHOW = Way("see what it holds", "ckptdoctor show FILE")
_WHOLE = (
    Way("take the weights of", "model.state_dict()"),
    Way("or out of the file", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),
)

MESSAGES = (
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
