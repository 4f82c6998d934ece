import hypothesis  # noqa: F401  at once: what the browser freezes, it could not follow later
import pytest

from ckptdoctor.rules.examples import Obj, T
from ckptdoctor.tui.widgets.tensor import glance
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
def no_glances(monkeypatch):
    """What reads values 80 ms after the last key would make every screen a race: the tests of it turn it on again."""
    monkeypatch.setattr(glance, "REST", 1e6)
