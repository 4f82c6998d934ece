"""References learnt from the user's own code, which lies in files as theirs does."""

from __future__ import annotations

import contextlib
import resource
import sys
import textwrap

import pytest
import torch

from ckptdoctor.errors import UsageError
from tests.commands import run
from tests.target.asked import of_model
from tests.work import counted

NETS = """
    import torch
    from torch import nn

    print("narration")

    class Net(nn.Module):
        def __init__(self, num_classes=10, *, width=4):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width))
            self.fc = nn.Linear(width, num_classes)
            self.tied = nn.Linear(width, num_classes)
            self.tied.weight = self.fc.weight
            self.register_buffer("kept", torch.zeros(3))
            self.register_buffer("scratch", torch.zeros(3), persistent=False)

        @classmethod
        def build(cls):
            return cls(7)

    class Rates(nn.Module):
        def __init__(self):
            super().__init__()
            rates = [rate.item() for rate in torch.linspace(0, 1, 4)]
            self.fc = nn.Linear(3, len(rates)).to("cuda")
            self.register_buffer("rates", torch.tensor(rates, device="cuda:3"))

    class Values(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)
            self.scale = float(self.fc.weight.detach().mean())

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, undefined)

    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.LazyLinear(3)

    def needs(width):
        return Net(width=width)

    def on_device():
        return Net().to("cuda", torch.float16).cuda()

    def pair():
        return Net(), 1

    def leaves():
        raise SystemExit(3)

    built = Net()
    wrapped = nn.DataParallel(Net())
    number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with the module ``some_nets`` in it."""
    (tmp_path / "some_nets.py").write_text(textwrap.dedent(NETS))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


def shapes(reference):
    """Key → shape."""
    return {key: each.shape for key, each in reference.tensors.items()}


def as_torch_says(module):
    """Key → shape of a module's own state dict."""
    return {key: tuple(value.shape) for key, value in module.state_dict().items()}


def test_the_keys_are_those_of_the_state_dict(folder):
    """Parameters, persistent buffers and every name of a tied weight, with dtypes; nothing else."""
    found = of_model("some_nets:Net(num_classes=5)")
    assert found.source == "some_nets:Net(num_classes=5)"
    assert found.option == "--model 'some_nets:Net(num_classes=5)'"
    assert shapes(found) == as_torch_says(sys.modules["some_nets"].Net(5))
    assert {"kept", "tied.weight", "fc.weight", "body.1.num_batches_tracked"} <= set(found.tensors)
    assert found.tensors["fc.weight"].dtype.name == "float32"
    assert found.tensors["body.1.num_batches_tracked"].dtype.name == "int64"


@pytest.mark.parametrize(
    ("text", "classes"),
    [("some_nets:Net", 10), ("some_nets:Net()", 10), ("some_nets:Net(3, width=8)", 3), ("some_nets:Net.build", 7),
     ("some_nets.py:Net", 10), ("./some_nets.py:needs(width=2)", 10), ("some_nets:built", 10)],
)  # fmt: skip
def test_classes_functions_methods_files_and_modules(folder, text, classes):
    """Whatever gives a module will do, and a module that is built already."""
    assert of_model(text).tensors["fc.bias"].shape == (classes,)


def test_wrappers_keep_their_names(folder):
    """A DataParallel model expects its own keys."""
    assert "module.fc.weight" in of_model("some_nets:wrapped").tensors


def test_gpus_are_not_needed(folder):
    """A model that moves itself to a GPU is built without one, and changes of dtype count."""
    found = of_model("some_nets:on_device")
    assert found.tensors["fc.weight"].dtype.name == "float16"
    assert shapes(of_model("some_nets:Rates")) == {"rates": (4,), "fc.weight": (4, 3), "fc.bias": (4,)}


