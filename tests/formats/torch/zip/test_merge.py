"""Range copies that continue each other become one."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.formats.torch.zip.writer import bridged
from ckptdoctor.writing import Copy, Generated, Literal

ORIGINAL = bytes(range(200))


def written(segments, original=ORIGINAL):
    """The bytes that the segments stand for."""
    parts = []
    for segment in segments:
        if isinstance(segment, Copy):
            parts.append(original[segment.offset : segment.offset + segment.length])
        elif isinstance(segment, Literal):
            parts.append(segment.data)
        else:
            parts += segment.chunks()
    return b"".join(parts)


def source_in(folder):
    (folder / "original").write_bytes(ORIGINAL)
    return FileSource(folder / "original")


def test_literal_that_stands_in_the_original(tmp_path):
    """A header between two copies that is the original's own is copied along with them."""
    with source_in(tmp_path) as source:
        segments = [Copy(0, 10), Literal(ORIGINAL[10:15]), Copy(15, 5), Copy(20, 5), Literal(b"end")]
        assert bridged(segments, source) == (Copy(0, 25), Literal(b"end"))


def test_what_differs_stays(tmp_path):
    """Other bytes, another place, or bytes made anew keep copies apart."""
    with source_in(tmp_path) as source:
        made = Generated(1, lambda: iter([b"x"]))
        for segments in (
            [Copy(0, 10), Literal(b"xxxxx"), Copy(15, 5)],
            [Copy(0, 10), Literal(ORIGINAL[10:15]), Copy(16, 5)],
            [Copy(0, 10), Copy(9, 5)],
            [Copy(0, 10), made, Copy(11, 5)],
            [Literal(b"a"), Copy(0, 5)],
        ):
            assert bridged(segments, source) == tuple(segments)


segment = st.one_of(
    st.binary(min_size=1, max_size=4).map(Literal),
    st.tuples(st.integers(0, 190), st.integers(1, 10)).map(lambda pair: Copy(*pair)),
    st.tuples(st.integers(0, 190), st.integers(1, 10)).map(lambda pair: Literal(ORIGINAL[pair[0] : sum(pair)])),
)


@settings(max_examples=200, deadline=None)
@given(
    segments=st.lists(segment, max_size=12), cuts=st.sets(st.integers(1, 199), max_size=12), flips=st.integers(0, 4095)
)
def test_same_bytes(tmp_path_factory, segments, cuts, flips):
    """Merging never changes what is written; a file cut into copies and its own bytes becomes one copy again."""
    edges = [0, *sorted(cuts), 200]
    spans = list(pairwise(edges))
    whole = [
        Literal(ORIGINAL[low:high]) if flips >> place & 1 and 0 < place < len(spans) - 1 else Copy(low, high - low)
        for place, (low, high) in enumerate(spans)
    ]
    with source_in(tmp_path_factory.mktemp("merge")) as source:
        assert written(bridged(segments, source)) == written(segments)
        assert written(bridged(whole, source)) == ORIGINAL
