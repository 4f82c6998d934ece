"""What of a broken file is intact, as a picture and in words."""

from __future__ import annotations

import pytest

from ckptdoctor.rendering.fates import LOST, PARTIAL, SAVED, Fate, byte_map, in_layers, in_natural_order, intact


def fate(name, nbytes, kind=SAVED):
    """The fate of a tensor."""
    return Fate((name,), "f32", (nbytes // 4,), nbytes, kind, kind)


FATES = [fate("h.0.w", 40), fate("h.1.w", 40, PARTIAL), fate("h.2.w", 60, LOST), fate("h.3.w", 40, LOST)]


@pytest.mark.parametrize(("cells", "drawn"), [(9, "██▒▒░░░░░"), (3, "▒▒░"), (0, "")])
def test_bytes_as_cells(cells, drawn):
    """Each cell stands for as many bytes; one with several kinds is in part."""
    assert byte_map(FATES, cells) == drawn


def test_what_is_lost_in_words():
    """Neighbouring layers as one."""
    assert intact(FATES) == "40 bytes of 180 bytes intact · lost: h 1–3"
    assert intact(FATES[:1]) == "40 bytes of 40 bytes intact"
    names = ["a.layers.7.x", "a.layers.3.x", "a.layers.4.y", "a.layers.3.z", "norm"]
    assert in_layers(names) == ["a.layers 3–4", "a.layers 7", "norm"]


def test_layers_are_in_the_order_of_their_numbers():
    """Also where a header has them in the order of letters, and a layer is not all in this file."""
    names = ["e.w", "h.10.a", "h.10.b", "h.11.a", "h.2.b", "h.3.a", "h.3.b", "z"]
    listed = in_natural_order([fate(name, 4) for name in names])
    assert [each.path[0] for each in listed] == ["e.w", "h.2.b", "h.3.a", "h.3.b", "h.10.a", "h.10.b", "h.11.a", "z"]
