"""The page as text: what it says, that it needs nothing, and that nothing of a file becomes markup."""

import hashlib
import html
import json
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest
import torch
from safetensors.torch import save_file

from tests.rendering.html import pages

VOID = {"meta", "link", "input", "wbr", "br", "img", "hr"}


class Balance(HTMLParser):
    """Which elements there are, their attributes, and whether each is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.given = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.given += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    """The page as a parser sees it."""
    found = Balance()
    found.feed(text)
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The files."""
    return pages.shelf(tmp_path_factory.mktemp("pages"))


def test_it_shows_what_the_file_is(shelf):
    """Figures, contents, sizes, distributions, norms by depth, and every tensor."""
    text = pages.page(shelf / "model.pt")
    for title in ("Findings", "Contents", "Sizes", "Distributions", "Norms by depth", "All tensors"):
        assert f">{title}</h2>" in text
    assert "<small>PyTorch .pt (zip)</small>" in text
    assert "<dd>18<small>" in text and "float16 loses digits below" in text
    assert "h.<wbr>2.<wbr>attn.<wbr>weight" in text


def test_keys_are_in_the_order_of_their_numbers(tmp_path):
    """Layer 2 comes before layer 10, in the table and in the data, which says where each is in the file."""
    torch.save({f"h.{number}.weight": torch.ones(2, 2) for number in (0, 1, 10, 2)}, tmp_path / "m.pt")
    text = pages.page(tmp_path / "m.pt", deep=False)
    rows = re.findall(r'<tr id="tensor:(.*?)"', text)
    assert rows == [f"h.{number}.weight" for number in (0, 1, 2, 10)]
    assert pages.data(text)["places"] == [0, 1, 3, 2] and "as in the file" in text


def test_many_layers_alike_are_one_area(tmp_path):
    """With what is in each of them; an odd one out is drawn by itself."""
    state = {f"h.{layer}.{leaf}.weight": torch.ones(2, 2) for layer in range(40) for leaf in ("q", "k")}
    torch.save(state | {"h.40.other.weight": torch.ones(4, 4)}, tmp_path / "m.pt")
    drawing = pages.page(tmp_path / "m.pt", deep=False).split('<div id="treemap"')[1].split("</svg>")[0]
    names = re.findall("<title>(.*?): ", drawing)
    assert names == ["h.{0…39}", "h.{0…39}.q.weight", "h.{0…39}.k.weight", "h.40.other.weight"]


def test_everything_can_be_linked_to(shelf):
    """Sections, findings and tensors have an id of their own, and a sign that links to it."""
    text = pages.page(shelf / "broken.pt")
    made = ("findings", "size", "tensors", "N401", "tensor:state_dict%2Fmodule.h.1.mlp.weight")
    assert all(text.count(f' id="{each}"') == 1 and f'href="#{each}"' in text for each in made)
    hostile = parsed(pages.page(shelf / "hostile.pt"))
    ids = [value for key, value in hostile.given if key == "id"]
    assert len(ids) == len(set(ids)) and not any(set(each) & set(" <>\"'&") for each in ids)


def test_findings_come_with_the_command_that_repairs_them(shelf):
    """Cause, keys, what torch says and the command, worst first."""
    text = pages.page(shelf / "broken.pt")
    assert text.index("N401") < text.index("W301")
    assert f"ckptdoctor fix {shelf / 'broken.pt'} --strip-module" in text
    assert "Unexpected key(s) in state_dict" in text and "V651" in text
    assert "1 NaN" in text and "epoch 41" in text


def test_two_files_are_compared(shelf):
    """What was added, removed and changed, and how far the values of modules are apart."""
    text = pages.page(shelf / "model.pt", shelf / "tuned.pt")
    assert "<title>model.pt ↔ tuned.pt · checkpoint report</title>" in text
    assert "Only in A: 1 tensor" in text and "Only in B: 1 tensor" in text
    assert "relative L2" in text and "score.<wbr>weight" in text
    found = pages.data(text)
    states = [found["states"][number] for number in found["state"]]
    assert states.count("changed") == 1 and states.count("only in A") == 1 and states.count("equal") == 16
    assert found["change"][5] > 0.01


