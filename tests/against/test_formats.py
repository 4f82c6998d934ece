"""Tensors that are packed by the gguf package itself, and by whoever chooses other scales."""

from __future__ import annotations

import numpy as np
import pytest

import ckptdoctor
from tests.against.exports import exported, llama
from tests.against.test_against import failures, stored, verdicts


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
def test_what_the_gguf_package_writes_is_accounted_for(kind, tmp_path):
    """Its writer and its quantisation; a tensor that is a twentieth too large is not."""
    gguf = pytest.importorskip("gguf")
    model = llama()
    source = stored(model, tmp_path / "model.safetensors")
    made = exported(model)
    for factor, expected in ((1.0, {}), (1.05, {"model.layers.0.mlp.down_proj.weight": "wrong"})):
        writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        for name, values in made.items():
            scaled = values * np.float32(factor) if name == "blk.0.ffn_down.weight" else values
            as_kind = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(scaled), as_kind), raw_dtype=as_kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        assert failures(ckptdoctor.verify(tmp_path / "m.gguf", against=source)) == expected


_PACKED = {"Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39}


@pytest.mark.parametrize("kind", _PACKED)
def test_numbers_within_half_a_step_are_quantised_and_others_are_not(kind, tmp_path):
    """Whatever the scales are; rows in another order, and a multiple, are told from that."""
    from ckptdoctor.values.ggml_blocks import dequantized
    from tests.formats.gguf.forge import gguf_bytes
    from tests.values.test_ggml_blocks import random_blocks

    columns = 512
    raw = random_blocks(kind, 64 * columns // (32 if kind in ("IQ4_NL", "MXFP4") else 256), seed=3)
    if kind == "MXFP4":
        raw[:, 0] = 120
    values, steps = dequantized(raw, kind)
    rng = np.random.default_rng(4)
    groups = values.reshape(steps.size, -1)
    near = groups + steps.reshape(-1, 1) * rng.uniform(-0.5, 0.5, groups.shape).astype(np.float32)
    source = near.reshape(64, columns).astype(np.float32)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"w.weight": (_PACKED[kind], (64, columns), raw.tobytes())}))

    def compared(given):
        return ckptdoctor.verify(path, against=stored({"w.weight": given}, tmp_path / "source.safetensors"))

    assert compared(source).accounted and verdicts(compared(source)) == {"quantised"}
    for other in (source[::-1], source * np.float32(1.3), -source, np.zeros_like(source)):
        assert failures(compared(other)) == {"w.weight": "wrong"}


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_groups_of_a_block_that_were_rounded_are_accounted_for(kind, tmp_path):
    """With scales that are rounded themselves."""
    from tests.against.exports import STORED
    from tests.formats.gguf.forge import gguf_bytes

    values = np.random.default_rng(6).standard_normal((64, 512)).astype(np.float32)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"w.weight": (kind, values.shape, STORED[kind](values))}))
    report = ckptdoctor.verify(path, against=stored({"w.weight": values}, tmp_path / "source.safetensors"))
    assert report.accounted and verdicts(report) == {"quantised"}
    assert report.fates[0].places[0].outcome.relative < 0.1


@pytest.mark.parametrize("small_first_shard", [False, True])
def test_shards_of_the_gguf_package_are_one_export(small_first_shard, tmp_path):
    """Its writer numbers them and says in each how many there are, as ``llama-gguf-split`` does."""
    gguf = pytest.importorskip("gguf")
    model = llama()
    source = stored(model, tmp_path / "model.safetensors")
    folder = tmp_path / "export"
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=7, small_first_shard=small_first_shard)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    for name, values in exported(model).items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert len(list(folder.iterdir())) == 3 + small_first_shard
    assert ckptdoctor.verify(folder, against=source).accounted
