"""A Lightning checkpoint keeps arguments of its model, which become the arguments of ``--model``."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ckptdoctor.cli.main import run
from tests.libraries import lightning, real

NETS = """
    import lightning
    from torch import nn

    class Lit(lightning.LightningModule):
        def __init__(self, width, depth=2, scale=None):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Linear(width, depth)

    class Whole(lightning.LightningModule):
        def __init__(self, args):
            super().__init__()
            self.save_hyperparameters(args)
            self.net = nn.Linear(args.width, args["depth"])

    class Loose(lightning.LightningModule):
        def __init__(self, width=3, **more):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Linear(width, more.get("depth", 7))
            assert "secret" not in more

    class Net(nn.Module):
        def __init__(self, width, depth=2, cfg=None):
            super().__init__()
            self.net = nn.Linear(width, depth if cfg is None else cfg.inner.depth)

    class Classes(nn.Module):
        def __init__(self, width, classes):
            super().__init__()
            self.net = nn.Linear(width, classes)

    class Easy(nn.Module):
        def __init__(self, width=11, depth=2):
            super().__init__()
            self.net = nn.Linear(width, depth)
"""

pytestmark = real


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with the modules in it."""
    (tmp_path / "nets.py").write_text(textwrap.dedent(NETS))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("nets", None)
    yield tmp_path
    sys.modules.pop("nets", None)


def nets():
    """The same modules, as the program that trains imports them."""
    found = {"__name__": "nets"}
    exec(compile(textwrap.dedent(NETS), "nets.py", "exec"), found)
    return found


def saved(module, path="epoch.ckpt", data=None):
    """The module in a file that Lightning's own trainer writes."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(**quiet)
    trainer.strategy.connect(module)
    if data is not None:
        trainer.datamodule = data
    trainer.save_checkpoint(path)
    return path


def fitted(capsys, *arguments):
    """What ``check --format json`` says of the fit, after it went well."""
    capsys.readouterr()
    status = run(["check", *arguments, "--format", "json"])
    out, err = capsys.readouterr()
    assert status < 2, err
    return json.loads(out)["files"][0]["coverage"]


def test_a_class_is_made_with_the_arguments_in_the_file(folder, capsys):
    """The output says which they were, the target spells them out, and everything fits as the file is."""
    saved(nets()["Lit"](5, depth=3))
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Lit")
    assert (found["keys"], found["total_keys"], found["steps"]) == (2, 2, [])
    assert found["reference"] == "nets:Lit(width=5, depth=3, scale=None)"
    assert found["told"] == "width, depth, scale of nets:Lit are from hyper_parameters of epoch.ckpt"
    assert run(["check", "epoch.ckpt", "--model", "nets:Lit"]) == 0
    out = capsys.readouterr().out
    assert "\n  width, depth, scale of nets:Lit are from hyper_parameters of epoch.ckpt\n" in out
    assert "W301" not in out, "Lightning loads the file as it is: its state dict need not be taken out"


def test_lightning_itself_loads_with_the_same(folder):
    """The oracle: ``load_from_checkpoint`` makes the very module whose keys were compared."""
    made = nets()["Lit"]
    loaded = made.load_from_checkpoint(saved(made(5, depth=3)))
    assert loaded.net.weight.shape == (3, 5)


def test_given_arguments_win(folder, capsys):
    """What stands in the parentheses is taken first, and empty ones say that there are none."""
    saved(nets()["Lit"](5, depth=3))
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Lit(depth=4)")
    assert found["reference"] == "nets:Lit(depth=4, width=5, scale=None)"
    assert found["keys"] == 0
    assert run(["check", "epoch.ckpt", "--model", "nets:Lit()"]) == 2
    err = capsys.readouterr().err
    assert "missing 1 required positional argument: 'width'" in err
    assert "ckptdoctor check epoch.ckpt --model 'nets:Lit(width=…)'." in err


def test_one_object_with_all_settings_is_one_again(folder, capsys):
    """Where the program was called with a Namespace, its settings are attributes and entries."""
    saved(nets()["Whole"](Both(width=5, depth=3)))
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Whole")
    assert (found["keys"], found["reference"]) == (2, "nets:Whole")
    assert found["told"] == "args of nets:Whole is hyper_parameters of epoch.ckpt"


class Both(argparse.Namespace):
    """A Namespace whose values are entries, too, as Lightning's own kind of dict has it."""

    def __getitem__(self, name):
        return getattr(self, name)


def test_a_plain_module_takes_only_what_it_needs(folder, capsys):
    """Names that its signature has, where it cannot be called without; another is made as it is written."""
    saved(nets()["Lit"](5, depth=3))
    assert fitted(capsys, "epoch.ckpt", "--model", "nets:Net")["reference"] == "nets:Net(width=5, depth=3)"
    easy = fitted(capsys, "epoch.ckpt", "--model", "nets:Easy")
    assert (easy["reference"], easy["told"]) == ("nets:Easy", "")


