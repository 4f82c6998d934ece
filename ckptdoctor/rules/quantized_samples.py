"""A convolution and a linear layer as ``torch.ao.quantization`` leaves them, for the examples of rules."""

from __future__ import annotations

import struct

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


def converted(by_channel: bool) -> bytes:
    """A state dict with a convolution and a linear layer, each with its output's scale and zero point."""
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
