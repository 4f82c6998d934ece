"""``fix --write-map`` where a repair is refused: a draft that a person confirms, and that ``--map`` then takes."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import torch

from ckptdoctor.cli.main import run

A, B, TABLE = torch.arange(6.0).view(3, 2), torch.arange(6.0, 12.0).view(3, 2), torch.arange(8.0).view(4, 2)
TARGET = {"body.weight": TABLE + 1, "head_a.weight": A + 50, "head_b.weight": B + 50}


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A file with two heads of one shape that are called otherwise, and its target."""
    monkeypatch.chdir(tmp_path)
    torch.save(TARGET, "target.pt")
    torch.save({"module.body.weight": TABLE, "module.cls.weight": B, "module.box.weight": A}, "sick.pt")
    return tmp_path


def fix(*words):
    """The status of a repair towards the target."""
    return run(["fix", "sick.pt", "--like", "target.pt", "-o", "well.pt", *words])


def draft(folder, name="draft.json"):
    """What is in the draft."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def confirm(folder, **names):
    """Put plain values in the place of marks, as a person does in an editor."""
    found = draft(folder)
    found["names"].update({f"module.{old}.weight": new for old, new in names.items()})
    (folder / "draft.json").write_text(json.dumps(found), encoding="utf-8")


def well():
    """The tensors that were written, as lists."""
    return {key: value.tolist() for key, value in torch.load("well.pt", weights_only=True).items()}


def test_a_draft_has_every_certain_pair_and_marks_the_others(folder, capsys):
    """What is certain is a plain name; what is not has its rivals and the reason, and nothing else is written."""
    assert fix("--write-map", "draft.json") == 1
    found = draft(folder)
    assert found["towards"] == "--like target.pt"
    assert found["names"]["module.body.weight"] == "body.weight"
    for old in ("module.cls.weight", "module.box.weight"):
        mark = found["names"][old]
        assert {mark["to"], *filter(None, mark["or"])} == {"head_a.weight", "head_b.weight"}
        assert mark["uncertain"] == "1 other name of the target fit its shape as well"
    assert {found["names"][f"module.{name}.weight"]["to"] for name in ("cls", "box")} == {
        "head_a.weight",
        "head_b.weight",
    }
    assert not (folder / "well.pt").exists()
    assert "draft.json is a draft: it marks 2 pairs as uncertain." in capsys.readouterr().out


def test_a_draft_is_refused_as_long_as_a_mark_stands(folder, capsys):
    """The refusal says which pairs they are, how to confirm them, and the command to run then."""
    fix("--write-map", "draft.json")
    confirm(folder, cls="head_b.weight")
    capsys.readouterr()
    assert fix("--map", "draft.json") == 1
    said = capsys.readouterr().out
    assert "draft.json marks 1 pair that nobody has confirmed." in said
    assert "module.box.weight  →  " in said
    assert said.endswith("    ckptdoctor fix sick.pt --map draft.json --auto --like target.pt -o well.pt\n")
    assert not (folder / "well.pt").exists()


def test_a_confirmed_draft_is_applied(folder):
    """Once each mark has given way to a name, the map finishes the repair, against all proposals if need be."""
    fix("--write-map", "draft.json")
    confirm(folder, cls="head_b.weight", box="head_a.weight")
    assert fix("--map", "draft.json") == 0
    assert well() == {"body.weight": TABLE.tolist(), "head_b.weight": B.tolist(), "head_a.weight": A.tolist()}


def test_the_printed_commands_are_the_whole_way(folder, capsys):
    """A refusal prints two commands: one writes the draft, and the other takes it."""
    assert fix() == 1
    first, second = re.findall(r"^ +(ckptdoctor fix .*)$", capsys.readouterr().out, re.MULTILINE)
    assert run(shlex.split(first)[1:]) == 1
    confirmed = draft(folder, "sick.map.json")
    for old, mark in confirmed["names"].items():
        confirmed["names"][old] = mark["to"] if isinstance(mark, dict) else mark
    (folder / "sick.map.json").write_text(json.dumps(confirmed), encoding="utf-8")
    assert run(shlex.split(second)[1:]) == 0
    assert well().keys() == TARGET.keys()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"cls": "head_a.weight", "box": "head_a.weight"}, "--map would give two keys one name"),
        ({"cls": "body.weight", "box": "head_a.weight"}, "--map would give two keys one name"),
        ({"cls": "head_c.weight", "box": "head_a.weight"}, "no chain of repairs makes this file fit target.pt"),
        ({"cls": {"to": "head_b.weight", "transposed": True}, "box": "head_a.weight"}, "no chain of repairs"),
        ({"cls": None, "box": "head_a.weight"}, "no chain of repairs makes this file fit target.pt"),
        ({"cls": 3, "box": "head_a.weight"}, "the value of module.cls.weight must be a name"),
    ],
)
def test_what_a_person_says_is_held_against_the_target(names, sentence, folder, capsys):
    """A confirmed pair of a wrong shape, a wrong name, or two of one name: refused, and nothing is written."""
    fix("--write-map", "draft.json")
    confirm(folder, **names)
    assert fix("--map", "draft.json") in (1, 2)
    said = capsys.readouterr()
    assert sentence in said.out + said.err
    assert not (folder / "well.pt").exists()


def test_a_draft_wants_its_target(folder, capsys):
    """Shapes and kinds of number are those of a target: without it a confirmed draft is not applied."""
    fix("--write-map", "draft.json")
    confirm(folder, cls="head_b.weight", box="head_a.weight")
    capsys.readouterr()
    assert run(["fix", "sick.pt", "--map", "draft.json", "-o", "well.pt"]) == 1
    command = capsys.readouterr().out.splitlines()[-1].strip()
    assert run(shlex.split(command)[1:]) == 0
    assert well()["head_a.weight"] == A.tolist()


def test_integers_do_not_become_weights_by_a_confirmed_name(folder, capsys):
    """Codes of a quantised layer are refused, though a person says that they are the weight."""
    torch.save({"body.weight": TABLE, "cls.weight": B.to(torch.int8), "box.weight": A}, "sick.pt")
    names = {"body.weight": "body.weight", "cls.weight": "head_b.weight", "box.weight": "head_a.weight"}
    said = {"format": "ckptdoctor map 1", "names": names, "towards": "--like target.pt"}
    (folder / "draft.json").write_text(json.dumps(said), encoding="utf-8")
    assert fix("--map", "draft.json") == 1
    assert "integers, which are not weights without their scale: head_b.weight" in capsys.readouterr().out
    assert not (folder / "well.pt").exists()


def test_same_shapes_change_places_at_once(folder):
    """A map that permutes keys of one shape is carried out as one step, whatever its order."""
    torch.save({"body.weight": TABLE, "head_a.weight": B, "head_b.weight": A}, "sick.pt")
    names = {"head_a.weight": "head_b.weight", "head_b.weight": "head_a.weight"}
    said = {"format": "ckptdoctor map 1", "names": names, "towards": "--like target.pt"}
    (folder / "draft.json").write_text(json.dumps(said), encoding="utf-8")
    assert fix("--map", "draft.json") == 0
    assert well() == {"body.weight": TABLE.tolist(), "head_b.weight": B.tolist(), "head_a.weight": A.tolist()}


def test_what_was_confirmed_is_not_written_over(folder, capsys):
    """A draft that is there may hold a person's work: it is replaced with --force alone."""
    fix("--write-map", "draft.json")
    confirm(folder, cls="head_b.weight")
    before = (folder / "draft.json").read_bytes()
    assert fix("--write-map", "draft.json") == 1
    assert "draft.json already exists; give another output path, or replace it with --force." in capsys.readouterr().out
    assert (folder / "draft.json").read_bytes() == before
    assert fix("--write-map", "draft.json", "--force") == 1
    assert (folder / "draft.json").read_bytes() != before


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["without force", "with force"])
@pytest.mark.parametrize("dry", [(), ("--diff",)], ids=["fix", "diff"])
@pytest.mark.parametrize("name", ["sick.pt", "target.pt", "config.json"])
def test_a_map_never_takes_the_place_of_another_file(name, dry, force, folder, capsys):
    """Of the checkpoint itself, say, by a slip of the hand; whether there is a draft or a repair."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    for words in ((), ("--like", "target.pt"), ("--strip-module",)):
        assert run(["fix", "sick.pt", "-o", "well.pt", *words, *dry, *force, "--write-map", name]) == 1
        assert f"{name} is not a map of ckptdoctor, so it is never replaced." in capsys.readouterr().out
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_a_map_is_not_written_over_the_repaired_file(folder, capsys):
    """They need a name each."""
    assert run(["fix", "sick.pt", "--strip-module", "-o", "well.pt", "--write-map", "./well.pt"]) == 1
    assert "./well.pt is where the repaired file goes; give the map another path." in capsys.readouterr().out
    assert not (folder / "well.pt").exists()


def test_a_square_matrix_of_another_owner_is_marked_both_ways_round(folder):
    """A bare square parameter may have to be transposed: the mark has both ways, and the map carries out either."""
    square = torch.arange(9.0).view(3, 3)
    torch.save({"proj.weight": square + 1, "norm.weight": torch.ones(5)}, "target.pt")
    torch.save({"proj": square, "norm.weight": torch.ones(5)}, "sick.pt")
    fix("--write-map", "draft.json")
    mark = draft(folder)["names"]["proj"]
    ways = [{key: mark[key] for key in mark.keys() & {"to", "transposed"}}, *mark["or"]]
    assert {"to": "proj.weight", "transposed": True} in ways
    assert "a square matrix does not show which dimension is which" in mark["uncertain"]
    said = draft(folder) | {"names": {"proj": {"to": "proj.weight", "transposed": True}}}
    (folder / "draft.json").write_text(json.dumps(said), encoding="utf-8")
    assert fix("--map", "draft.json", "--write-map", "again.json") == 0
    assert well()["proj.weight"] == square.T.tolist()
    assert draft(folder, "again.json")["names"] == {"proj": {"to": "proj.weight", "transposed": True}}


def test_a_head_that_models_share_with_their_embedding_is_offered(folder):
    """Where only the embedding was saved, the draft offers it under both names, and leaves the word to a person."""
    table, norm = torch.arange(12.0).view(6, 2), torch.ones(2)
    torch.save(
        {"model.embed_tokens.weight": table, "model.norm.weight": norm, "lm_head.weight": table + 1}, "target.pt"
    )
    torch.save({"model.embed_tokens.weight": table, "model.norm.weight": norm}, "sick.pt")
    assert fix("--write-map", "draft.json") == 1
    found = draft(folder)
    mark = found["names"]["model.embed_tokens.weight"]
    assert mark["to"] == ["model.embed_tokens.weight", "lm_head.weight"]
    found["names"]["model.embed_tokens.weight"] = mark["to"]
    (folder / "draft.json").write_text(json.dumps(found), encoding="utf-8")
    assert fix("--map", "draft.json") == 0
    assert well()["lm_head.weight"] == table.tolist()


def test_a_file_without_an_answer_has_no_draft(folder, capsys):
    """Where nothing here can be what the target wants, that is said, and no draft is written."""
    torch.save({"body.weight": TABLE, "head_a.weight": torch.ones(7, 2)}, "sick.pt")
    assert fix("--write-map", "draft.json") == 1
    assert capsys.readouterr().out.splitlines()[-1].strip().startswith("no command can finish: nothing in this file")
    assert not (folder / "draft.json").exists()
