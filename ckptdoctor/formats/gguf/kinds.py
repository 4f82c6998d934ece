"""Lists the element types of GGUF: how many elements a block has, how many bytes it takes, and what torch calls them.

Source: ``GGML_QUANT_SIZES`` of llama.cpp's gguf package 0.19 (``gguf/constants.py``), which follows ``ggml.h``.
"""

from __future__ import annotations

from ckptdoctor.noun import noun


@noun
class Kind:
    """One element type. ``dtype`` is that of torch, None where elements are packed in blocks with their scales."""

    name: str
    elements: int
    nbytes: int
    dtype: str | None = None


KINDS: dict[int, Kind] = {
    0: Kind("F32", 1, 4, "float32"),
    1: Kind("F16", 1, 2, "float16"),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    9: Kind("Q8_1", 32, 40),
    10: Kind("Q2_K", 256, 84),
    11: Kind("Q3_K", 256, 110),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    15: Kind("Q8_K", 256, 292),
    16: Kind("IQ2_XXS", 256, 66),
    17: Kind("IQ2_XS", 256, 74),
    18: Kind("IQ3_XXS", 256, 98),
    19: Kind("IQ1_S", 256, 50),
    20: Kind("IQ4_NL", 32, 18),
    21: Kind("IQ3_S", 256, 110),
    22: Kind("IQ2_S", 256, 82),
    23: Kind("IQ4_XS", 256, 136),
    24: Kind("I8", 1, 1, "int8"),
    25: Kind("I16", 1, 2, "int16"),
    26: Kind("I32", 1, 4, "int32"),
    27: Kind("I64", 1, 8, "int64"),
    28: Kind("F64", 1, 8, "float64"),
    29: Kind("IQ1_M", 256, 56),
    30: Kind("BF16", 1, 2, "bfloat16"),
    34: Kind("TQ1_0", 256, 54),
    35: Kind("TQ2_0", 256, 66),
    39: Kind("MXFP4", 32, 17),
    40: Kind("NVFP4", 64, 36),
    41: Kind("Q1_0", 128, 18),
}
BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS.values()}

# what the class of a tensor begins with that is packed in blocks: ``gguf.Q4_K``
PACKED = "gguf."
