"""Reports made by hand from the nouns, for the tests of the renderers."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Container, Mapping, Opaque, Role, Sequence, StateDict, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Fix, Retag, Safety
from ckptdoctor.findings import Coverage, CoverageStep, FileReport, Finding, Location, Severity, Skipped

SKIPPED = (Skipped("checksums and values", "--deep"), Skipped("fit to a model", "--like"))


def tensor(*path, shape=(64, 3, 7, 7), device="cuda:0", key=None, dtype="float32"):
    """One contiguous tensor on a storage of its own."""
    kind = BY_NAME[dtype]
    numel = 1
    for size in shape:
        numel *= size
    storage = Storage(key or "/".join(map(str, path)), numel * kind.bits // 8, kind, device, None)
    return Tensor(tuple(path), kind, shape, contiguous_stride(shape), storage, device=device)


def checkpoint(path="runs/resnet50.pt", prefix="module."):
    """A training checkpoint: model, optimizer, and other contents."""
    model = [
        tensor("state_dict", f"{prefix}conv1.weight"),
        tensor("state_dict", f"{prefix}bn1.weight", shape=(64,)),
        tensor("state_dict", f"{prefix}fc.weight", shape=(1000, 2048)),
    ]
    momentum = [tensor("optimizer", "state", i, "momentum_buffer", shape=each.shape) for i, each in enumerate(model)]
    groups = Sequence("list", (Mapping("dict", (("lr", 0.1), ("momentum", 0.9))),))
    optimizer = Mapping(
        "dict",
        (
            (
                "state",
                Mapping(
                    "dict", tuple((i, Mapping("dict", (("momentum_buffer", each),))) for i, each in enumerate(momentum))
                ),
            ),
            ("param_groups", groups),
        ),
    )
    tree = Mapping(
        "dict",
        (
            ("state_dict", Mapping("collections.OrderedDict", tuple((each.key, each) for each in model))),
            ("optimizer", optimizer),
            ("epoch", 41),
            ("args", Opaque("argparse.Namespace", state=Mapping("dict", (("lr", 0.1), ("arch", "resnet50"))))),
        ),
    )
    tensors = (*model, *momentum)
    return Checkpoint(
        path=path,
        format="torch zip",
        size=307_123_456,
        tree=tree,
        tensors=tensors,
        storages=tuple(each.storage for each in tensors),
        state_dicts=(
            StateDict(("state_dict",), Role.MODEL, tuple(model)),
            StateDict(("optimizer",), Role.OPTIMIZER, tuple(momentum)),
        ),
        bytes_read=61_000,
    )


def report(*findings, path="runs/resnet50.pt", **others):
    """The report on ``checkpoint``."""
    contents = others.pop("checkpoint", checkpoint(path))
    container = Container(path, contents.size, contents.format, b"PK", True)
    return FileReport(path, container, contents, tuple(findings), SKIPPED, seconds=0.071, bytes_read=61_000, **others)


def damaged(error=None, *findings):
    """The report on a file whose contents cannot be read."""
    container = Container("web.pt", 812, "HTML page", b"<html>", False, "Download it again.")
    skipped = (Skipped("the contents", "web.pt is an HTML page"),)
    return FileReport("web.pt", container, None, tuple(findings), skipped, seconds=0.01, bytes_read=812, error=error)


MODULE_PREFIX = Finding(
    "N401",
    "module-prefix",
    Severity.ERROR,
    'all 3 keys of state_dict begin with "module."',
    cause="Saved from a model wrapped in DataParallel or DistributedDataParallel. "
    "Loading it into the bare model fails:",
    torch_says=(
        'Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …',
        'Unexpected key(s) in state_dict: "module.conv1.weight", "module.bn1.weight", …',
    ),
    keys=(("state_dict", "module.conv1.weight"), ("state_dict", "module.bn1.weight")),
    fix=Fix('strip the leading "module."', (Retag("cpu"),), Safety.SAFE, "--strip-module"),
)
CUDA_TAG = Finding(
    "D601",
    "cuda-tag",
    Severity.WARNING,
    "6 storages are tagged cuda:0",
    cause='On a machine without CUDA torch.load needs map_location="cpu".',
    fix=Fix("tag them cpu", (Retag("cpu"),), Safety.SAFE, "--to-cpu"),
)
SHARED = Finding(
    "A701",
    "shared-tensors",
    Severity.INFO,
    "2 tensors share one storage",
    advice="safetensors refuses them: ckptdoctor fix FILE --select A701 gives each its own.",
    keys=tuple(("state_dict", f"block.{i}.weight") for i in range(9)),
    location=Location(member="archive/data.pkl", offset=1234),
    fix=Fix("give each its own storage", (), Safety.UNSAFE, "--select A701"),
)
COVERAGE = Coverage(
    "base.pt",
    ("state_dict",),
    total_keys=320,
    total_parameters=25_600_000,
    keys=0,
    parameters=0,
    steps=(
        CoverageStep("extract state_dict", "W301", 0, 0),
        CoverageStep('strip "module."', "N401", 320, 25_600_000),
    ),
)
