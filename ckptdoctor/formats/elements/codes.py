"""The numbers that quantised bytes stand for."""

from __future__ import annotations

from functools import cache
from math import inf, ldexp, nan

# bits of the mantissa, what is taken from the exponent, and whether there are infinite numbers
_FLOAT8 = {
    "float8_e4m3fn": (3, 7, False),
    "float8_e4m3fnuz": (3, 8, False),
    "float8_e5m2": (2, 15, True),
    "float8_e5m2fnuz": (2, 16, False),
}


@cache
def numbers(dtype: str) -> tuple[float, ...]:
    """The number that each of the 256 bytes is. Source: the formats of "FP8 Formats for Deep Learning" and of ONNX."""
    if dtype in ("int8", "qint8"):
        return tuple([float(byte - 256 if byte > 127 else byte) for byte in range(256)])
    if dtype in ("uint8", "quint8"):
        return tuple(map(float, range(256)))
    if dtype == "float8_e8m0fnu":
        return (*[ldexp(1.0, byte - 127) for byte in range(255)], nan)
    return tuple([_float8(byte, dtype) for byte in range(256)])


def _float8(byte: int, dtype: str) -> float:
    digits, bias, infinite = _FLOAT8[dtype]
    exponent, mantissa = (byte & 0x7F) >> digits, byte & ((1 << digits) - 1)
    sign = -1.0 if byte & 0x80 else 1.0
    if dtype.endswith("fnuz"):
        if byte == 0x80:
            return nan
    elif infinite:
        if exponent == 31:
            return nan if mantissa else sign * inf
    elif byte & 0x7F == 0x7F:
        return nan
    whole = mantissa if exponent == 0 else mantissa + (1 << digits)
    return sign * ldexp(float(whole), max(exponent, 1) - bias - digits)