def test_packages_with_relative_imports(folder):
    """A file inside a package is imported as part of it."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "a.py").write_text("from .b import Other as Name\n")
    (folder / "pack" / "b.py").write_text("from torch import nn\nclass Other(nn.Bilinear):\n    pass\n")
    for text in ("pack.a:Name(1, 2, 3)", "pack/a.py:Name(1, 2, 3)"):
        assert shapes(of_model(text)) == {"weight": (3, 1, 2), "bias": (3,)}


def test_neighbours_of_a_file_can_be_imported(folder):
    """A file in another folder finds the files beside it, and its name may be taken by another module."""
    (folder / "deep").mkdir()
    (folder / "deep" / "beside.py").write_text("WIDTH = 3\n")
    (folder / "deep" / "json.py").write_text(
        "from torch import nn\nimport beside\ndef make(): return nn.Linear(beside.WIDTH, 1)\n"
    )
    assert shapes(of_model("deep/json.py:make")) == {"weight": (1, 3), "bias": (1,)}
    import json

    assert json.loads("1") == 1


def test_libraries_will_do(folder):
    """A class of an installed library is a model like any other."""
    assert shapes(of_model("torch.nn:Linear(2, 3)")) == {"weight": (3, 2), "bias": (3,)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("some_nets:Nett", r'some_nets has no "Nett"\. It has Net'),
        ("some_nets:Net.bild", r'some_nets\.Net has no "bild"\. It has build'),
        ("some_nets:zzz", r'some_nets has no "zzz"\. It has Broken, Lazy, Net, '),
        ("some_nets:number", r"some_nets:number is of type int: --model needs a class or function"),
        ("some_nets:pair", r"some_nets:pair gives tuple, not a torch\.nn\.Module"),
        ("some_nets:built()", r"is a module already, not a class or function: leave out the parentheses"),
        ("some_nets:needs", r"missing 1 required positional argument: 'width'\. .* Arguments go in parentheses"),
        ("some_nets:Net(classes=3)", r"TypeError: .*unexpected keyword argument 'classes'"),
        ("some_nets:Lazy", r"has no shape for fc\.weight yet: a lazy module gets it from its first batch"),
        ("torch.nn:ReLU", r"torch\.nn:ReLU has neither parameters nor buffers"),
        ("nowhere:Net", r'No module "nowhere" in the current directory or installed'),
        ("some_nets.nowhere:Net", r'No module "some_nets\.nowhere"|is not a package'),
        ("nowhere.py:Net", r"nowhere\.py: no such file, so Net from"),
    ],
)
def test_what_is_wrong_with_the_request_is_one_sentence(folder, text, sentence):
    """No code of theirs failed: one line, with what would do instead."""
    with pytest.raises(UsageError, match=sentence) as caught:
        of_model(text)
    assert "\n" not in caught.value.message
    assert "reference/" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "sentence", "trace"),
    [
        ("Broken", r"some_nets:Broken cannot be built: some_nets\.py, line 37: NameError: name .undef", "Linear(3, un"),
        ("leaves", r"some_nets\.py, line \d+: SystemExit: the code ends the program", "raise SystemExit(3)"),
        ("Values", r"some_nets\.py, line 32: RuntimeError: .*meta tensors\. Models are built", "self.scale = float("),
    ],
)  # fmt: skip
def test_code_that_fails_while_it_builds_is_shown(folder, text, sentence, trace):
    """One sentence, then the user's own lines and nothing of ours or of torch."""
    with pytest.raises(UsageError, match=sentence) as caught:
        of_model(f"some_nets:{text}")
    first, *shown = caught.value.message.splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert trace in "\n".join(shown)
    assert "reference/" not in caught.value.message and "site-packages" not in caught.value.message
    assert first.endswith(".")


def test_what_the_code_prints_is_narration(folder, capfd):
    """stdout is for results: what is printed on import goes to stderr, and Python is left as it was."""
    before = (list(sys.path), list(sys.argv), sys.stdout)
    of_model("some_nets:Net")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "narration\n")
    assert (sys.path, sys.argv, sys.stdout) == before


def test_no_hook_stays_behind(folder):
    """Modules that are built afterwards have their values."""
    for text in ("some_nets:Net", "some_nets:Rates", "some_nets:Broken"):
        with contextlib.suppress(UsageError):
            of_model(text)
    net = torch.nn.Linear(2, 3)
    assert net.weight.device.type == "cpu" and torch.zeros(1).device.type == "cpu"


LARGE = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, hidden):
            super().__init__()
            self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(width, width // 8, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(hidden, width, bias=False)
            self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])

    class Model(nn.Module):
        def __init__(self, values=False):
            super().__init__()
            if values:
                assert [rate.item() for rate in torch.linspace(0, 1, 4)]
            self.embed = nn.Embedding(128256, 8192)
            self.layers = nn.ModuleList([Block(8192, 28672) for _ in range(80)])
            self.norm, self.head = nn.RMSNorm(8192), nn.Linear(8192, 128256, bias=False)
