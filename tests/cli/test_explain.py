"""``ckptdoctor explain`` with error texts, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.cli.main import cli
from tests.cli.files import HOSTILE, printable
from tests.commands import run_here

CUDA = """Traceback (most recent call last):
  File "eval.py", line 12, in <module>
    ckpt = torch.load("best.pth")
RuntimeError: Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. Please use \
torch.load with map_location to map your storages to an existing device.
"""
PREFIX = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n"
    '\tMissing key(s) in state_dict: "fc.weight", "fc.bias". \n'
    '\tUnexpected key(s) in state_dict: "module.fc.weight", "module.fc.bias". \n'
)


def explain(*arguments, cwd, text=None):
    """The exit status, what was printed, and what was said on stderr."""
    result = run_here("explain", *arguments, cwd=cwd, stdin=text.encode() if text is not None else None)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def test_a_traceback_is_explained(tmp_path):
    """The message, its rule, the cause, and what to do about the file that the traceback names."""
    status, out, _ = explain(cwd=tmp_path, text=CUDA)
    assert status == 0
    assert out == (
        "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1\n"
        "D602 cuda-index-out-of-range · the file was saved on cuda:1 of another machine; GPUs are counted from 0, and"
        " this one has 1\n"
        '  load it with    torch.load(path, map_location="cpu")\n'
        "  or repair it    ckptdoctor fix best.pth --to-cpu        (best.pth: the file named in your text)\n"
        "  more about it   ckptdoctor explain D602\n"
    )


def test_the_text_may_be_in_a_file(tmp_path):
    """--error reads a file."""
    (tmp_path / "err.txt").write_text(CUDA)
    assert "D602" in explain("--error", "err.txt", cwd=tmp_path)[1]
    assert "D602" in explain("--error", "-", cwd=tmp_path, text=CUDA)[1]


def test_an_unknown_text_is_status_1(tmp_path):
    """It is said what was read, that nothing was recognised, and what to do next."""
    status, out, _ = explain(cwd=tmp_path, text="a\nb\n")
    assert status == 1
    assert out == (
        "Read 2 lines from standard input, but recognised no message about a checkpoint.\nThe file itself "
        "may show it:   ckptdoctor check FILE\n"
    )


@pytest.mark.parametrize("text", ["", "  \n\n"])
def test_no_text_is_status_2(tmp_path, text):
    """There is nothing to explain."""
    status, _, err = explain(cwd=tmp_path, text=text)
    assert status == 2
    assert "empty" in err


def test_a_terminal_is_no_text(monkeypatch):
    """Without a pipe, a file or a code the usage is shown."""
    from click.testing import CliRunner

    monkeypatch.setattr("ckptdoctor.cli.explain._is_terminal", lambda: True)
    result = CliRunner().invoke(cli, ["explain"])
    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert "No error text" in result.output


def test_a_file_with_the_text_needs_no_option(tmp_path):
    """A file that programs write their output into is no checkpoint; what it says is explained, quotes and all."""
    (tmp_path / "train.log").write_text("FileNotFoundError: [Errno 2] No such file or directory: 'cut.pt'\n")
    status, out, _ = explain("train.log", cwd=tmp_path)
    assert status == 0
    assert out.splitlines()[0] == "No such file or directory: 'cut.pt'"


def test_a_checkpoint_on_a_terminal_is_without_a_text(monkeypatch, tmp_path):
    """It is there, which is not denied, but what to explain is missing; a rule's name stays one next to such a file."""
    from click.testing import CliRunner

    monkeypatch.setattr("ckptdoctor.cli.explain._is_terminal", lambda: True)
    monkeypatch.chdir(tmp_path)
    Path("model.pt").touch()
    Path("N401").mkdir()
    assert "No error text: pipe one in, or name a file" in CliRunner().invoke(cli, ["explain", "model.pt"]).output
    assert "module-prefix" in CliRunner().invoke(cli, ["explain", "N401"]).output


def test_a_text_that_is_not_there(tmp_path):
    """A file that cannot be read is status 2."""
    status, _, err = explain("--error", "absent.txt", cwd=tmp_path)
    assert status == 2
    assert "absent.txt cannot be read" in err


def test_a_rule_without_implementation_has_no_page(tmp_path):
    """It is explained all the same, but nobody is sent to a page that does not exist."""
    out = explain(cwd=tmp_path, text="TypeError: Got unsupported ScalarType BFloat16")[1]
    assert out.splitlines()[1].startswith("T555 bf16-numpy · ")
    assert "ckptdoctor explain" not in out


