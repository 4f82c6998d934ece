"""A Ray cluster examines a store as one machine does, also where it loses a node meanwhile."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from ckptdoctor.errors import MissingPackageError
from ckptdoctor.stores import order
from ckptdoctor.stores.audit import AuditRequest, audit
from ckptdoctor.stores.engines.named import engine_named
from tests.libraries import real
from tests.runs.generated import saved, weights, write
from tests.stores.asked import audited, generated, rows, table

ROOT = Path(__file__).parents[2]
MANY = 800


def test_without_ray_there_is_one_sentence(monkeypatch):
    """It has the command that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"not installed: .* 'ckptdoctor\[ray\]'"):
        engine_named("ray", None)


@pytest.mark.slow
@real
@pytest.mark.filterwarnings("ignore")  # of Ray and what it brings
@pytest.mark.timeout(900)
def test_a_lost_node_loses_nothing(tmp_path, monkeypatch):
    """Three nodes, one of which is removed without a word while it works: the table is that of one process.

    So it is where the others read large checkpoints in parts.
    """
    pytest.importorskip("ray", reason="ray is not installed: pip install -c constraints.txt -e '.[slow]'")
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    store = tmp_path / "runs"
    generated(store, range(7))
    write(store / "many" / "step_0.pt", saved({"model": weights(), "iter_num": 0}))
    for at in range(1, MANY):
        os.link(store / "many" / "step_0.pt", store / "many" / f"step_{at}.pt")
    audited(store, output=tmp_path / "right.db")

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()

        known = []

        def lose():
            while not (tmp_path / "a.db").exists() or not _some(tmp_path / "a.db"):
                time.sleep(0.05)
            known.append(rows(tmp_path / "a.db", "SELECT count(*) AS number FROM checkpoint")[0]["number"])
            cluster.remove_node(lost, allow_graceful=False)

        thread = threading.Thread(target=lose)
        thread.start()
        found = audit(AuditRequest((str(store),), str(tmp_path / "a.db"), engine=f"ray={cluster.address}"))
        thread.join()
        assert found.examined == found.listed > MANY > known[0], "the node was lost when all was over"
        monkeypatch.setattr(order, "SPLIT", 4_000)
        several = tuple([str(store / f"run{number:03}") for number in range(2)])
        here = audit(AuditRequest(several, str(tmp_path / "here.db"), engine="ray", jobs=1))  # next to that cluster
        assert here.examined == here.listed > 0
        request = AuditRequest(several, str(tmp_path / "parts.db"), engine=f"ray={cluster.address}", deep="all")
        assert audit(request).examined > 3
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert table(tmp_path / "a.db") == table(tmp_path / "right.db")
    audited(*several, output=tmp_path / "deep.db", deep="all")
    assert table(tmp_path / "parts.db") == table(tmp_path / "deep.db")
    assert not rows(tmp_path / "a.db", "SELECT path FROM checkpoint WHERE error LIKE 'It could not be examined%'")


def _some(database):
    try:
        return rows(database, "SELECT count(*) AS number FROM checkpoint")[0]["number"] > 0
    except Exception:  # its tables are being made
        return False
