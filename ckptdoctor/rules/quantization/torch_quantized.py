"""Weights are torch's own quantised tensors, as ``torch.ao.quantization`` leaves them after ``convert``.

Meaning
    A quantised tensor holds eight-bit integers with a scale and a zero point, one for all or one for each channel.
    Convolutions keep such a ``weight``; linear layers keep weight and bias together in a tuple under
    ``_packed_params._packed_params``; ``scale`` and ``zero_point`` next to them are those of the layer's output.

Why it matters
    A float model accepts none of it, and safetensors has no quantised dtypes. Only a model that was prepared and
    converted in the same way loads the file.

Symptoms
    Missing key(s) in state_dict: "fc.weight", "fc.bias".
    Unexpected key(s) in state_dict: "fc.scale", "fc.zero_point", "fc._packed_params.dtype", …
    Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor
    from a quantized Tensor

Detection
    Tensors of a quantised dtype. By itself such a file is exactly what torch writes, and the finding only names what
    opens it; an error where a target has the plain weight.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER --unsafe-fixes`` computes the plain weights: ``(number - zero_point) *
    scale``, in float64 and rounded once to the target's dtype; biases are taken out of their tuples, and the parts for
    outputs are dropped. Layers that were fused before quantising (a convolution with its batch norm) no longer have a
    counterpart for the norm.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.edits import Dequantize, Drop, Edit, Fix, Safety
from ckptdoctor.edits.quantization import AFFINE, SAME, TARGETS
from ckptdoctor.facts.quantization import dtype_of
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.quantized import TorchLayer, TorchQuantized, unfit_of
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.messages import CHECK
from ckptdoctor.rules.quantization.dequantizing import is_possible
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import rare_dtypes

_PLAIN: dict[str, object] = {"conv.weight": T((4, 1, 3, 3)), "fc.weight": T((6, 4)), "fc.bias": T((6,))}


# A convolution and a linear layer as ``torch.ao.quantization`` leaves them, for the examples
_HOOKS = b"ccollections\nOrderedDict\n)R"
_WIDTHS = {"QInt8Storage": 1, "FloatStorage": 4, "DoubleStorage": 8, "LongStorage": 8}


class _Saved:
    """Pickles and storages, as ``torch.save`` writes them."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []

    def storage(self, kind: str, values: bytes) -> bytes:
        self.storages.append(values)
        key, count = str(len(self.storages) - 1), len(values) // _WIDTHS[kind]
        return b"(" + _text("storage") + f"ctorch\n{kind}\n".encode() + _text(key) + _text("cpu") + _int(count) + b"tQ"

    def tensor(self, kind: str, values: bytes, shape: tuple[int, ...], quantizer: bytes = b"") -> bytes:
        maker = b"_rebuild_qtensor" if quantizer else b"_rebuild_tensor_v2"
        steps = [1]
        for size in reversed(shape[1:]):
            steps.insert(0, steps[0] * size)
        sizes = _ints(shape) + _ints(tuple(steps) if shape else ())
        rest = sizes + quantizer + b"\x89" + _HOOKS + b"tR"
        return b"ctorch._utils\n" + maker + b"\n(" + self.storage(kind, values) + _int(0) + rest

    def weight(self, shape: tuple[int, ...], by_channel: bool) -> bytes:
        count = 1
        for size in shape:
            count *= size
        values = bytes([(7 * at - 100) % 256 for at in range(count)])
        if not by_channel:
            scale = b"G" + struct.pack(">d", 0.0125)
            return self.tensor("QInt8Storage", values, shape, b"(ctorch\nper_tensor_affine\n" + scale + _int(3) + b"t")
        scales = struct.pack(f"<{shape[0]}d", *[0.01 * (at + 1) for at in range(shape[0])])
        parts = self.tensor("DoubleStorage", scales, shape[:1]) + self.tensor(
            "LongStorage", bytes(8 * shape[0]), shape[:1]
        )
        return self.tensor("QInt8Storage", values, shape, b"(ctorch\nper_channel_affine\n" + parts + _int(0) + b"t")

    def number(self, kind: str, value: bytes) -> bytes:
        return self.tensor(kind, value, ())


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _int(value: int) -> bytes:
    return b"K" + bytes([value])


def _ints(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_int, values)) + b"t"


def _converted(by_channel: bool) -> bytes:
    """Return a state dict with a convolution and a linear layer, each with its output's scale and zero point."""
    saved = _Saved()
    entries = {"conv.weight": saved.weight((4, 1, 3, 3), by_channel)}
    for name in ("conv", "fc"):
        entries[f"{name}.scale"] = saved.number("FloatStorage", struct.pack("<f", 0.5))
        entries[f"{name}.zero_point"] = saved.number("LongStorage", bytes(8))
    bias = saved.tensor("FloatStorage", struct.pack("<6f", *range(6)), (6,))
    entries["fc._packed_params.dtype"] = b"ctorch\nqint8\n"
    entries["fc._packed_params._packed_params"] = saved.weight((6, 4), by_channel) + bias + b"\x86"
    items = b"".join([_text(key) + value for key, value in entries.items()])
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}(" + items + b"u.")
        archive.writestr("archive/byteorder", b"little")
        for key, values in enumerate(saved.storages):
            archive.writestr(f"archive/data/{key}", values)
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


SIGNS = (
    Sign(
        "one side is quantised by torch itself (scale, zero_point, packed parameters), and the other is not",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among(r"_packed_params\.\w+|_packed_params"),
        unexpected=leaf_among(r"_packed_params\.\w+|_packed_params"),
        general=2,
    ),
    Sign(
        "one side is quantised by torch itself (scale, zero_point, packed parameters), and the other is not",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among("zero_point"),
        unexpected=leaf_among("zero_point"),
        beside=("scale",),
        general=2,
    ),
)
SICK = (
    Example("a file by itself", raw=partial(_converted, False)),
    Example("one scale for each weight", raw=partial(_converted, False), like=_PLAIN),
    Example("a scale for each channel", raw=partial(_converted, True), like=_PLAIN),
)
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("eight-bit integers", {"fc.weight": T((6, 4), "int8")}),
)

