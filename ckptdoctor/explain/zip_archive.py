"""Archives of torch that are cut short, damaged, or made for another reader."""

from __future__ import annotations

from ckptdoctor.explain.message import CHECK, DEEP, SAFE, Message, Way, Weight

MESSAGES = (
    Message(
        "F005",
        ("failed finding central directory",),
        "the archive has no end: the download or the save was cut short, or several processes wrote the same file",
        (CHECK, Way("then", "copy or download it again, and compare its size with the source's")),
    ),
    Message(
        "F005",
        ("[Errno 22] Invalid argument",),
        "torch looked for the end of the archive and found none: the file was cut short",
        (CHECK, Way("then", "copy or download it again, and compare its size with the source's")),
        near=("torch/serialization", "torch\\serialization", "PyTorchFileReader"),
    ),
    Message(
        "C101",
        ("failed reading zip archive: not a ZIP archive",),
        "the file is not the archive that torch.save has written since 1.6: it is in the older format, of another kind,"
        " or damaged at its beginning",
        (CHECK,),
        also=("C105", "F001", "F002", "F014"),
    ),
    Message(
        "F011",
        ("invalid header or archive is corrupted",),
        "one record of the archive is damaged, or is not as long as its tensor",
        (CHECK, DEEP),
    ),
    Message(
        "C108",
        ("failed locating file constants.pkl", "file not found: archive/constants.pkl"),
        "torch.jit.load, Triton or libtorch were given a file that torch.save wrote: it holds weights, but no program",
        (
            Way("load it with", "torch.load(path)"),
            Way("or make a program of the model", 'torch.jit.script(model).save("model.ts")'),
        ),
    ),
    Message(
        "F011",
        ("failed locating file",),
        "the archive lacks a record that a checkpoint must have ({member})",
        (CHECK,),
        then=r"(?P<member>[\w./-]{1,200}?)(?=:|$|\.?\s)",
        also=("C102", "F014"),
    ),
    Message(
        "C102",
        ("file in archive is not in a subdirectory",),
        "the file is a zip archive somebody made of a checkpoint; the checkpoint is inside it",
        (Way("unpack it", "unzip FILE"), CHECK),
    ),
    Message(
        "C106",
        ("Attempted to read a PyTorch file with version",),
        "the file was written in version {found} of torch's format; this torch reads up to {known}: it is too old",
        (Way("upgrade torch", "pip install --upgrade torch"), CHECK),
        then=r"(?P<found>\d{1,9}),butthemaximumsupportedversionforreadingis(?P<known>\d{1,9})",
    ),
    Message(
        "C107",
        ("with TorchScript archives passed to", "looks like a TorchScript archive"),
        "the file is a program that torch.jit.save wrote, not a state dict",
        (Way("load it with", 'torch.jit.load(path, map_location="cpu").state_dict()'),),
    ),
    Message(
        "C107",
        ("ScriptModule' object is not subscriptable", "ScriptModule' object has no attribute"),
        "the file is a program that torch.jit.save wrote: it is a module, not a dict of weights",
        (Way("take its weights with", "module.state_dict()"),),
    ),
    Message(
        "F006",
        ("unexpected EOF, expected",),
        "the file, in the format from before torch 1.6, is cut short: {bytes} bytes are missing from one storage on",
        (CHECK, Way("then", "copy or download it again")),
        then=r"(?P<bytes>\d{1,30})morebytes",
    ),
    Message(
        "F010",
        ("legacy .tar format", "filename 'storages' not found"),
        "torch took the file for a tar archive. Few files are: most that say so are nothing but zero bytes,"
        " from a download or a save that was broken off",
        (CHECK, Way("then", "copy or download it again")),
        also=("C105",),
    ),
    Message(
        "C104",
        ("Invalid magic number; corrupt file?",),
        "the file is a pickle, but torch.save did not write it: pickle.dump, joblib or another library did",
        (CHECK,),
        also=("F014", "P204"),
    ),
    Message(
        "C105",
        ("mmap can only be used with files saved with",),
        "the file is in the format from before torch 1.6, which cannot be mapped into memory",
        (SAFE, Way("or load it with", "torch.load(path)")),
    ),
    Message(
        "C113",
        ("storage has wrong size: expected",),
        "a storage's length does not make sense: the file is damaged, or was written with the other byte order",
        (CHECK,),
        then=r"-?\d{1,30}got-?\d{1,30}",
        also=("F006", "F014"),
    ),
    Message(
        "F004",
        ("EOFError: Ran out of input", "Ran out of input"),
        "the file is empty: a save that failed, a full disk, or a download that never began",
        (CHECK, Way("then", "go back to the checkpoint before it")),
    ),
    Message(
        "F004",
        ("EOFError",),
        "the file ended before its contents began: it is empty or was cut short",
        (CHECK,),
        then=r"(?!:EOFwhen)",
        also=("F006", "F014"),
        among=("torch.load", "serialization", "pickle"),
        weight=Weight.ECHO,
    ),
)
