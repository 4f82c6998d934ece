"""Explains the language of the filter, in the browser's help and in that of the command line."""

RULES = (
    "Words separated by spaces, all of which must match; prefix a word with ! to exclude it, quote words that "
    "contain spaces:"
)

# how a word is written, and what it keeps
WORDS = (
    ("conv", "the name contains this, in any case"),
    ("*.weight", "the name matches this pattern: * for anything, ? for one character, [01] for one of these"),
    ("dtype:bf16,f32", "one of these dtypes, by any of their names"),
    ("shape:64x3x*", 'the dimensions, joined by x; "scalar" for none'),
    ("device:cuda", "the device tag begins with this"),
    ("finding:N401", "a finding with this code, family, name or severity names it; * for any"),
    ("is:tied", "tied (the tensor has another name too), parameter, empty or meta"),
    (">1MB  <=4kB", "bytes, in kB, MB, GB, TB or KiB, MiB, GiB, TiB; size>1MB is the same"),
    (">1M  <1000  =1", "elements, as they are or in k, M, B"),
)
