"""Recognises other frameworks' files that have no magic at a fixed place: ONNX, TensorFlow, MessagePack."""

from __future__ import annotations

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.magic import Found

# the last bytes of a TensorFlow checkpoint's index (leveldb's table format)
_TABLE_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")

_ONNX = "onnx.load reads it; its weights are its graph's initializers."
_SAVED_MODEL = "tf.saved_model.load reads the folder that it is in."
_TABLE = 'tf.train.load_checkpoint reads it, by its path without ".index".'
_FLAX = "flax.serialization.msgpack_restore reads it; transformers can convert Flax weights (from_flax=True)."

_NEWEST_IR = 32  # ONNX's ir_version is 13 today
_LONGEST_TEXT = 100


def recognise_model(source: Source, head: bytes) -> Found | None:
    """Return another framework's model."""
    if source.size >= 48 and source.read(source.size - 8, 8) == _TABLE_MAGIC:
        return Found("TensorFlow checkpoint", _TABLE)
    if _is_onnx(head):
        return Found("ONNX model", _ONNX)
    if head.startswith(b"\x08\x01\x12"):  # schema version 1, then a meta graph
        return Found("TensorFlow SavedModel", _SAVED_MODEL)
    if _is_message_pack(head):
        return Found("MessagePack file", _FLAX)
    return None


def _is_onnx(head: bytes) -> bool:
    """Recognise a ModelProto: field 1 (ir_version), then producer_name (2), graph (7) or opset_import (8)."""
    if len(head) < 8 or head[0] != 0x08 or not 0 < head[1] <= _NEWEST_IR:
        return False
    length = head[3]
    if head[2] == 0x12:
        return length <= _LONGEST_TEXT and _is_text(head[4 : 4 + length])
    return head[1] > 2 and (head[2] == 0x3A or (head[2] == 0x42 and length <= _LONGEST_TEXT))


def _is_message_pack(head: bytes) -> bool:
    """Recognise a map whose first key is text, as ``flax.serialization.to_bytes`` writes a parameter tree."""
    start = {0xDE: 3, 0xDF: 5}.get(head[0], 1)
    if head[0] not in range(0x81, 0x90) and start == 1:
        return False
    mark = head[start : start + 1]
    if not mark or not 0xA1 <= mark[0] <= 0xBF:
        return False
    length = mark[0] - 0xA0
    key = head[start + 1 : start + 1 + length]
    return len(key) == length and _is_text(key)


def _is_text(data: bytes) -> bool:
    return data.isascii() and data.decode("ascii").isprintable()
