"""Lists every dtype of torch 2.13 and of safetensors 0.8: width, kind, and its name in each container.

Sources: the dtypes and storage classes that ``torch`` exports, and the ``Dtype`` list of the safetensors crate.
"""

from __future__ import annotations

from ckptdoctor.noun import noun


@noun
class DType:
    """One element type.

    ``bits`` is what one element takes in a storage. ``kind`` is float, complex, int, uint, bool, quantized or bits.
    ``mantissa`` and ``exponent`` are the bits of a float's two parts (0 for other kinds).
    ``storage_class`` is the typed storage class that torch.save names, None where it uses UntypedStorage.
    """

    name: str
    bits: int
    kind: str
    short: str
    safetensors: str | None = None
    storage_class: str | None = None
    mantissa: int = 0
    exponent: int = 0


def _float(name: str, bits: int, short: str, code: str | None, cls: str | None, mantissa: int, exponent: int) -> DType:
    return DType(name, bits, "float", short, code, cls, mantissa, exponent)


_ALL = (
    _float("float64", 64, "f64", "F64", "DoubleStorage", 52, 11),
    _float("float32", 32, "f32", "F32", "FloatStorage", 23, 8),
    _float("float16", 16, "f16", "F16", "HalfStorage", 10, 5),
    _float("bfloat16", 16, "bf16", "BF16", "BFloat16Storage", 7, 8),
    _float("float8_e4m3fn", 8, "f8e4m3", "F8_E4M3", None, 3, 4),
    _float("float8_e4m3fnuz", 8, "f8e4m3z", "F8_E4M3FNUZ", None, 3, 4),
    _float("float8_e5m2", 8, "f8e5m2", "F8_E5M2", None, 2, 5),
    _float("float8_e5m2fnuz", 8, "f8e5m2z", "F8_E5M2FNUZ", None, 2, 5),
    _float("float8_e8m0fnu", 8, "f8e8m0", "F8_E8M0", None, 0, 8),
    _float("float4_e2m1fn_x2", 8, "f4x2", None, None, 1, 2),
    _float("float4_e2m1fn", 4, "f4", "F4", None, 1, 2),
    _float("float6_e2m3fn", 6, "f6e2m3", "F6_E2M3", None, 3, 2),
    _float("float6_e3m2fn", 6, "f6e3m2", "F6_E3M2", None, 2, 3),
    DType("complex128", 128, "complex", "c128", None, "ComplexDoubleStorage", 52, 11),
    DType("complex64", 64, "complex", "c64", "C64", "ComplexFloatStorage", 23, 8),
    DType("complex32", 32, "complex", "c32", None, None, 10, 5),
    DType("int64", 64, "int", "i64", "I64", "LongStorage"),
    DType("int32", 32, "int", "i32", "I32", "IntStorage"),
    DType("int16", 16, "int", "i16", "I16", "ShortStorage"),
    DType("int8", 8, "int", "i8", "I8", "CharStorage"),
    DType("uint64", 64, "uint", "u64", "U64"),
    DType("uint32", 32, "uint", "u32", "U32"),
    DType("uint16", 16, "uint", "u16", "U16"),
    DType("uint8", 8, "uint", "u8", "U8", "ByteStorage"),
    DType("bool", 8, "bool", "bool", "BOOL", "BoolStorage"),
    DType("qint8", 8, "quantized", "qi8", None, "QInt8Storage"),
    DType("quint8", 8, "quantized", "qu8", None, "QUInt8Storage"),
    DType("qint32", 32, "quantized", "qi32", None, "QInt32Storage"),
    # torch counts storage bytes of these by element of the packed view: quint4x2 two and quint2x4 four to a byte
    DType("quint4x2", 4, "quantized", "qu4x2", None, "QUInt4x2Storage"),
    DType("quint2x4", 2, "quantized", "qu2x4", None, "QUInt2x4Storage"),
    DType("bits8", 8, "bits", "bits8"),
    DType("bits16", 16, "bits", "bits16"),
    DType("bits1x8", 8, "bits", "bits1x8"),
    DType("bits2x4", 8, "bits", "bits2x4"),
    DType("bits4x2", 8, "bits", "bits4x2"),
    # the sub-byte shells of torch.intN and torch.uintN take one byte an element (torch.dtype.itemsize is 1)
    *(DType(f"uint{n}", 8, "uint", f"u{n}") for n in range(1, 8)),
    *(DType(f"int{n}", 8, "int", f"i{n}") for n in range(1, 8)),
)

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}
BY_SAFETENSORS: dict[str, DType] = {dtype.safetensors: dtype for dtype in _ALL if dtype.safetensors}
BY_STORAGE_CLASS: dict[str, DType] = {dtype.storage_class: dtype for dtype in _ALL if dtype.storage_class}


def cast_loses_values(source: DType, target: DType) -> bool:
    """Return whether some value of ``source`` cannot be held exactly by ``target``."""
    if source == target:
        return False
    if source.kind in ("float", "complex") and target.kind in ("float", "complex"):
        smaller = target.mantissa < source.mantissa or target.exponent < source.exponent
        # float8_e4m3fn and float8_e4m3fnuz split their bits alike and have other biases: neither holds all of the other
        same = (target.mantissa, target.exponent) == (source.mantissa, source.exponent) and target.kind == source.kind
        return smaller or same or (source.kind == "complex" and target.kind == "float")
    if source.kind == "bool":
        return target.kind not in ("int", "uint", "float", "complex")
    if source.kind in ("int", "uint") and target.kind in ("float", "complex"):
        return source.bits > target.mantissa + 1
    if (source.kind, target.kind) == ("uint", "int"):
        return source.bits >= target.bits
    if source.kind == target.kind and source.kind in ("int", "uint"):
        return source.bits > target.bits
    return True


# what NumPy names the function that makes a number (numpy.generic.__reduce__)
NUMPY_SCALARS = frozenset({"numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar"})

# and the one that makes an array, before its state fills it (numpy.ndarray.__reduce__)
NUMPY_MAKERS = frozenset({"numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct"})

# and the one that makes it of its bytes, in pickles of protocol 5 (numpy.ndarray.__reduce_ex__)
NUMPY_BUFFERS = frozenset({"numpy._core.numeric._frombuffer", "numpy.core.numeric._frombuffer"})

# NumPy's codes (kind and bytes) of the element types that torch has, too
NUMPY_ELEMENTS = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "c16": "complex128",
    "c8": "complex64",
    "b1": "bool",
    "i8": "int64",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u8": "uint64",
    "u4": "uint32",
    "u2": "uint16",
    "u1": "uint8",
}


def little_endian(values: bytes, dtype: DType) -> bytes:
    """Return big-endian elements in the byte order of checkpoints.

    The two numbers of a complex one keep their places.
    """
    width = dtype.bits // (16 if dtype.kind == "complex" else 8)
    turned = bytearray(len(values))
    for at in range(width):
        turned[at::width] = values[width - 1 - at :: width]
    return bytes(turned)
