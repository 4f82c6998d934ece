"""The page of a run."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import WriteError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.trainer.events import Ended
from ckptdoctor.trainer.progress.metrics import MetricsLog
from ckptdoctor.trainer.progress.page import page, write
from tests.trainer.progress.runs import config, epoch_done, run, saved, started

VOID = {"meta", "line", "circle", "polyline"}


class Reader(HTMLParser):
    """Reads a page, and insists that every element is closed where it must be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        assert len(dict(attrs)) == len(attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else None, data))

    def text(self, tag):
        """What stands directly in all elements of one kind."""
        return [text for where, text in self.texts if where == tag]


def records(tmp_path, *events):
    """The records of these events."""
    with MetricsLog(str(tmp_path / "log")) as log:
        for event in events:
            log(event)
    return log.records


@pytest.fixture
def metrics(tmp_path):
    """The records of a whole run."""
    return records(tmp_path, *run(config(ema=True)))


def test_the_page_shows_every_epoch(metrics):
    """A row for each epoch with all figures and its checkpoint, the best one marked."""
    text = page(metrics, "run")
    reader = Reader(text)
    assert [cell for cell in reader.text("th") if cell.isdigit()] == ["1", "2", "3", "4"]
    row = re.search(r'<tr class="best">(.*?)</tr>', text)[1]
    cells = " ".join(re.sub(r"<[^>]*>", " ", row).split())
    assert cells == "4 0.3750 81.0 % 0.4000 82.5 % 83.5 % 3,814 2.7 0.05 epoch-0004"