def test_changes_are_shown_by_layer(tmp_path):
    """A row for each kind of tensor, with the layers that changed."""
    weights = {f"h.{layer}.{leaf}": torch.ones(2, 2) for layer in range(12) for leaf in ("q.weight", "k.weight")}
    torch.save(weights, tmp_path / "a.pt")
    torch.save(weights | {f"h.{layer}.q.weight": torch.full((2, 2), 1.5) for layer in (10, 11)}, tmp_path / "b.pt")
    text = pages.page(tmp_path / "a.pt", tmp_path / "b.pt")
    assert "Only layers 10–11 differ." in text
    titles = ("q, layers 0 to 9: no change", "q, layers 10 to 11: more", "k, layers 0 to 11: no change")
    assert all(f"<title>{each}</title>" in text for each in titles)
    assert "<div><span>0</span><span>2</span><span>4</span><span>7</span><span>9</span><span>11</span></div>" in text
    assert "Changes by layer" not in pages.page(tmp_path / "a.pt", tmp_path / "b.pt", deep=False)


def test_what_is_nan_on_one_side_is_counted(tmp_path):
    """No other figure counts it, so that the module would seem to be the same; it comes before those that changed."""
    weights = {f"part{number}.weight": torch.ones(2, 3) for number in range(30)}
    torch.save(weights, tmp_path / "a.pt")
    changed = {name: tensor.clone() + 0.5 for name, tensor in weights.items()}
    changed["part29.weight"] = torch.tensor([[1.0, 1.0, float("nan")], [1.0, 1.0, 1.0]])
    torch.save(changed, tmp_path / "b.pt")
    text = pages.page(tmp_path / "a.pt", tmp_path / "b.pt")
    table = text[text.index("Distance of values") :].split("</table>")[0]
    row = next(each for each in table.split("<tr>") if "0 in A, 1 in B" in each)
    assert "part29" in row
    assert ">NaN</th>" in table
    same = pages.page(tmp_path / "a.pt", tmp_path / "a.pt")
    assert ">NaN</th>" not in same


def test_without_values_it_says_so(shelf):
    """--headers-only leaves distributions out, and tells."""
    text = pages.page(shelf / "model.pt", shelf / "tuned.pt", deep=False)
    assert ">Distributions</h2>" not in text and ">Norms by depth</h2>" not in text
    assert "Checksums and values: left out by --headers-only" in text
    assert "How far the values of both files are apart: left out by --headers-only" in text
    assert "values" not in pages.data(text)


def test_what_was_not_examined_is_told(shelf):
    """Also of the whole examination: nothing that was left out passes for healthy."""
    text = pages.page(shelf / "model.pt")
    assert ">Not examined</h2>" in text and "Fit to a model: name a model with --model" in text


@pytest.mark.parametrize("name", ["model.pt", "broken.pt", "hostile.pt", "many.pt"])
def test_every_element_is_closed_and_nothing_comes_from_outside(shelf, name):
    """The page is well formed, and names no address but that of its own parts and the name space of drawings."""
    text = pages.page(shelf / name)
    found = parsed(text)
    assert not found.tags & {"img", "iframe", "object", "embed", "form", "base"}
    assert {value for key, value in found.given if key in ("src", "href") and value[0] != "#"} == {"data:,"}
    assert not [key for key, _ in found.given if key.startswith("on") or key == "style"]
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_hostile_keys_stay_text(shelf):
    """What looks like an element in a key is shown, not obeyed; the data cannot end its script either."""
    text = pages.page(shelf / "hostile.pt", shelf / "model.pt")
    assert "<img" not in text and text.count("</script>") == 2 and "&lt;img src=x" in text.replace("<wbr>", "")
    assert any(pages.HOSTILE.startswith(piece.rstrip(".")) for piece in pages.data(text)["pieces"] if "<img" in piece)