_CAUSE = (
    "These are torch's own quantised tensors, integers with scales and zero points, which only "
    "torch.ao.nn.quantized layers load."
)
_OPENS = (
    "Load it into a model that was prepared and converted in the same way (torch.ao.quantization), or take "
    "Tensor.dequantize() of the weights there."
)
_REFUSED = (
    "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor "
    "from a quantized Tensor"
)
_SCHEMES = {"per_tensor_affine": "one scale each", "per_channel_affine": "a scale for each channel"}


@rule("Q954", "torch-quantized", Severity.ERROR, when=rare_dtypes)
def torch_quantized(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report quantised tensors of torch."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    tensors = _quantized_tensors(checkpoint)
    if not tensors:
        return
    if isinstance(subject, Comparison):
        found = unfit_of(subject)
        if found.layers:
            yield _compared(subject, found)
        return
    yield Problem(
        message=_counted(tensors),
        cause=_CAUSE,
        advice=_OPENS,
        keys=tuple([tensor.path for tensor in tensors]),
        severity=Severity.INFO,
    )


def _counted(tensors: Sequence[Tensor]) -> str:
    kinds = Counter([f"{each.dtype.name}, {_scheme(each)}" for each in tensors])
    verb = "is" if len(tensors) == 1 else "are"
    shown = [f"{number:,} {kind}" for kind, number in kinds.most_common()]
    said = next(iter(kinds)) if len(kinds) == 1 else wording.listed(shown)
    return f"{wording.plural(len(tensors), 'tensor')} {verb} quantised by torch: {said}"


def _scheme(tensor: Tensor) -> str:
    found = str(dict(tensor.details).get("scheme", ""))
    return _SCHEMES.get(found, found or "with an unknown scheme")


def _compared(comparison: Comparison, found: TorchQuantized) -> Problem:
    missing = set(comparison.renamed.missing)
    names = [name for layer in found.layers for name in (layer.key, layer.bias_key)]
    absent = [name for name in names if name in missing]
    direct = any(layer.key in comparison.renamed.here for layer in found.layers)
    tensors = [layer.weight for layer in found.layers]
    gone = [str(path[-1]) for layer in found.layers for path in layer.gone]
    fix, advice = _fix(comparison, found)
    return Problem(
        message=f"{_counted(tensors)}; plain in {comparison.reference.source}",
        cause=_CAUSE,
        torch_says=(
            *((wording.missing_line(absent),) if absent else ()),
            *((wording.unexpected_line(gone),) if gone else ()),
            *((_REFUSED,) if direct else ()),
        ),
        advice=" ".join(filter(None, (advice, _OPENS))),
        keys=tuple([tensor.path for tensor in tensors]),
        location=Location(path=comparison.path),
        fix=fix,
    )


def _fix(comparison: Comparison, found: TorchQuantized) -> tuple[Fix | None, str]:
    edits: list[Edit] = []
    done: list[TorchLayer] = []
    for layer in found.layers:
        made = _edits(comparison, layer)
        edits += made
        done += [layer] if made else []
    known = set(map(id, done))
    odd = [layer.key for layer in found.layers if id(layer) not in known]
    number = wording.plural(len(odd), "weight")
    advice = f"{number} cannot be computed ({wording.abridged(odd)})." if odd else ""
    if not edits:
        return None, advice
    gone = [path for layer in done for path in layer.gone] + ([] if odd else list(found.buffers))
    drop = (Drop(tuple(dict.fromkeys(gone))),) if gone else ()
    title = f"compute {wording.plural(len(done), 'plain weight')}"
    return Fix(title, (*edits, *drop), Safety.UNSAFE, auto_option(comparison)), advice


def _edits(comparison: Comparison, layer: TorchLayer) -> list[Dequantize]:
    """Return the edits that make the weight plain, and lift its bias; none where the weight cannot be computed."""
    details, tensor = dict(layer.weight.details), layer.weight
    affine = (details.get("scale", 1.0), details.get("zero_point", 0))
    if not all(isinstance(each, (int, float)) for each in affine) or tensor.storage is None or tensor.moved:
        return []
    wanted = comparison.reference.tensors
    edits = [
        Dequantize(
            paths=(tensor.path,),
            key=layer.key,
            scheme=AFFINE,
            dtype=dtype_of(wanted[layer.key]) or "float32",
            place=comparison.path,
            block=(int(details.get("axis", 0)), 0),
            affine=(float(affine[0]), float(affine[1])),
        )
    ]
    if not is_possible(edits[0], [tensor, *tensor.parts]):
        return []
    if layer.bias is not None and layer.bias_key in wanted:
        dtype = layer.bias.dtype.name
        lifted = Dequantize((layer.bias.path,), layer.bias_key, SAME, dtype, comparison.path)
        if dtype not in TARGETS or not is_possible(lifted, [layer.bias]):
            return []
        edits.append(lifted)
    return edits


def _quantized_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """Return the quantised tensors anywhere in a checkpoint."""
    return [tensor for tensor in checkpoint.tensors if tensor.dtype.kind == "quantized"]
