"""Messages word by word, old and new."""

from __future__ import annotations

import shlex

import click
import pytest

from ckptdoctor.cli.main import cli
from ckptdoctor.diagnose.catalogue import all_rules
from ckptdoctor.explaining import other_messages
from ckptdoctor.explaining.explanation import explain, rule_name
from ckptdoctor.explaining.recognise import messages
from ckptdoctor.rules.registry import find_rule
from tests.explaining.wordings import WORDINGS, both


@pytest.mark.parametrize(("text", "code"), WORDINGS, ids=[f"{code} {text[:50]}" for text, code in WORDINGS])
def test_wordings(text, code):
    """The message alone is enough, and so is one among the lines of a log."""
    assert explain(text).hits[0].code == code
    assert explain(f"step 10 loss 0.1\n{text}\nstep 11 loss 0.1\n").hits[0].code == code


@pytest.mark.parametrize("key", ["step", "sum", "alpha"])
def test_a_key_of_optimizers_alone_says_nothing(key):
    """Anything may have a key of such a name: only a traceback through torch's optimizers tells more."""
    assert not explain(f"KeyError: '{key}'").hits


def test_a_head_in_transformers_is_answered_in_its_own_terms():
    """What from_pretrained prints leads to its arguments, and plain torch's error to those of any model."""
    here, there = "torch.Size([5, 8])", "torch.Size([3, 8])"
    table = f"classifier.weight | MISMATCH | Reinit due to size mismatch - ckpt: {here} vs model:{there}"
    (hit,) = explain(f"Bert LOAD REPORT from: x\nKey | Status |\n---+---\n{table}\n").hits
    assert [way.command for way in hit.ways] == [
        "from_pretrained(..., num_labels=5)",
        "from_pretrained(..., ignore_mismatched_sizes=True)",
    ]
    plain = f"size mismatch for classifier.weight: copying a param with shape {here} from checkpoint, the shape in"
    (hit,) = explain(f"{plain} current model is {there}.").hits
    assert hit.ways[0].command == "num_classes=5"
    vocabulary = plain.replace("classifier", "embed_tokens").replace("5", "64")
    (hit,) = explain(f"{vocabulary} current model is {there.replace('3', '61')}.").hits
    assert hit.ways[0].label == "resize the model to the file, in transformers with"


@pytest.mark.parametrize(("text", "code"), WORDINGS, ids=[f"{code} {text[:50]}" for text, code in WORDINGS])
def test_commands_are_ones_that_exist(text, code):
    """Whatever is told to be run parses: the command and its options are there."""
    for hit in explain(text).hits:
        for way in hit.ways:
            assert_parses(way.command)


@pytest.mark.parametrize("message", messages(), ids=lambda message: f"{message.code} {message.says[0][:40]}")
def test_every_message_is_sound(message):
    """Its rule has a name, its commands exist, and nothing advises to turn weights_only off."""
    assert message.says
    assert all(rule_name(code) for code in (message.code, *message.also) if code)
    assert "weights_only=False" not in message.meaning
    for way in message.ways:
        assert "weights_only" not in way.command
        assert_parses(way.command)


def assert_parses(command):
    if not command.startswith("ckptdoctor"):
        return
    _, name, *words = shlex.split(command)
    parameters = cli.get_command(click.Context(cli), name).params
    known = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known


def test_names_of_their_own_are_for_what_no_rule_looks_for():
    """A cause that has a rule is called as the rule calls itself."""
    assert not other_messages.NAMES.keys() & {rule.code for rule in all_rules()}
    assert rule_name("N401") == "module-prefix"


def test_each_rule_says_its_messages_itself():
    """What is looked for is what the rules name, under their own codes, and what no rule is about."""
    own = [(rule.code, message.says) for rule in all_rules() for message in rule.messages]
    others = [(message.code, message.says) for message in other_messages.MESSAGES]
    assert sorted(own + others) == sorted((message.code, message.says) for message in messages())
    assert {"", *other_messages.NAMES} >= {code for code, _ in others}


def test_the_rules_that_the_same_keys_may_mean_exist():
    """A rule names others by their codes."""
    assert all(find_rule(code) is not None for rule in all_rules() for code in rule.also)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ("os.system", "P206"),
        ("numpy.core.multiarray.scalar", "P202"),
        ("torch.nn.modules.linear.Linear", "P204"),
        ("omegaconf.DictConfig", "P201"),
    ],
)
def test_of_several_messages_at_one_place_the_least_general_is_meant(refused, code):
    """All of these are refused in the same words, and what follows says which rule is about it."""
    (hit,) = explain(f"Unsupported global: GLOBAL {refused} was not an allowed global by default.").hits
    assert hit.code == code