def test_the_policy_names_what_is_in_the_page(shelf):
    """The digests in the policy are those of the very style sheet and script in the page."""
    text = pages.page(shelf / "model.pt")
    rule = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)[1])
    for pattern in (r"<style>(.*?)</style>", r"<script>(.*?)</script>"):
        (inside,) = re.findall(pattern, text, re.DOTALL)
        assert f"'sha256-{b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'" in rule
    assert rule.startswith("default-src 'none'") and "unsafe" not in rule


def test_invisible_signs_are_made_visible(tmp_path):
    """A key that would turn the text around, or end the line, is spelt out."""
    torch.save({"a\u202eb\n\x1b[31m.weight": torch.ones(2, 2)}, tmp_path / "odd.pt")
    text = pages.page(tmp_path / "odd.pt")
    assert "\u202e" not in text and "\x1b" not in text and r"a\u202eb\n\x1b[31m" in text


def test_embedded_data_is_json_without_markup(tmp_path):
    """No sign that a browser could take for the end of the script, or of a line of it, is left."""
    names = ("</script>", "<!--", "&amp;", "\u2028")
    torch.save({f"{name}.weight": torch.randn(2, 2) for name in names}, tmp_path / "odd.pt")
    text = pages.page(tmp_path / "odd.pt")
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert not set(inside) & set("<>&\u2028")
    pieces = pages.data(text)["pieces"]
    assert any("</script>" in piece for piece in pieces) and any("&amp;" in piece for piece in pieces)


def test_a_damaged_file_has_a_map_of_its_bytes(tmp_path, shelf):
    """With the tensors that can be recovered, those that are lost, and the command; without values nothing is read."""
    whole = (shelf / "model.pt").read_bytes()
    cut = tmp_path / "cut.pt"
    cut.write_bytes(whole[: len(whole) // 2])
    text = pages.page(cut)
    parsed(text)
    assert 'class="finding error"' in text and ">All tensors</h2>" not in text
    assert " intact · lost: " in text and "<title>intact: wte.weight to " in text
    assert "<summary>Can be recovered: " in text and f"ckptdoctor salvage {cut}</code>" in text
    assert ">Damage</h2>" not in pages.page(cut, deep=False) and [each.name for each in tmp_path.iterdir()] == [
        "cut.pt"
    ]


def test_a_damaged_shard_has_a_map(tmp_path):
    """Also where nothing of it can be recovered."""
    names = {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"}
    for key, file in names.items():
        save_file({key: torch.ones(40)}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    shard = tmp_path / names["b.weight"]
    shard.write_bytes(shard.read_bytes()[:-100])
    text = pages.page(tmp_path)
    assert ">Damage</h2>" in text and "Nothing can be recovered: " in text


def test_odd_values_have_a_page(tmp_path):
    """Empty, scalar, integer, boolean, complex, float8 and huge values, NaN alone, and no tensor at all."""
    state = {
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.0),
        "long": torch.arange(10),
        "bool": torch.tensor([True, False]),
        "complex": torch.randn(4, dtype=torch.complex64),
        "float8": torch.randn(8).to(torch.float8_e4m3fn),
        "huge": torch.tensor([1e308, -1e308], dtype=torch.float64),
        "nan": torch.full((4,), float("nan")),
        "half": torch.randn(64).half(),
        "meta": torch.zeros(4, device="meta"),
    }
    torch.save(state, tmp_path / "odd.pt")
    found = pages.data(pages.page(tmp_path / "odd.pt"))
    assert len(found["homes"]) == 10 and found["values"]["nan"][7] == 4
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    parsed(pages.page(tmp_path / "none.pt"))


@pytest.mark.slow
def test_fifty_thousand_tensors_are_a_few_megabytes(tmp_path):
    """The page of a very large model stays usable: columns of numbers, and 100 rows of markup."""
    torch.manual_seed(0)
    names = [f"model.layers.{at // 768}.mlp.experts.{at % 768 // 3}.w{at % 3}.weight" for at in range(50_000)]
    values = torch.randn(50_000, 16, 8).bfloat16()
    save_file(dict(zip(names, values.unbind(), strict=True)), tmp_path / "big.safetensors", {"format": "pt"})
    page = pages.page(tmp_path / "big.safetensors")
    assert 1_000_000 < len(page.encode()) < 7_000_000
    assert page.count("<tr") < 200