"""


@pytest.mark.parametrize("text", ["large:Model", "large:Model(values=True)"])
def test_seventy_billion_parameters_cost_next_to_nothing(folder, text):
    """A model of 70 B parameters takes some steps for each tensor and no memory, also where its code asks for one."""
    (folder / "large.py").write_text(textwrap.dedent(LARGE))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, calls = counted(of_model, text)
    elements = sum(torch.Size(each.shape).numel() for each in found.tensors.values())
    assert elements > 70e9
    assert calls < 1000 * len(found.tensors)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    WIDTH = 4

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(WIDTH, helper())

    for epoch in range(3):
        open(f"ran{epoch}", "w").close()
    open("ran", "w").close()

    @UNKNOWN
    def not_needed():
        pass

    def helper():
        return CLASSES

    CLASSES = 2
    UNKNOWN = open("ran", "w")

    raise SystemExit("trained")
"""


@pytest.mark.parametrize("text", ["script:Net", "script.py:Net", "script:helper", "script:nothing"])
def test_a_script_is_not_run_to_its_end(folder, text):
    """What trains behind the classes is left out, where nobody wrote a main guard; what they need is there."""
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    if text.endswith("Net"):
        assert set(of_model(text).tensors) == {"fc.weight", "fc.bias"}
    elif text.endswith("nothing"):
        with pytest.raises(UsageError, match='script has no "nothing"'):
            of_model(text)
    assert list(folder.glob("ran*")) == []


def test_a_model_that_a_script_makes_is_made(folder):
    """As far as the name is given its value everything runs, and nothing of what comes then."""
    made = (
        textwrap.dedent(SCRIPT).replace("WIDTH, helper()", "WIDTH, 2").replace("for epoch", "model = Net()\nfor epoch")
    )
    (folder / "script.py").write_text(made)
    assert set(of_model("script:model").tensors) == {"fc.weight", "fc.bias"}
    assert list(folder.glob("ran*")) == []


def test_a_script_that_reads_a_command_line_gets_it(folder):
    """What stands behind -- is the code's own command line; without it the refusal says how to give one."""
    code = """
        import argparse
        from torch import nn

        parser = argparse.ArgumentParser()
        parser.add_argument("--width", type=int, required=True)
        args = parser.parse_args()

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(args.width, 2)
    """
    (folder / "script.py").write_text(textwrap.dedent(code))
    torch.save({"fc.weight": torch.ones(2, 5), "fc.bias": torch.ones(2)}, folder / "m.pt")
    for command in (["check", "m.pt"], ["fix", "m.pt", "--auto", "-o", "out.pt"]):
        done = run(*command, "--model", "script.py:Net", "--", "--width", "5", cwd=folder)
        assert done.returncode == 0, done
        done = run(*command, "--model", "script.py:Net", cwd=folder)
        assert done.returncode == 2
        assert b"give that after --" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_taken_for_granted_is_one_sentence(folder):
    """Code that moves its model to a GPU while it is imported is told that none is needed."""
    (folder / "script.py").write_text("import torch\nnet = torch.nn.Linear(2, 3).cuda()\n")
    with pytest.raises(UsageError, match=r"script\.py, line 2: .*This machine has no GPU, and none is needed"):
        of_model("script:net")


def test_the_hint_names_the_arguments_that_are_needed(folder):
    """Those without a default, by their own names."""
    (folder / "some.py").write_text("def build(width, depth, *, heads=2):\n    pass\n")
    with pytest.raises(UsageError, match=r"Arguments go in parentheses: --model 'some:build\(width=…, depth=…\)'\.$"):
        of_model("some:build")


@pytest.mark.parametrize(
    "text", ["timm:tiny_net", "timm:tiny_net(width=4)", "torchvision:tiny_net(width=4)", "timm:tiny_net.tag"]
)
def test_libraries_of_models_are_asked_by_the_names_of_their_models(folder, text, monkeypatch):
    """As timm.create_model and torchvision.models know them, without weights of their own."""
    code = """
        from torch import nn

        def tiny_net(width=4):
            return nn.Sequential(nn.Linear(3, width))
    """
    made = {
        "timm": f"{textwrap.dedent(code)}\ndef list_models():\n    return ['tiny_net']\n" + CREATE,
        "torchvision": "",
    }
    for name, text_of in made.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text_of.replace("def tiny_net", "def _tiny_net"))
        monkeypatch.delitem(sys.modules, name, raising=False)
    (folder / "torchvision" / "models.py").write_text(textwrap.dedent(code))
    monkeypatch.delitem(sys.modules, "torchvision.models", raising=False)
    assert {key: each.shape for key, each in of_model(text).tensors.items()} == {"0.weight": (4, 3), "0.bias": (4,)}
    for name in ("timm", "torchvision", "torchvision.models"):
        sys.modules.pop(name, None)


CREATE = """
def create_model(name, **given):
    assert name in ("tiny_net", "tiny_net.tag")
    return _tiny_net(**given)
"""
