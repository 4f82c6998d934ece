import pytest

from ckptdoctor.report.abbreviating import pattern


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (["conv1.weight"], "conv1.weight"),
        (["module.a.w", "module.b.w"], "module.{a,b}.*"),
        (["module.conv1.weight", "module.layer1.0.w", "module.layer2.0.w", "module.layer3.1.w", "module.fc.bias"],
         "module.{conv1,layer{1..3},fc}.*"),
        (["layers.0.w", "layers.1.w", "layers.2.w"], "layers.{0..2}.*"),
        (["layers.0.w", "layers.5.w"], "layers.{0…5}.*"),
        (["fc.weight", "fc.bias"], "fc.{weight,bias}"),
        (["a", "b"], "{a,b}"),
        (["a.w", "b"], "{a,b}.*"),
        (["a.b.w", "a.b.w.x"], "a.b.w.*"),
        ([f"m.{name}.w" for name in "abcdefgh"], "m.{a,b,c,d,e,f,…}.*"),
        (["x01.w", "x02.w"], "x0{1..2}.*"),
        (["", "a"], "{,a}"),
        (["x1.w", "x1.b"], "x1.{w,b}"),
    ],
)  # fmt: skip
def test_keys_become_one_pattern(keys: list[str], wanted: str):
    """What they share stands before the braces, numbered neighbours are folded, ``.*`` says that keys go on."""
    assert pattern(keys) == wanted


def test_huge_numbers_and_odd_keys_are_no_trouble():
    """Digits that are no index, line breaks, thousands of keys: the pattern stays short."""
    assert pattern(["a" + "9" * 5000, "b\n1"]) == "{a" + "9" * 5000 + ",b\n1}"
    assert pattern([f"module.layers.{i}.weight" for i in range(50_000)]) == "module.layers.{0..49999}.weight".replace(
        "weight", "*"
    )
