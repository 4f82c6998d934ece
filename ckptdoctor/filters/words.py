"""Explains the language of the filter, in the browser's help and in that of the command line."""

RULES = "Words between spaces, all of which must hold; ! before one turns it round, quotes keep spaces together:"

# how a word is written, and what it keeps
WORDS = (
    ("conv", "the name has this in it, whatever the case"),
    ("*.weight", "the name is like this: * for anything, ? for one character, [01] for one of these"),
    ("dtype:bf16,f32", "one of these dtypes, by any of their names"),
    ("shape:64x3x*", 'the dimensions, joined by x; "scalar" for none'),
    ("device:cuda", "the device tag begins with this"),
    ("finding:N401", "a finding of this code, family, name or severity speaks of it; * for any"),
    ("is:tied", "another name of the same tensor is there: tied, parameter, empty, meta"),
    (">1MB  <=4kB", "bytes: B, kB, MB, GB, TB and KiB, MiB, GiB, TiB"),
    (">1M  <1000  =1", "elements: nothing, k, M, B"),
)