UNKNOWN = [
    "ZeroDivisionError: division by zero",
    "EOFError: EOF when reading a line",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
    "AttributeError: 'NoneType' object has no attribute 'get'",
    "Traceback (most recent call last):\n  open(p).read()\nUnicodeDecodeError: 'ascii' codec can't decode byte 0x8c",
    "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "all 320 keys matched",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_about_a_checkpoint_is_not_explained(text):
    """A wrong explanation is worse than none."""
    assert explain(text).hits == ()


def test_what_only_warns_comes_after_what_fails():
    """transformers' warning about new weights stands above the error that ended the program."""
    text = "B were not initialized and are newly initialized: ['pooler.weight']\nKeyError: 'optimizer_states'"
    assert [hit.code for hit in explain(text).hits] == ["O754", "R001"]


def test_one_text_has_several_causes():
    """A prefix and another head in one error are two explanations, the one of most keys first."""
    text = (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". \n\tUnexpected key(s) in'
        ' state_dict: "module.a.weight". \n\tsize mismatch for head.weight: copying a param with shape torch.Size([9,'
        " 4]) from checkpoint, the shape in current model is torch.Size([7, 4])."
    )
    prefix, head = explain(text).hits
    assert (prefix.code, head.code) == ("N401", "S501")
    assert "9 classes in the checkpoint and for 7" in head.meaning
    assert prefix.words.startswith("Error(s) in loading state_dict for Net: Missing key(s) in state_dict: a.weight")


@pytest.mark.parametrize(
    ("missing", "unexpected"),
    [
        (["conv.weight"], ["module.weight"]),
        (["a.weight", "module.b.weight"], ["module.a.weight"]),
        (["d.weight"], ["a.weight", "b.weight", "c.weight", "module.d.weight"]),
    ],
    ids=["another name behind it", "the model has one too", "few of the keys"],
)
def test_a_part_called_module_is_not_called_data_parallel(missing, unexpected):
    """A wrapper puts ``module.`` before every key, and the rest of the name is one that the model knows."""
    assert {"N401", "N402"}.isdisjoint(hit.code for hit in explain(both(missing, unexpected)).hits)


def test_the_counter_of_an_averaged_model_tells_its_prefix():
    """Of another model too: what lies under ``module.`` is not unexpected once more."""
    hits = explain(both(["a.weight"], ["module.b.weight", "n_averaged"])).hits
    assert [hit.code for hit in hits] == ["N411", "R001"]


def test_a_rename_keeps_the_numbers_of_layers():
    """Of two renames that explain as many keys the one that crosses layers is not told, in whatever order keys come."""
    names = [f"layers.{layer}.{{}}{number}.{leaf}" for layer in "01" for number in "12" for leaf in ("weight", "bias")]
    for missing, unexpected in ((names, names), (names[::-1], names), (names, names[::-1])):
        wanted, here = [each.format("layer_norm_") for each in missing], [each.format("norm.") for each in unexpected]
        (hit,) = explain(both(wanted, here)).hits
        assert "norm.1 → layer_norm_1" in hit.meaning
        assert "norm.2 → layer_norm_2" in hit.meaning


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('Missing key(s) in state_dict: "fc.weight". ', "R001"),
        ('Missing key(s) in state_dict: "rotary_emb.inv_freq". ', "N419"),
        ('Unexpected key(s) in state_dict: "a._extra_state". ', "N421"),
    ],
)
def test_keys_that_do_not_fit_are_compared_with_the_model(text, code):
    """The file alone cannot tell what is wrong with them: a command names the target, or a line loads it."""
    (hit,) = explain(f"Error(s) in loading state_dict for Net:\n\t{text}").hits
    assert hit.code == code
    assert any("--error TEXT" in way.command or "model.load_state_dict" in way.command for way in hit.ways)


def test_a_list_that_is_cut_short_is_no_target():
    """The commands then ask for the model, which knows all of its keys."""
    (hit,) = explain('Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight", ...').hits
    assert [way.command for way in hit.ways] == ["ckptdoctor check FILE --model MODULE:CLASS"]


def test_a_missing_module_alone_may_have_nothing_to_do_with_a_checkpoint():
    """It is said so, and next to any other message it is not mentioned."""
    (hit,) = explain("ModuleNotFoundError: No module named 'flask'").hits
    assert hit.meaning.startswith("if the program was loading a checkpoint")
    assert "a package is missing" in hit.meaning
    both_said = "ModuleNotFoundError: No module named 'flask'\nUnsupported operand 118"
    assert [each.code for each in explain(both_said).hits] == ["F001"]
