"""Parameters whose shapes agree and which torch could not copy: ``load_state_dict`` says why behind "an exception"."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, Message, Way

# torch.nn.modules.module.Module._load_from_state_dict, torch 1.12 to 2.13; before it named the dimensions only
_SAYS = ("While copying the parameter named", "While swapping the parameter named")
_NAMED = r"[\"']?(?P<key>[^\"']{1,1000}?)[\"']?,whosedimensionsinthemodelare.{1,400}?anexceptionoccurred:"
_WHOLE = Way(
    "if the model is the sharded one, load whole tensors with",
    "torch.distributed.checkpoint.state_dict.set_model_state_dict(model, weights,"
    " options=torch.distributed.checkpoint.state_dict.StateDictOptions(full_state_dict=True))",
)

MESSAGES = (
    Message(
        "X810",
        _SAYS,
        "one of {key} in the file and in the model is a DTensor, of which each rank has a part (FSDP2, tensor"
        " parallelism), and the other is a plain tensor; their shapes agree",
        (_WHOLE, Way("or see whether the file has them", "ckptdoctor check FILE")),
        then=_NAMED + r".{0,200}?DTensor",
        also=("A710", "X811"),
    ),
    Message(
        "A710",
        _SAYS,
        "{key} is a tensor of a class of its own (torchao, quanto, bitsandbytes) in the file or in the model, and a"
        " plain one on the other side; their shapes agree, and nothing copies one into the other",
        (
            Way(
                "if the file has them, quantise the model in the same way, then",
                "model.load_state_dict(weights, assign=True)",
            ),
            Way("or see what the file has", "ckptdoctor check FILE"),
        ),
        then=_NAMED
        + r".{0,300}?(?:AffineQuantized|dispatch:attemptingtorun|torchao|LinearActivation|NF4Tensor|Float8Tensor"
        r"|Int4Tensor|Int8Tensor|QTensor|QBitsTensor|WeightQBytes|metadatamis)",
        also=("X810", "Q954"),
    ),
    Message(
        "D606",
        _SAYS,
        "{key} has no data (it is on the meta device), in the file or in the model, so that there is nothing to copy",
        (
            Way("if it is the model", "model.load_state_dict(weights, assign=True)"),
            Way("see whether it is the file", "ckptdoctor check FILE"),
        ),
        then=_NAMED + r".{0,200}?(?:metatensor|isonthemetadevice|'meta')",
    ),
    Message(
        "",
        _SAYS,
        "the memory of the device ended while {key} was copied: the file is not to blame",
        (Way("load the file into the memory of the CPU first", 'torch.load(path, map_location="cpu")'),),
        then=_NAMED + r".{0,200}?(?:outofmemory|notenoughmemory)",
    ),
    Message(
        "",
        _SAYS,
        "{key} could not be copied though its shapes agree: what the message says behind “an exception occurred” is the"
        " cause. No command of ckptdoctor is known to help; whether the file has anything odd is told by",
        (CHECK,),
        then=_NAMED,
        also=("A710", "X810"),
    ),
)
