"""What of a broken file is intact, as a picture and in words."""

from __future__ import annotations

import pytest

from ckptdoctor.rendering.fates import LOST, PARTIAL, SAVED, Fate, byte_map, in_layers, intact


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
