"""A folder that lists as it did is not grouped again, and nothing that has changed in it is missed."""

from __future__ import annotations

import os
import shutil

import pytest

from ckptdoctor.runs import grouping
from tests.runs.generated import in_safetensors, saved, weights, write
from tests.stores.asked import Here, audited, generated, rows, table


@pytest.fixture
def grouped(monkeypatch):
    """The folders that are grouped from now on, by what is called so in them."""
    asked = []
    real = grouping.in_folder

    def in_folder(found, prefix):
        asked.append([each.name for each in found])
        return real(found, prefix)

    monkeypatch.setattr(grouping, "in_folder", in_folder)
    return asked


@pytest.fixture
def store(tmp_path):
    """Files, a folder of the Trainer with a folder in it, a link, and what DeepSpeed says of itself."""
    folder = tmp_path / "s"
    for step in (1, 2, 3):
        write(folder / "script" / f"step_{step}.pt", saved(weights(step)))
    inner = folder / "trainer" / "checkpoint-5"
    write(inner / "model.safetensors", in_safetensors())
    write(inner / "trainer_state.json", {"global_step": 5})
    write(inner / "global_step5" / "mp_rank_00_model_states.pt", saved({"module": weights()}))
    for step in (5, 6):
        write(folder / "ds" / f"global_step{step}" / "mp_rank_00_model_states.pt", saved({"module": weights()}))
    (folder / "ds" / "latest").write_text("global_step5")
    (folder / "script" / "newest").symlink_to("step_3.pt")
    return folder


def again(store, tmp_path):
    """An audit that begins with what is known, and one that knows nothing: they have the same rows."""
    done = audited(store, output=tmp_path / "a.db")
    (tmp_path / "fresh.db").unlink(missing_ok=True)
    fresh = audited(store, output=tmp_path / "fresh.db")
    assert (done.listed, done.others) == (fresh.listed, fresh.others)
    assert table(tmp_path / "a.db") == table(tmp_path / "fresh.db")
    return done


def test_what_has_not_changed_is_not_grouped(store, tmp_path, grouped):
    """The second audit lists, and looks at no name; links and files that name a checkpoint stay known."""
    first = audited(store, output=tmp_path / "a.db")
    before = table(tmp_path / "a.db")
    assert len(grouped) == 4 and {each["kind"] for each in before["reference"]} == {"link", "latest"}
    done = audited(store, output=tmp_path / "a.db")
    assert len(grouped) == 4 and (done.listed, done.unchanged, done.examined) == (first.listed, first.listed, 0)
    assert table(tmp_path / "a.db") == before


def write_in_place(store):
    """As many bytes into the same file."""
    path = store / "script" / "step_2.pt"
    data, status = bytearray(path.read_bytes()), path.stat()
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns + 1))


def write_below(store):
    """A file in a folder in the folder of a checkpoint, of which its own folder does not tell."""
    write(
        store / "trainer" / "checkpoint-5" / "global_step5" / "mp_rank_00_model_states.pt",
        saved({"module": weights(9)}),
    )


CHANGES = {
    "written in place": (write_in_place, 1, 0),
    "written below": (write_below, 1, 0),
    "a new one": (lambda store: write(store / "script" / "step_4.pt", saved(weights(4))), 1, 0),
    "one is gone": (lambda store: (store / "script" / "step_1.pt").unlink(), 0, 1),
    "a new run": (lambda store: write(store / "more" / "step_4.pt", saved(weights(4))), 1, 0),
    "a run is gone": (lambda store: shutil.rmtree(store / "ds"), 0, 2),
    "the last is another": (lambda store: (store / "ds" / "latest").write_text("global_step6"), 1, 0),
    "a link is gone": (lambda store: (store / "script" / "newest").unlink(), 0, 0),
    "a mark": (lambda store: (store / "script" / "step_3.pt-unfinished").touch(), 1, 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change, store, tmp_path):
    """Whatever it is: the rows are those of an audit that knows nothing."""
    audited(store, output=tmp_path / "a.db")
    make, examined, removed = CHANGES[change]
    make(store)
    done = again(store, tmp_path)
    assert (done.examined, done.removed) == (examined, removed)
    assert audited(store, output=tmp_path / "a.db").examined == 0


def test_a_link_that_names_another_is_seen(store, tmp_path):
    """Its target is needed from then on."""
    audited(store, output=tmp_path / "a.db")
    (store / "script" / "newest").unlink()
    (store / "script" / "newest").symlink_to("step_2.pt")
    again(store, tmp_path)
    (link,) = rows(tmp_path / "a.db", "SELECT target FROM reference WHERE kind = 'link'")
    assert link["target"] == str(store / "script" / "step_2.pt")


def test_what_was_not_examined_is_not_taken_for_known(store, tmp_path, monkeypatch):
    """An audit that ended between listing and examining leaves everything to the next."""
    monkeypatch.setattr(Here, "submit", lambda self, number, batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        audited(store, output=tmp_path / "a.db")
    monkeypatch.undo()
    assert rows(tmp_path / "a.db", "SELECT * FROM listing")
    assert again(store, tmp_path).examined == 6


def test_a_store_that_begins_elsewhere_is_grouped_again(store, tmp_path, grouped):
    """What is known of a folder was said of it in another store."""
    audited(store, output=tmp_path / "a.db")
    number = len(grouped)
    audited(store / "script", output=tmp_path / "a.db")
    assert len(grouped) == number + 1


def test_any_store_is_known_the_second_time(tmp_path):
    """Runs of every kind with their faults: the same counts and the same rows, and nothing examined."""
    generated(tmp_path / "runs", range(40, 60))
    first = audited(tmp_path / "runs", output=tmp_path / "a.db")
    assert again(tmp_path / "runs", tmp_path).unchanged == first.listed
