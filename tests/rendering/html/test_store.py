"""The page about an inventory of stores: what is on it, what it can hold, and that nothing in it is markup."""

from __future__ import annotations

import html
import re
import shlex
import sqlite3
from contextlib import closing

import pytest
import torch

from tests.commands import run_here
from tests.runs.generated import KINDS, flipped, make, saved, weights, write


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder with runs in a store, one of them with a hostile name, and the inventory of it."""
    folder = tmp_path_factory.mktemp("page")
    for number in range(len(KINDS)):
        (folder / "store" / f"run{number}").mkdir(parents=True)
        make(number, folder / "store" / f"run{number}")
    hostile = folder / "store" / "<img src=x onerror=alert(1)>"
    hostile.mkdir()
    torch.save({"weight": torch.ones(3)}, hostile / "model_1.pt")
    (hostile / "model_2.pt").write_bytes((hostile / "model_1.pt").read_bytes()[:-100])
    assert run_here("audit", "store", "-o", "store.db", "--jobs", "1", cwd=folder).returncode == 1
    return folder


def page(folder):
    """The page about the inventory."""
    done = run_here("report", "store.db", "-o", "page.html", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "page.html").read_text("utf-8")


def test_it_has_a_section_for_each_question(store):
    """What is broken with its command, where the space is, duplicates, and the newest valid one of each run."""
    made = page(store)
    for key in ("health", "broken", "problems", "size", "duplicates", "runs", "unseen"):
        assert f'<section id="{key}"' in made
    assert "F005" in made and "ckptdoctor salvage" in made
    with closing(sqlite3.connect(store / "store.db")) as rows:
        (count,) = rows.execute("SELECT count(*) FROM checkpoint").fetchone()
        (invalid,) = rows.execute("SELECT count(*) FROM checkpoint WHERE level IS NULL").fetchone()
        names = [path.rpartition("/")[2] for (path,) in rows.execute("SELECT path FROM runs")]
    assert f"<dd>{count}<small>" in made and f"<dd>{invalid}<small>" in made
    assert all(f'class="key">{name}<' in made for name in names if name.startswith("run"))


def test_what_was_not_read_is_named_with_the_command_that_reads_it(tmp_path):
    """It is complete, and works from any folder."""
    write(tmp_path / "a store" / "model_1.pt", saved(weights()))
    run_here("audit", "a store", "-o", "store.db", "--jobs", "1", cwd=tmp_path)
    (line,) = re.findall(r"To read the rest: ckptdoctor (audit [^<]*)<", page(tmp_path))
    assert run_here(*shlex.split(html.unescape(line)), "--jobs", "1", cwd=tmp_path / "a store").returncode == 0
    assert "To read the rest" not in page(tmp_path)


def test_what_leads_to_a_command_has_it(tmp_path):
    """Advice that ends in a colon is followed by what to type, also where it names another command itself."""
    write(tmp_path / "store" / "model_1.pt", saved(weights()))
    at = (tmp_path / "store" / "model_1.pt").read_bytes().find(weights()["layers.0.weight"].numpy().tobytes()[:64])
    flipped(tmp_path / "store" / "model_1.pt", at + 5)
    run_here("audit", "store", "--deep", "-o", "store.db", "--jobs", "1", cwd=tmp_path)
    (card,) = re.findall(r'<article class="finding.*?</article>', page(tmp_path), re.DOTALL)
    assert re.search(r"ckptdoctor graft [^<]*:</p>", card) and "ckptdoctor salvage" in card.rpartition("</p>")[2]


def test_a_single_folder_is_no_map(tmp_path):
    """An area that is all there is shows nothing: the page says that everything is in one folder."""
    write(tmp_path / "store" / "model_1.pt", saved(weights()))
    run_here("audit", "store", "-o", "store.db", "--jobs", "1", cwd=tmp_path)
    made = page(tmp_path)
    assert "All checkpoints are in one folder." in made and 'aria-label="Sizes of folders"' not in made


def test_on_a_phone_each_number_says_what_it_is(store):
    """Where rows are stacked, there is no heading above them; paths are those within the store."""
    made = page(store)
    for table in ("run-table", "duplicate-table"):
        (rows,) = re.findall(rf'id="{table}">.*?</table>', made, re.DOTALL)
        assert {"run-table": "newest valid", "duplicate-table": "copies"}[table] in re.findall(
            r'data-label="([^"]*)"', rows
        )
        assert str(store) not in rows.replace("<wbr>", "")


def test_nothing_in_it_is_markup(store):
    """A folder may be called whatever its owner likes."""
    made = page(store)
    assert "<img" not in made and "&lt;img src=x" in made
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)[1]
    assert "default-src &#x27;none&#x27;" in policy


def test_it_says_the_newest_of_which_it_is_known_that_it_is_valid(store):
    """The one that was cut is not it."""
    row = re.search(r"<tr><th[^>]*>&lt;img.*?</tr>", page(store))[0]
    assert "model_<wbr>1.<wbr>pt" in row and "model_<wbr>2" not in row


@pytest.mark.parametrize("more", [("other.pt",), ("--like", "other.pt")])
def test_it_takes_no_other_checkpoint(store, more):
    """What it would be compared with is not known."""
    done = run_here("report", "store.db", *more, "-o", "other.html", cwd=store)
    assert done.returncode == 2 and b"inventory" in done.stderr and not (store / "other.html").exists()


def test_what_is_only_a_database_is_refused_as_any_other_file(tmp_path):
    """It is not taken for an inventory."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as rows:
        rows.execute("CREATE TABLE checkpoint (id INTEGER)")
    done = run_here("report", "other.db", cwd=tmp_path)
    assert done.returncode == 2 and b"Traceback" not in done.stderr


@pytest.mark.slow
def test_it_stays_small(store, tmp_path):
    """Fifty thousand broken checkpoints of twenty thousand runs fit into 5 MB, and what is left out is counted."""
    (tmp_path / "store.db").write_bytes((store / "store.db").read_bytes())
    with closing(sqlite3.connect(tmp_path / "store.db")) as rows, rows:
        names = [each[1] for each in rows.execute("PRAGMA table_info(checkpoint_own)")]
        run = rows.execute("SELECT * FROM run LIMIT 1").fetchone()
        broken = "SELECT * FROM checkpoint_own WHERE id = (SELECT id FROM checkpoint WHERE level IS NULL LIMIT 1)"
        one = dict(zip(names, rows.execute(broken).fetchone(), strict=True))
        long = "/a/rather/long/path/of/a/team/on/some/shared/storage/" + "x" * 60
        rows.executemany("INSERT INTO run VALUES (?, ?, ?)", [(at, f"{long}/{at}", run[2]) for at in range(20_000)])
        rows.executemany(
            f"INSERT INTO checkpoint_own VALUES ({', '.join('?' * len(names))})",
            [
                tuple((one | {"id": at, "run": at % 20_000, "name": f"/checkpoint-{at}"}).values())
                for at in range(50_000)
            ],
        )
    made = page(tmp_path)
    assert len(made) < 5_000_000
    assert re.search(r"49,\d{3} more are in the inventory", made) and re.search(r"16,\d{3} more are", made)
