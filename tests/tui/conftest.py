import gc

import hypothesis  # noqa: F401  at once: what the browser freezes, it could not follow later
import pytest
import textual.screen
from textual.css.stylesheet import Stylesheet

from ckptdoctor.rules.examples import Obj, T
from ckptdoctor.tui import workers
from ckptdoctor.tui.screens import compare
from ckptdoctor.tui.widgets import values_preview
from tests import builders
from tests.cli import files


def state_dict(prefix="", device="cpu"):
    """A small ResNet: stem, two stages of two blocks, head."""
    found = {f"{prefix}conv1.weight": T((64, 3, 7, 7), device=device)}
    for stage, width in enumerate((64, 128), 1):
        for block in range(2):
            name = f"{prefix}layer{stage}.{block}"
            found[f"{name}.conv1.weight"] = T((width, width, 3, 3), device=device)
            found[f"{name}.bn1.weight"] = T((width,), device=device)
            found[f"{name}.bn1.bias"] = T((width,), device=device)
    found[f"{prefix}fc.weight"] = T((10, 128), device=device)
    found[f"{prefix}fc.bias"] = T((10,), device=device)
    return found


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A folder of checkpoints; tests only read them."""
    folder = tmp_path_factory.mktemp("library")
    sick = {
        "epoch": 41,
        "state_dict": state_dict("module.", "cuda:0"),
        "args": Obj("argparse.Namespace", {"lr": 0.1, "data": "imagenet"}),
        "log": list(range(30)),
    }
    builders.save(sick, folder / "resnet.pt")
    builders.save(state_dict(), folder / "plain.safetensors", container="safetensors", metadata={"format": "pt"})
    files.hostile(folder)
    whole = (folder / "resnet.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.pt").write_bytes(b"")
    return folder


@pytest.fixture(autouse=True)
def in_the_library(library, monkeypatch):
    """Paths are short and the same on every machine."""
    monkeypatch.chdir(library)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLORFGBG", raising=False)


@pytest.fixture(autouse=True)
def no_previews(monkeypatch):
    """What reads values 80 ms after the last key would make every screen a race: the tests of it turn it on again."""
    monkeypatch.setattr(values_preview, "REST", 1e6)


@pytest.fixture(autouse=True)
def values_when_asked(monkeypatch):
    """Comparing values at once would leave nothing to be seen of the headers alone: one test does."""
    monkeypatch.setattr(compare, "reads_at_once", lambda *paths: False)


@pytest.fixture(autouse=True)
def drawn_when_settled(monkeypatch):
    """``settled`` draws whatever is to be drawn once nothing moves, and not the clock 60 times a second."""
    monkeypatch.setattr(textual.screen, "UPDATE_PERIOD", 5.0)


@pytest.fixture(scope="session", autouse=True)
def sheets_parsed_once():
    """Hundreds of browsers are started here, all with the same style sheets and two themes."""
    parse, known = Stylesheet._parse_rules, {}

    def parsed(self, *args, **options):
        key = (args, tuple(options.items()), tuple(self._variables.items()))
        if key not in known:
            known[key] = parse(self, *args, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed)
        yield


@pytest.fixture(autouse=True)
def collected_after_each_test(monkeypatch):
    """Garbage is looked for often so that no key waits for it, and nobody waits here: once for each test, and only
    among what that has made.
    """
    before = gc.get_threshold()
    monkeypatch.setattr(workers, "_COLLECTOR", (10_000_000, 10, 10))
    gc.set_threshold(*workers._COLLECTOR)
    with monkeypatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)  # so that nothing of a browser that has ended stays
        yield
    gc.set_threshold(*before)
    gc.collect()
    gc.freeze()
