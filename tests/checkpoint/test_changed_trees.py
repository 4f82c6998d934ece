"""What is asked of trees: here, that those of every container are as repairs expect them."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np

from ckptdoctor import formats
from ckptdoctor.checkpoint.changed_trees import tensors_in
from ckptdoctor.errors import CkptDoctorError


def test_the_tensors_of_a_checkpoint_are_those_of_its_tree(tmp_path):
    """The same objects in the same order, which repairs ask for; whatever the container."""
    np.save(tmp_path / "array.npy", np.arange(3.0))
    np.savez(tmp_path / "archive.npz", w=np.arange(3.0))
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"w": np.arange(3.0)}))
    seen = Counter()
    for path in [*Path(__file__).parents[2].glob("sample_ckpts/*/*"), *tmp_path.iterdir()]:
        try:
            with formats.opened(path) as (source, container):
                checkpoint = formats.read(source, container)
        except CkptDoctorError:  # some samples cannot be read
            continue
        in_tree = list(tensors_in(checkpoint.tree))
        assert list(map(id, in_tree)) == list(map(id, checkpoint.tensors)), path
        seen[checkpoint.format] += len(in_tree)
    assert min(seen.values()) > 0
    assert seen.keys() >= {"torch zip", "torch legacy", "safetensors", "pickle", "NumPy archive", "NumPy array"}