def test_objects_are_never_made(folder, capsys):
    """A value that is not plain is left out, by name and with its reason; nothing of the file is imported or run."""
    (folder / "evil.py").write_text("open('imported', 'w').close()\nclass Scale: pass\n")
    module = nets()["Lit"](5, depth=3)
    torch.save(
        {
            "pytorch-lightning_version": "2.6.0",
            "state_dict": module.state_dict(),
            "hyper_parameters": {"width": 5, "depth": 3, "scale": torch.nn.ReLU()},
        },
        "epoch.ckpt",
    )
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Lit")
    assert found["keys"] == 2
    assert "; scale is not read from there: it holds an object of the class torch.nn" in found["told"]


def test_what_the_data_were_made_with_fills_only_a_gap(folder, capsys):
    """An argument without a default may come from datamodule_hyper_parameters, and is said to."""

    class Data(lightning.LightningDataModule):
        def __init__(self, classes, depth):
            super().__init__()
            self.save_hyperparameters()

    saved(nets()["Lit"](5, depth=3), data=Data(3, 99))
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Classes")
    assert (found["steps"][-1]["keys"], found["reference"]) == (2, "nets:Classes(width=5, classes=3)")
    assert "from hyper_parameters and datamodule_hyper_parameters of" in found["told"]
    assert fitted(capsys, "epoch.ckpt", "--model", "nets:Lit")["reference"].startswith("nets:Lit(width=5, depth=3")


def test_a_module_of_lightning_that_takes_anything_gets_everything(folder, capsys):
    """As ``load_from_checkpoint`` does where the constructor has ``**kwargs``."""
    saved(nets()["Loose"](5, depth=3))
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Loose")
    assert (found["keys"], found["reference"]) == (2, "nets:Loose(width=5, depth=3)")


def test_namespaces_and_paths_inside_keep_their_attributes(folder, capsys):
    """``cfg.inner.depth`` works in the user's code, though nothing of argparse is made."""
    cfg = argparse.Namespace(inner=argparse.Namespace(depth=3), root=Path("/data"))
    torch.save(
        {
            "pytorch-lightning_version": "2.6.0",
            "state_dict": {"net.weight": torch.ones(3, 5), "net.bias": torch.ones(3)},
            "hyper_parameters": {"width": 5, "cfg": cfg},
        },
        "epoch.ckpt",
    )
    found = fitted(capsys, "epoch.ckpt", "--model", "nets:Net")
    assert found["keys"] == 0 and found["steps"], "a plain module has its keys at the top"
    assert found["steps"][-1]["keys"] == 2
    assert found["reference"] == "nets:Net"


def test_a_missing_argument_is_named_with_the_command(folder, capsys):
    """With those that the file has filled in already, by the names of the constructor."""
    saved(nets()["Lit"](5, depth=3))
    assert run(["check", "epoch.ckpt", "--model", "nets:Classes"]) == 2
    err = capsys.readouterr().err
    assert "missing 1 required positional argument: 'classes'" in err
    assert "(width of nets:Classes is from hyper_parameters of epoch.ckpt)" in err
    assert "ckptdoctor check epoch.ckpt --model 'nets:Classes(width=5, classes=…)'." in err


def test_a_file_that_is_not_there_is_the_error(folder, capsys):
    """Rather than the arguments that it would have had."""
    assert run(["check", "nowhere.ckpt", "--model", "nets:Lit"]) == 2
    assert capsys.readouterr().err.endswith("error: nowhere.ckpt cannot be opened: No such file or directory.\n")


def test_each_file_has_its_own_arguments(folder, capsys):
    """Several files are compared with the model that each of them names."""
    made = nets()["Lit"]
    saved(made(5, depth=3), "a.ckpt")
    saved(made(7, depth=4), "b.ckpt")
    torch.save({"net.weight": torch.ones(2, 5), "net.bias": torch.ones(2)}, "c.pt")
    assert run(["check", "a.ckpt", "b.ckpt", "c.pt", "--model", "nets:Lit", "--format", "json"]) == 2
    out, err = capsys.readouterr()
    found = [each["coverage"] and each["coverage"]["reference"] for each in json.loads(out)["files"]]
    assert found == ["nets:Lit(width=5, depth=3, scale=None)", "nets:Lit(width=7, depth=4, scale=None)", None]
    assert "c.pt: nets:Lit cannot be built" in err


def test_fix_repairs_towards_them_and_says_so(folder, capsys):
    """A file whose keys have a wrapper's prefix is repaired into one that Lightning loads."""
    made = nets()["Lit"]
    whole = torch.load(saved(made(5, depth=3)), weights_only=False)
    whole["state_dict"] = {f"module.{key}": value for key, value in whole["state_dict"].items()}
    torch.save(whole, "sick.ckpt")
    assert run(["fix", "sick.ckpt", "--model", "nets:Lit", "-o", "well.ckpt"]) == 0
    assert "note: width, depth, scale of nets:Lit are from hyper_parameters of sick.ckpt" in capsys.readouterr().err
    loaded = made.load_from_checkpoint("well.ckpt")
    assert torch.equal(loaded.net.weight, whole["state_dict"]["module.net.weight"])
