"""Tokens are found by the forms of their issuers, and told without being shown."""

from __future__ import annotations

import pytest

from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Mapping, Opaque
from ckptdoctor.findings import Finding, Severity
from tests.rules import nouns
from tests.work import growth

LETTERS = "aBcDeFgHiJkLmNoPqRsTuVwXyZ" * 8
DIGITS = "0123456789abcdef" * 8


def secrets(contents: object) -> list[Finding]:
    """What is said of secrets in these contents."""
    return [each for each in nouns.findings("M977", contents) if each.severity is Severity.WARNING]


def home_folders(contents: object) -> list[Finding]:
    """What is said of home folders in them."""
    return [each for each in nouns.findings("M977", contents) if each.severity is Severity.INFO]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hf_" + LETTERS[:34], "Hugging Face token"),
        ("export HF_TOKEN=hf_" + LETTERS[:34] + "\n", "Hugging Face token"),
        ("AKIA" + "ABCDEFGH23456789", "AWS access key"),
        ("ghp_" + LETTERS[:36], "GitHub token"),
        ("github_pat_" + LETTERS[:82], "GitHub token"),
        ("AIza" + LETTERS[:35], "Google API key"),
        ("sk-proj-" + LETTERS[:48] + "T3BlbkFJ" + LETTERS[:48], "OpenAI key"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "private key"),
        ("postgres://maria:correcthorse@db.example.org/runs", "password in an address"),
    ],
)
def test_forms_of_secrets(text, kind):
    """Each is told by its kind, and nothing of it is kept."""
    (found,) = secrets({"args": {"x": text}})
    assert found.keys == (("args", "x"),)
    assert found.message in (f"the file holds a {kind} (args/x)", f"the file holds an {kind} (args/x)")
    assert found.fix is not None
    assert LETTERS[:20] not in in_full(found) and "correcthorse" not in in_full(found)


@pytest.mark.parametrize(
    "text",
    [
        "", "hf_", "hf_hub", "AKIA", "sk-ip-connections-are-used-here-and-everywhere-in-this-net-of-mine", LETTERS,
        "https://example.org:8080/@maria", "layer.0.attention", "git@github.com:maria/net.git", "s3://bucket/key",
        "https://example.org/a@b",
    ],
)  # fmt: skip
def test_texts_that_are_none(text):
    """Addresses without a password, names, and any long word."""
    assert secrets({"x": text}) == []


@pytest.mark.parametrize("name", ["wandb_api_key", "WANDB_KEY", "api_key", "secret_key", "password", "access_token"])
def test_names_of_keys(name):
    """A key without a form of its own is told by what it is called; an empty or a short one is none."""
    (found,) = secrets({name: DIGITS[:40]})
    assert found.message == f'the file holds a text called "{name}" ({name})'
    assert secrets({name: ""}) == secrets({name: "prompt"}) == []
    assert secrets({"sha": DIGITS[:40], "monkey": DIGITS[:40]}) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/maria/data", True), ("C:\\Users\\Maria\\data", True), ("/Users/maria", True),
        ("/home/ubuntu/data", False), ("/data/home/", False), ("homework", False), ("/Users/Shared/x", False),
    ],
)  # fmt: skip
def test_home_folders(text, found):
    """Those of a person, not those of a machine."""
    assert bool(home_folders({"data": text})) is found


def test_what_lies_in_an_object_is_not_plain():
    """Texts in objects, and in the attributes of dicts, cannot be taken out one by one."""
    token = "hf_" + LETTERS[:34]
    made = Opaque("argparse.Namespace", state=Mapping("dict", (("token", token),)))
    made_of = nouns.checkpoint({})
    object.__setattr__(made_of, "tree", Mapping("dict", (("args", made),)))
    (found,) = nouns.findings_in("M977", made_of)
    assert (found.keys, found.fix) == ((("args", "token"),), None)


@pytest.mark.slow
def test_the_work_grows_with_the_length_and_number_of_texts():
    """Not with its square: of what almost fits, two megabytes are about ten times the work of a tenth of them."""

    def looked_through(size):
        nasty = [
            "a" * (5 * size) + "://",
            "x://" * (2 * size),
            "hf_" * (3 * size),
            "sk-" + "a" * (5 * size),
            "sk-" * (3 * size),
            "/home/" * size,
        ]
        nouns.findings("M977", {str(index): text for index, text in enumerate(nasty)})

    assert growth(looked_through, 10_000, 100_000, runs=1) < 40
    many = {size: {f"layers.{index}.name": "a/b://c" for index in range(size)} for size in (2_000, 20_000)}
    assert growth(lambda size: secrets(many[size]), 2_000, 20_000) < 40
