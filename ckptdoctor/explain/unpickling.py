"""Pickles that name classes or functions: refused with weights_only, or not importable without."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, SAFE, Message, Way, Weight
from ckptdoctor.facts.globals import is_dangerous

_GLOBAL = r"(?P<global>[\w.<>]{1,300}?)wasnotanallowedglobal"
_PARTS = (
    Way("repair it", "ckptdoctor fix FILE"),
    Way("or what is left", "ckptdoctor fix FILE --select P201 --unsafe-fixes"),
)


def _acts(groups: dict[str, str]) -> bool:
    """Whether it is a function that acts; torch leaves out the name of the module ``builtins``."""
    module, _, name = groups["global"].rpartition(".")
    return is_dangerous(module or "builtins", name)


MESSAGES = (
    Message(
        "P206",
        ("Trying to load unsupported GLOBAL",),
        "the file asks for {global}, a function that no checkpoint needs and that could do anything to your machine."
        " Do not load it in any other way",
        (Way("see what it asks for", "ckptdoctor check FILE"),),
        then=r"(?P<global>[\w.]{1,300}?)whosemodule[\w.]{1,100}isblocked",
    ),
    Message(
        "P206",
        ("GLOBAL",),
        "the file asks for {global}, a function that no checkpoint needs and that could do anything to your machine."
        " Do not load it in any other way",
        (Way("see what it asks for", "ckptdoctor check FILE"),),
        then=_GLOBAL,
        also=("P201",),
        holds=_acts,
    ),
    Message(
        "P202",
        ("GLOBAL",),
        "the file holds a NumPy value beside the tensors ({global}; a metric or a counter, most often), and torch 2.6"
        " and later load nothing but tensors and plain values",
        (SAFE,),
        then=r"(?P<global>numpy\.[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201",),
    ),
    Message(
        "P203",
        ("GLOBAL",),
        "the file holds a path object ({global}) beside the tensors, and torch 2.6 and later load nothing but tensors"
        " and plain values",
        (SAFE,),
        then=r"(?P<global>pathlib\.[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201",),
    ),
    Message(
        "D605",
        ("GLOBAL",),
        "the file holds tensors as an accelerator's own library pickles them ({global})",
        (SAFE,),
        then=r"(?P<global>torch\._utils\._rebuild_(?:xla_tensor|device_tensor_from_numpy))wasnotanallowedglobal",
        also=("P201",),
    ),
    Message(
        "P204",
        ("GLOBAL",),
        "the file holds a whole pickled model ({global}), not a state dict, and torch 2.6 and later load nothing but"
        " tensors and plain values",
        (Way("take the weights out", "ckptdoctor fix FILE --select P204 --unsafe-fixes"),),
        then=r"(?P<global>(?:torch\.nn\.(?!parameter)|torchvision\.models\.|timm\.models\.|models\.|ultralytics\.nn\.)"
        r"[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201", "P205"),
    ),
    Message(
        "P201",
        ("GLOBAL",),
        "the file holds an object of {global} beside the tensors, and torch 2.6 and later load nothing but tensors and"
        " plain values",
        _PARTS,
        then=_GLOBAL,
        also=("P202", "P203", "P204", "P205", "D605"),
    ),
    Message(
        "P201",
        ("Trying to call reduce for unrecognized function", "Can only create new object for nn.Parameter or classes"),
        "the file holds an object that torch 2.6 and later do not build: they load only tensors and plain values",
        _PARTS,
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        "P201",
        ("Can only build Tensor, Parameter, OrderedDict or types allowlisted", "Can only build Tensor, parameter or"),
        "the file holds an object that torch 2.6 and later do not build: they load only tensors and plain values",
        _PARTS,
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        "X810",
        ("``torch.distributed.tensor`` must be imported to load DTensors", "must be imported to load DTensors"),
        "the file holds DTensors, of which each rank has a part: FSDP2 or tensor parallelism saved without gathering",
        (
            Way("see what is in it", "ckptdoctor check FILE"),
            Way("save whole tensors with", "torch.distributed.checkpoint.state_dict.get_model_state_dict(...)"),
        ),
        also=("A710",),
    ),
    Message(
        "P201",
        ("must be imported to load nested jagged tensors",),
        "the file holds nested (jagged) tensors, whose code torch has not imported yet",
        (Way("before loading", "import torch.nested, torch._dynamo"),),
        also=("A709", "A710"),
    ),
    Message(
        "P202",
        ("No module named 'numpy._core", "No module named numpy._core"),
        "the file holds NumPy values pickled by NumPy 2, and this is NumPy 1, where the module has another name",
        (SAFE, Way("or upgrade", 'pip install "numpy>=2"')),
        also=("P201", "P205"),
    ),
    Message(
        "P203",
        ("cannot instantiate 'PosixPath' on your system", "cannot instantiate 'WindowsPath' on your system"),
        "the file holds a path object of another operating system, which does not exist on this one",
        (SAFE,),
        also=("P201",),
    ),
    Message(
        "P203",
        ("No module named 'pathlib._local'",),
        "the file holds a path object pickled by Python 3.13, where its module has another name",
        (SAFE,),
        also=("P201",),
    ),
    Message(
        "P209",
        ("Can't get attribute '_rebuild_", "No module named 'torch.nn.backends'"),
        "the file was written by a torch so much older or newer that the functions which build tensors have changed",
        (CHECK, Way("or", "pip install --upgrade torch")),
        also=("P201", "P204"),
    ),
    Message(
        # numpy/random/_pickle.py: one argument up to 1.23, two in 1.24 to 1.26, a generator itself since 2.0
        "P202",
        (
            "__generator_ctor() takes",
            "__randomstate_ctor() takes",
            "__bit_generator_ctor() takes",
            "is not a known BitGenerator module",
        ),
        "the file holds a random generator that another version of NumPy pickled, and that this one cannot rebuild",
        (Way("use the NumPy of the save, or", 'pip install --upgrade "numpy>=2"'), CHECK),
    ),
    Message(
        # a program names its classes in the module __torch__; torch.load of 1.5 does not tell it from other archives
        "C107",
        ("No module named '__torch__",),
        "the file is a program that torch.jit.save wrote, and torch.load of an old torch takes it for a pickle",
        (Way("load it with", 'torch.jit.load(path, map_location="cpu").state_dict()'),),
    ),
    Message(
        # inspect.getfile of Python, which torch.serialization asks for the source of each module in a pickle
        "P204",
        ("<module '__main__'> is a built-in class", "<module '__main__' (built-in)> is a built-in class"),
        "the whole model was pickled in a notebook or shell, and torch asks for the source of its class, which is not"
        " there: save its state dict",
        (CHECK, Way("take the weights out", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
    ),
    Message(
        "P204",
        ("Can't get attribute", "Can not get attribute"),
        "the file names the class {name} of {module}, which the program that loads it does not have: either the whole"
        " model was pickled, or an object of the training script lies beside the weights",
        (CHECK, Way("take the weights out", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"['‘\"](?P<name>[\w.]{1,200})['’\"]on<?module['‘\"](?P<module>[\w.]{1,200})",
        also=("P205", "P201"),
    ),
    Message(
        "P210",
        ("No module named '", "No module named "),
        "the file holds objects of {module}, which is not installed here: beside the weights lies something of the"
        " program that trained them",
        (Way("take the weights out", "ckptdoctor fix FILE"), Way("or install it", "pip install {module}")),
        then=r"(?P<module>pytorch_lightning|lightning|omegaconf|mmengine|mmcv|fairseq|hydra|easydict|yacs|sklearn|pandas"
        r"|apex|detectron2|timm|dill|ruamel)(?![\w])",
        also=("P201", "P204", "P205"),
        among=("torch.load", "serialization", "pickle"),
    ),
    Message(
        "P204",
        ("No module named '", "ModuleNotFoundError: No module named "),
        "the file names code in the module {module}, which is not there for the program that loads it: the whole model"
        " was pickled, or an object of the training script lies beside the weights",
        (CHECK, Way("take the weights out", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"(?P<module>(?:models?|nets?|networks?|utils|src|modules?|lib|core|archs?|backbones?|ultralytics)"
        r"(?:\.[\w.]{1,200})?)(?=['’\"]|$)",
        also=("P205", "P201"),
    ),
    Message(
        "P204",
        ("No module named '",),
        "loading the file needs the module {module}, which is not there: the whole model was pickled, or an object of"
        " the training script lies beside the weights",
        (CHECK, Way("take the weights out", "ckptdoctor fix FILE --select P204,P205 --unsafe-fixes")),
        then=r"(?P<module>[\w.]{1,200})'",
        near=("torch.load", "torch/serialization", "pickle_module", "unpickler.load", "find_class"),
        also=("P205", "P201", "P210"),
    ),
    Message(
        "P204",
        ("ModuleNotFoundError: No module named '", "ImportError: No module named "),
        "if the program was loading a checkpoint with torch.load or pickle, the file names code in the module {module}:"
        " the whole model was pickled, or an object of the training script beside the weights. If it was not, a package"
        " is missing, and the checkpoint has nothing to do with it",
        (Way("see what the file asks for", "ckptdoctor check FILE"),),
        then=r"'?(?P<module>[A-Za-z_][\w.]{0,200})(?=['’]|$)",
        also=("P205", "P210", "P201"),
        weight=Weight.ECHO,
    ),
    Message(
        "P208",
        ("'ascii' codec can't decode byte",),
        "the pickle was written by Python 2, whose texts are bytes that do not decode as ASCII",
        (Way("load it with", 'torch.load(path, encoding="latin1")'), CHECK),
        among=("torch.load", "serialization", "pickle", "joblib"),
    ),
    Message(
        "P208",
        ("'utf-8' codec can't decode byte",),
        "a text in the pickle is not UTF-8: Python 2 wrote it, or the file is opened as text",
        (CHECK, Way("if Python 2 wrote it", 'torch.load(path, encoding="latin1")')),
        among=("torch.load", "serialization", "pickle", "joblib"),
        weight=Weight.ECHO,
    ),
    Message(
        "",
        ("A load persistent id instruction was encountered",),
        "pickle was given a file that torch.save wrote, whose tensors lie outside of the pickle",
        (Way("load it with", "torch.load(path)"),),
    ),
    Message(
        "F006",
        ("pickle data was truncated",),
        "the pickle is cut short: the download or the save was broken off. No command brings the rest back",
        (CHECK,),
        also=("F014", "F005", "F004"),
    ),
    Message(
        "P211",
        ("unsupported pickle protocol:",),
        "the file was pickled with protocol {protocol}, which this Python is too old to read",
        (Way("save it with", "torch.save(weights, path, pickle_protocol=2)"),),
        then=r"(?P<protocol>\d{1,3})",
    ),
    Message(
        "P201",
        ("Unsupported class", "unsupported class"),
        "the file names a class that torch does not load with weights_only: it loads nothing but tensors and plain"
        " values",
        _PARTS,
        then=r"[a-z_]\w{0,60}\.",
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        "P201",
        ("Weights only load failed", "was not an allowed global"),
        "torch refuses the file: it is no checkpoint, or holds more than tensors and plain values. The line after this"
        " one says which; it is not in this text",
        (CHECK,),
        also=("P202", "P203", "P204", "P205", "F001", "F002", "F003", "C101", "C104"),
        weight=Weight.ECHO,
    ),
)