def test_the_curves_can_be_pointed_at_and_heard(metrics):
    """Each value is the title of a dot, and each picture has a title and a description for those who do not see it."""
    reader = Reader(page(metrics, "run"))
    titles = reader.text("title")
    for title in ("epoch 2: test 65.0 %", "epoch 2: EMA 66.0 %", "epoch 4: train 0.3750", "epoch 1: training 3,814"):
        assert title in titles
    assert "train 81.0 % after epoch 4; EMA 83.5 % after epoch 4; test 82.5 % after epoch 4" in reader.text("desc")
    ids = [value for _, name, value in reader.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    labels = [value for tag, name, value in reader.attributes if (tag, name) == ("svg", "aria-labelledby")]
    assert len(labels) == 3
    assert {word for label in labels for word in label.split()} <= set(ids)


def test_the_page_says_what_the_run_was(metrics):
    """Network, parameters, devices and the whole configuration are on it."""
    reader = Reader(page(metrics, "run"))
    assert "lenet · 431,080 parameters · shapes · ddp × 2 on cuda:0, cuda:1" in reader.text("p")
    assert {"batch size", "256", "optimizer", "sgd", "save", "plain"} <= {text for _, text in reader.texts}


def test_nothing_comes_from_outside(metrics):
    """No script, no reference to anything outside the file, and a policy that forbids it to the browser as well."""
    text = page(metrics, "run")
    reader = Reader(text)
    assert not {"script", "link", "img", "iframe", "image", "use", "a", "object", "base"} & set(reader.tags)
    assert not {"src", "href", "xlink:href", "srcset", "data", "action"} & {name for _, name, _ in reader.attributes}
    assert not any(name.startswith("on") for _, name, _ in reader.attributes)
    assert not re.search(r"url\(|@import|https?:|//", text)
    assert "default-src 'none'; style-src 'unsafe-inline'" in [value for _, _, value in reader.attributes]


def test_it_is_light_and_dark_and_fits_a_phone(metrics):
    """The page follows the system's colours, and the width of the device."""
    text = page(metrics, "run")
    assert "@media (prefers-color-scheme: dark)" in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


HOSTILE = "</title><script>alert(1)</script>\"'&<svg onload=x>\x1b\u202e\udcff\x00"


def test_hostile_text_stays_text(tmp_path):
    """Markup in the title, a path, a device and a reason is shown, not obeyed."""
    events = [
        started(config(out=HOSTILE, data_dir=HOSTILE), devices=[HOSTILE, HOSTILE]),
        epoch_done(config(), 1),
        saved(1, HOSTILE.replace("/", "")),
        Ended(1, 0.5, HOSTILE),
    ]
    path = tmp_path / "curves.html"
    write(str(path), records(tmp_path, *events), HOSTILE)
    text = path.read_text(encoding="utf-8")
    reader = Reader(text)
    assert "script" not in reader.tags
    assert text.count("<svg") == 3
    shown = HOSTILE.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e").replace("\udcff", r"\udcff")
    assert reader.text("h1") == [shown.replace("\x00", r"\x00")]


@settings(deadline=None)
@given(st.text())
def test_any_title_is_shown_as_it_is(title):
    """Whatever can be seen comes back as the heading, character for character; the rest as visible codes."""
    shown = "".join(Reader(page([], title)).text("h1"))
    assert shown.isprintable()
    assert shown == escape(title)


def ended(text):
    """What the page of a run that ended so consists of."""
    return Reader(page([{"event": "Ended", "interrupted": text, "time": text}], "run")).tags


ELEMENTS = ended("x")


@settings(deadline=None)
@given(st.text())
def test_any_reason_leaves_the_page_whole(reason):
    """Text from a record cannot open or close an element."""
    assert ended(reason) == ELEMENTS


values = st.none() | st.text() | st.integers() | st.floats(allow_nan=False)
keys = st.sampled_from(["train_loss", "test_loss", "train_accuracy", "test_accuracy", "images_per_second", "seconds"])


@settings(deadline=None)
@given(st.lists(st.dictionaries(keys, values), max_size=6))
def test_any_figures_make_a_page(figures):
    """Missing, absurd and foreign figures leave the page readable, and every coordinate inside its picture."""
    epochs = [{"event": "EpochDone", "epoch": epoch, **figure} for epoch, figure in enumerate(figures, 1)]
    reader = Reader(page(epochs, "run"))
    for _, name, value in reader.attributes:
        if name in ("cx", "x1", "x2"):
            assert 0 <= float(value) <= 480
        if name in ("cy", "y1", "y2"):
            assert 0 <= float(value) <= 264


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ({"event": "Saved"}, "In progress at 2026-01-02 03:04 UTC"),
        ({"event": "Ended", "interrupted": None}, "Done at 2026-01-02 03:04 UTC"),
        ({"event": "Ended", "interrupted": "Ctrl-C"}, "Stopped at 2026-01-02 03:04 UTC: Ctrl-C"),
    ],
)
def test_the_page_says_how_the_run_stands(last, state):
    """In progress, done, or stopped and why."""
    assert state in Reader(page([{**last, "time": "2026-01-02T03:04:05.678+00:00"}], "run")).text("p")


def test_a_resumed_run_is_marked(tmp_path):
    """A line in each picture says after which epoch the run went on."""
    events = [*run(config(), last=2), *run(config(), first=3)]
    assert Reader(page(records(tmp_path, *events), "run")).text("title").count("resumed after epoch 2") == 3


def test_many_epochs_stay_a_small_page(tmp_path):
    """Three thousand epochs make a page under two megabytes, with all of them in the table."""
    many = config(epochs=3000)
    text = page(records(tmp_path, started(many), *(epoch_done(many, epoch) for epoch in range(1, 3001))), "run")
    assert len(text) < 2_000_000
    assert text.count("<tr") == 3000 + 1


def test_the_page_is_replaced_in_one_step(tmp_path, monkeypatch, metrics):
    """When the new page cannot be written the old one stays, and nothing else is left behind."""
    folder = tmp_path / "run"
    folder.mkdir()
    path = folder / "curves.html"
    write(str(path), metrics, "first")

    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(WriteError, match=r"curves\.html cannot be written: No space left on device"):
        write(str(path), metrics, "second")
    assert "<h1>first</h1>" in path.read_text(encoding="utf-8")
    assert os.listdir(folder) == ["curves.html"]
