"""The safetensors library, in the wording of every version."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, SAFE, Message, Way

_AGAIN = Way("then", "copy or download it again, and compare its size with the source's")

MESSAGES = (
    Message(
        "F001",
        ("HeaderTooLarge", "header too large"),
        "the first eight bytes are not the length of a header that safetensors reads: the file is not in the format,"
        " and most such files are Git LFS pointers, error pages of a download, or torch files under another name."
        " Only a file with about a million tensors has a header that is really longer than 100 MB",
        (CHECK, Way("if it is an LFS pointer", "git lfs pull")),
        also=("F002", "F003", "C101", "C102", "C112"),
    ),
    Message(
        "F004",
        ("HeaderTooSmall", "header too small"),
        "the file has fewer than the eight bytes that every safetensors file begins with: it is empty or nearly so",
        (CHECK, _AGAIN),
        also=("C102", "C101", "F007"),
    ),
    Message(
        "F007",
        ("InvalidHeaderLength", "invalid header length"),
        "the file ends within its header: the download or the save was cut short",
        (CHECK, _AGAIN),
    ),
    Message(
        "F007",
        ("MetadataIncompleteBuffer", "file not fully covered"),
        "the file is not as long as its header says: it was cut short or, less often, something was appended to it",
        (CHECK, _AGAIN),
        also=("F008",),
    ),
    Message(
        "T559",
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "the file holds {dtype} tensors, a data type that this version of safetensors does not know",
        (Way("upgrade it", "pip install --upgrade safetensors"),),
        then=r".{0,200}?unknownvariant`(?P<dtype>[A-Z][\w]{1,20})`,expectedoneof",
    ),
    Message(
        "M972",
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "a value in the metadata of the safetensors file is not text, which is all that may stand there",
        (CHECK, SAFE),
        then=r".{0,200}?invalidtype:(?:null|integer|map|boolean|sequence|floatingpoint).{0,80}?expectedastring",
        also=("C110",),
    ),
    Message(
        "C110",
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "the header is not the JSON that safetensors wants: the writer made it wrong, or the file is empty of data or"
        " nothing but zero bytes",
        (CHECK, SAFE),
        also=("F010", "L903"),
    ),
    Message(
        "C110",
        ("InvalidHeaderStart", "invalid start character in header", "InvalidHeader:", "invalid UTF-8 in header"),
        "the header is not the JSON object that safetensors wants: the file is of another format, or damaged",
        (CHECK,),
        also=("C101", "F010"),
    ),
    Message(
        "C111",
        ("InvalidOffset", "invalid offset for tensor"),
        "tensors overlap or leave gaps in the file (tied weights written once, for one), which safetensors refuses",
        (CHECK, SAFE),
    ),
    Message(
        "C111",
        ("TensorInvalidInfo", "invalid shape, data type, or offset"),
        "the header gives a tensor a length that does not fit its shape and data type",
        (CHECK,),
        also=("F015",),
    ),
    Message(
        "T559",
        ("unknown variant",),
        "the file holds {dtype} tensors, a data type that this version of safetensors does not know",
        (Way("upgrade it", "pip install --upgrade safetensors"),),
        then=r"`(?P<dtype>[A-Z][\w]{1,20})`,expectedoneof",
    ),
    Message(
        "M971",
        ("'NoneType' object has no attribute 'get'",),
        "the safetensors file has no metadata, and the loader asks it for the format: save_file writes none unless told"
        " to",
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
        near=("metadata", "safe_open", "safetensors"),
    ),
    Message(
        "M971",
        ("does not contain a valid metadata", "does not contain the valid metadata"),
        'the safetensors file does not say that it is for torch ("format": "pt" in its metadata)',
        (SAFE, Way("or save it with", 'save_file(tensors, path, metadata=dict(format="pt"))')),
    ),
    Message(
        "M972",
        ("invalid type: null, expected a string", "invalid type: integer", "invalid type: map, expected a string"),
        "a value in the metadata of the safetensors file is not text, which is all that may stand there",
        (CHECK, SAFE),
        also=("C110",),
    ),
    Message(
        "A701",
        ("Some tensors share memory",),
        "several names stand for the same memory (tied weights); save_file would write it once for each and refuses",
        (
            Way("save with", 'safetensors.torch.save_model(model, "model.safetensors")'),
            Way("or see which", "ckptdoctor check FILE --select A701"),
        ),
        also=("A706",),
    ),
    Message(
        "A701",
        ("Error while trying to find names to remove to save state dict",),
        "tensors are views of one buffer of which none covers it whole, so safetensors cannot choose one to keep",
        (Way("save a copy of each", "tensor.clone()"),),
        also=("A706",),
    ),
    Message(
        "X804",
        ("File does not contain tensor", "file does not contain tensor"),
        "the file lacks {key}, which an index or the program looks for in it",
        (Way("see what it has", "ckptdoctor show FILE"),),
        then=r"[`'\"]?(?P<key>[\w.]{1,300})",
        also=("X803", "R001"),
    ),
    Message(
        "A707",
        ("You are trying to save a non contiguous tensor",),
        "the tensor {key} does not lie in memory row by row (a transpose, a slice, channels_last), which save_file"
        " refuses",
        (Way("save a packed copy of it", "tensor.contiguous()"),),
        then=r":`(?P<key>[^`]{1,500})`",
    ),
    Message(
        "A709",
        ("You are trying to save a sparse tensors",),
        "safetensors holds dense tensors only",
        (Way("save a dense copy", "tensor.to_dense()"),),
    ),
    Message(
        "W307",
        ("is invalid, expected torch.Tensor but received",),
        "something in the dict is no tensor ({kind}), and safetensors holds nothing else",
        (Way("leave out what is not", "isinstance(value, torch.Tensor)"),),
        then=r"<class'(?P<kind>[\w.]{1,100})'>",
        also=("W306",),
    ),
)