@pytest.fixture
def files(tmp_path):
    """A DataParallel checkpoint, the same without the prefix, and one from a GPU."""
    weights = {"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2)}
    torch.save(weights, tmp_path / "plain.pt")
    torch.save({f"module.{key}": value for key, value in weights.items()}, tmp_path / "wrapped.pt")
    torch.save({f"encoder.{key}": value for key, value in weights.items()}, tmp_path / "held.pt")
    (tmp_path / "lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")
    (tmp_path / "err.txt").write_text(PREFIX)
    return tmp_path


def test_the_file_confirms(files):
    """check finds in the file what the text says, and the commands are about this file."""
    status, out, _ = explain("--error", "err.txt", "wrapped.pt", cwd=files)
    assert status == 0
    assert "  confirmed: check finds N401 in wrapped.pt: " in out
    assert "ckptdoctor fix wrapped.pt --strip-module" in out


def test_the_file_refutes(files):
    """The text is about another file."""
    status, out, _ = explain("--error", "err.txt", "plain.pt", cwd=files)
    assert status == 0
    assert (
        "not confirmed: not in plain.pt: it has none of the 2 keys that the error calls unexpected, and no "
        'key that begins with "module."'
    ) in out


def test_the_error_itself_is_the_reference(files):
    """A rule that needs a model is confirmed too: the error says what the model wants."""
    out = explain("held.pt", cwd=files, text=PREFIX.replace("module.", "encoder."))[1]
    assert "confirmed: check finds N409 in held.pt" in out


def test_a_file_that_was_loaded_whole(files):
    """Its outermost keys are the unexpected ones: the file confirms, another does not."""
    torch.save({"epoch": 1, "state_dict": {"fc.weight": torch.ones(2, 3)}}, files / "nested.pt")
    text = 'Missing key(s) in state_dict: "fc.weight". \n\tUnexpected key(s) in state_dict: "epoch", "state_dict". '
    assert "  confirmed: check finds W301 in nested.pt" in explain("nested.pt", cwd=files, text=text)[1]
    assert "  not confirmed: not in plain.pt" in explain("plain.pt", cwd=files, text=text)[1]


@pytest.mark.parametrize("prefix", ["_orig_mod.module.", "module._orig_mod."])
@pytest.mark.parametrize("whole", [True, False], ids=["loaded whole", "its weights"])
def test_several_repairs_are_one_command(tmp_path, prefix, whole):
    """Where its output is known to have exactly the keys of the model; done to the letter, torch loads it."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(
        {"epoch": 1, "model": {f"{prefix}{key}": value for key, value in net.state_dict().items()}}, tmp_path / "x.pt"
    )
    loaded = torch.load(tmp_path / "x.pt")
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(loaded if whole else loaded["model"])
    out = explain("x.pt", cwd=tmp_path, text=str(error.value))[1]
    (command,) = [line.partition("at once   ")[2] for line in out.splitlines() if line.startswith("  all at once   ")]
    assert "  all 7 keys of the model fit after: " in out and command.endswith("--strip-module")
    document = json.loads(explain("x.pt", "--format", "json", cwd=tmp_path, text=str(error.value))[1])
    assert document["repair"] == command
    assert run_here(*command.split()[1:], cwd=tmp_path).returncode == 0
    loaded = torch.load(tmp_path / "x.fixed.pt")
    net.load_state_dict(loaded if whole else loaded["model"])


def test_a_repair_after_which_a_key_is_left_over_is_not_all(tmp_path):
    """The model has a key fewer than the file: no command is said to do it all."""
    net = torch.nn.Linear(2, 3, bias=False)
    weights = {f"_orig_mod.module.{key}": value for key, value in torch.nn.Linear(2, 3).state_dict().items()}
    torch.save(weights, tmp_path / "x.pt")
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(weights)
    assert "all at once" not in explain("x.pt", cwd=tmp_path, text=str(error.value))[1]


def test_a_shard_that_is_missing_and_one_that_was_loaded_alone(tmp_path):
    """The command is about the folder, which is there; and that a file is one of two explains keys that it lacks."""
    name = "model-00002-of-00002.safetensors"
    text = f"FileNotFoundError: No such file or directory: 'sharded/{name}'"
    assert "  download it again, then   ckptdoctor check sharded  " in explain(cwd=tmp_path, text=text)[1]
    save_file({"0.weight": torch.ones(2, 2)}, tmp_path / name)
    text = 'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "1.weight". \n'
    out = explain(name, cwd=tmp_path, text=text)[1]
    assert f"  confirmed: check finds X816 in {name}: this is file 2 of 2 of a checkpoint" in out


def test_a_file_that_does_not_have_it(files):
    """Nothing in the file is on a GPU; another file is no checkpoint at all."""
    assert "not confirmed: not in plain.pt: check finds no D602" in explain("plain.pt", cwd=files, text=CUDA)[1]
    assert "check finds F001 in lfs.pt" in explain("lfs.pt", cwd=files, text="Unsupported operand 118")[1]
    assert "check finds no D602; it finds F001" in explain("lfs.pt", cwd=files, text=CUDA)[1]
    out = explain(
        "plain.pt",
        cwd=files,
        text="loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
    )[1]
    assert "open: nothing in plain.pt shows it; the cause may be the program" in out


def test_a_file_that_cannot_be_examined(files):
    """The explanation stands, and why nothing is said of the file."""
    out = explain("--error", "err.txt", "absent.pt", cwd=files)[1]
    assert "N401" in out
    assert "open: absent.pt could not be examined" in out


def test_json(files):
    """The same as a document."""
    status, out, _ = explain("--format", "json", "--error", "err.txt", "wrapped.pt", cwd=files)
    document = json.loads(out)
    assert status == 0
    assert document["schema"] == "ckptdoctor/1"
    assert document["file"] == "wrapped.pt"
    assert document["verdict"]["confirmed"] is True
    assert document["repair"] is None
    (found,) = document["explanations"]
    assert (found["code"], found["name"], found["documented"]) == ("N401", "module-prefix", True)
    assert found["ways"] == [{"label": "repair it", "command": "ckptdoctor fix wrapped.pt --strip-module"}]
    unknown = json.loads(explain("--format", "json", cwd=files, text="a\n")[1])
    assert (unknown["explanations"], unknown["lines"], unknown["verdict"]) == ([], 1, None)


def test_text_is_not_trusted(tmp_path):
    """What would take over a terminal is made visible, in messages and in names of files."""
    text = f'torch.load("{HOSTILE}.pth")\nMissing key(s) in state_dict: "{HOSTILE}". \nUnsupported operand 118'
    result = run_here("explain", cwd=tmp_path, stdin=text.encode("utf-8", "surrogatepass"))
    assert result.returncode == 0
    assert printable(result.stdout)


def test_narrow_terminals_keep_commands_whole(tmp_path, monkeypatch):
    """Prose is wrapped to the terminal; a command keeps its line."""
    from ckptdoctor.explaining.explanation import explain as explanation
    from ckptdoctor.rendering.explain import as_text

    shown = as_text(explanation(CUDA.replace("best.pth", "runs/" + "long" * 20 + ".pth")), (), None, 60)
    assert f"    ckptdoctor fix runs/{'long' * 20}.pth --to-cpu" in shown.split("\n")
    assert all(len(line) <= 60 or "long" in line for line in shown.split("\n"))


def test_a_message_may_be_typed_as_the_argument(tmp_path):
    """Neither a few words nor one that is a message is taken for the name of a rule."""
    assert "F001" in explain("header too large", cwd=tmp_path)[1]
    for words in ("HeaderTooLarge", "header too large", "KeyError: 'state_dict'"):
        status, out, err = explain(words, cwd=tmp_path)
        assert (status, err) == (0, "")
        assert explain("--error", words, cwd=tmp_path)[:2] == (0, out)
        assert explain(cwd=tmp_path, text=words)[1] == out


def test_unknown_words_are_a_text_and_an_unknown_word_is_no_rule(tmp_path):
    """Status 1 means a text without a known message, and 2 that there is no such rule."""
    status, out, _ = explain("nothing of that", cwd=tmp_path)
    assert status == 1
    assert out.startswith("Read 1 line from the text, but recognised no message")
    assert explain("N999", cwd=tmp_path)[0] == 2
    assert explain("--error", "no such.txt", cwd=tmp_path)[0] == 2


def test_an_empty_option_is_not_standard_input(tmp_path):
    """An empty --error is called empty, whatever is piped in."""
    status, _, err = explain("--error", "", cwd=tmp_path, text=CUDA)
    assert status == 2
    assert "the text is empty" in err
    assert explain("", cwd=tmp_path, text=CUDA) == (2, "", err)


def test_a_text_whose_middle_was_not_read_says_so(tmp_path):
    """Where nothing is recognised, the message may be in the part that was left out."""
    line = "step 1 loss 0.1234567890\n"
    (tmp_path / "long.log").write_text(line * (19_000_000 // len(line)))
    status, out, _ = explain("long.log", cwd=tmp_path)
    assert status == 1
    assert f"The {3 << 20:,} characters in the middle of the text were not read." in out


def test_each_message_is_about_the_file_nearest_to_it(tmp_path):
    """An output with errors about two files names each of them where it belongs."""
    corrupt = (
        'Traceback (most recent call last):\n  File "b.py", line 3, in <module>\n    load_file("second.safetensors")\n'
        "safetensors_rust.SafetensorError: Error while deserializing header: header too large\n"
    )
    out = explain(cwd=tmp_path, text=f"{CUDA}\n{corrupt}")[1]
    assert "fix best.pth --to-cpu" in out
    assert "second.safetensors: the file named in your text" in out.partition("The text also says")[2]
    assert "best.pth" not in out.partition("The text also says")[2]


def test_a_dict_in_a_dict_is_answered_with_what_to_save(tmp_path):
    """To leave out what is not a tensor would leave out all weights."""
    weights = {"fc.weight": torch.ones(2, 2)}
    with pytest.raises(ValueError, match="is invalid") as error:
        save_file({"state_dict": weights, "epoch": 1}, tmp_path / "out.safetensors")
    text = f'    save_file(checkpoint, "out.safetensors")\nValueError: {error.value}\n'
    status, out, _ = explain(cwd=tmp_path, text=text)
    assert status == 0
    assert 'safetensors.torch.save_file(weights["state_dict"], path)' in out
    assert "isinstance" not in out


@pytest.mark.parametrize("line", ['save_file(checkpoint, "out.safetensors")', 'torch.save(checkpoint, "out.pt")'])
def test_what_failed_to_be_saved_is_not_the_file(tmp_path, line):
    """There is no such file to check."""
    shared = 'RuntimeError: Some tensors share memory, this will lead to duplicate memory on disk: [{"a", "b"}].'
    out = explain(cwd=tmp_path, text=f"    {line}\n{shared}\n")[1]
    assert "ckptdoctor check FILE --select A701" in out
    assert " out." not in out


def test_a_file_of_a_newer_pickle_protocol_is_what_check_finds(tmp_path):
    """torch.save(pickle_protocol=4) leads to the same message as pickle.dump, and the file tells them apart."""
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt", pickle_protocol=4)
    with pytest.warns(UserWarning, match="pickle protocol"), pytest.raises(Exception, match="operand 149") as error:
        torch.load(tmp_path / "a.pt")
    out = explain("a.pt", "--error", str(error.value), cwd=tmp_path)[1]
    assert "or torch.save did with pickle_protocol=4 or 5" in out
    assert "confirmed: P211" in out or "P211" in out.partition("confirmed: ")[2]


def test_a_page_quotes_torch_with_its_marks(tmp_path):
    """Torch prints these backticks itself; those that only a renderer needs are left out."""
    out = explain("C107", cwd=tmp_path)[1]
    assert "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``." in out
    assert "``" not in explain("M974", cwd=tmp_path)[1] + out.partition("Detection")[2]


def test_numbers_of_bytes_are_separated(tmp_path):
    """Whatever their number, the sentence is right."""
    said = "RuntimeError: unexpected EOF, expected {} more bytes. The file might be corrupted."
    assert "(bytes missing from one storage on: 185,936)" in explain(cwd=tmp_path, text=said.format(185936))[1]
    assert "(bytes missing from one storage on: 1)" in explain(cwd=tmp_path, text=said.format(1))[1]


@pytest.mark.parametrize(("counter", "whose"), [(True, "as BatchNorm does"), (False, "before torch 0.4 InstanceNorm")])
def test_running_statistics_are_those_of_the_layers_that_were_saved(tmp_path, counter, whose):
    """What counts its batches is newer than torch 0.4, and no InstanceNorm that ignored its statistics."""
    names = ["running_mean", "running_var", *(["num_batches_tracked"] if counter else [])]
    keys = ", ".join([f'"0.{name}"' for name in names])
    text = f"Error(s) in loading state_dict for Net:\n\tUnexpected key(s) in state_dict: {keys}. \n"
    out = explain(cwd=tmp_path, text=text)[1]
    assert "N418" in out
    assert whose in out
    assert "((" not in out
    assert f"in the model, {len(names)} keys (0.running_mean, " in out
