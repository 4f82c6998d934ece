import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Elided, FileSource, Mapping, Role, StateDict
from ckptdoctor.rendering import devices, show_json, tree
from ckptdoctor.rendering.contents import value
from tests.builders import moved
from tests.golden import golden
from tests.rendering import samples


def test_the_tree_of_a_training_checkpoint():
    """Modules unfold at the dots of their keys, everything else as it is nested, each level with its sums."""
    golden("tree.txt", tree.tree(samples.checkpoint()))


def test_the_flat_list():
    """Each tensor is one line with path, shape, dtype, bytes and device tag."""
    golden("keys.txt", tree.keys(samples.checkpoint().tensors))


def test_hostile_keys_are_escaped():
    """No key reaches the terminal raw, in the tree or in the list."""
    odd = samples.tensor("a\x1b[2J\n.b\u202e", device="cuda:0\x07")
    contents = samples.checkpoint()
    node = Mapping("dict\x1b", (("a\x1b[2J\n.b\u202e", odd), ("x\n", "y\n"), ("z", Elided("why\x1b"))))
    for text in (tree.tree(contents, (), node), tree.keys((odd,))):
        assert all(line.isprintable() for line in text.split("\n"))


def test_many_plain_values_are_counted():
    """A list of a thousand numbers does not flood the tree."""
    node = Mapping("dict", tuple((f"k{i}", i) for i in range(1000)))
    assert "… 976 more" in tree.tree(samples.checkpoint(), (), node)


def test_endless_nesting_ends():
    """A key of a hundred thousand dots, and contents nested as deeply, are shown at once and cut off."""
    contents = samples.checkpoint()
    nested = Mapping("dict", (("deepest", 1),))
    for _ in range(100_000):
        nested = Mapping("dict", (("down", nested),))
    dotted = samples.tensor("state_dict", ".".join("a" * 100_000), shape=(2,))
    node = Mapping("dict", (("nested", nested), ("state_dict", Mapping("dict", ((dotted.key, dotted),)))))
    lines = tree.tree(contents, (), node).split("\n")
    assert len(lines) < 100 and max(map(len, lines)) < 400


def test_module_versions_do_not_flood_the_tree():
    """The _metadata of a state dict is one line, however many modules it names."""
    versions = Mapping("dict", tuple((f"m{i}", Mapping("dict", (("version", 1),))) for i in range(50)))
    node = Mapping("dict", (("w", samples.tensor("w")),), Mapping("dict", (("_metadata", versions),)))
    lines = tree.tree(samples.checkpoint(), (), node).split("\n")
    assert len(lines) == 3 and "  ._metadata dict of 50" in lines


def test_tied_tensors_count_once():
    """Two names of one storage are two tensors, but their elements and bytes are counted once."""
    one = samples.tensor("embed.weight", shape=(10, 10), key="0")
    two = samples.tensor("head.weight", shape=(10, 10), key="0")
    node = Mapping("dict", (("embed.weight", one), ("head.weight", two)))
    first = tree.tree(samples.checkpoint(), (), node).split("\n")[0]
    assert "2 tensors" in first and " 100 " in first and "400 bytes" in first


def test_device_tags_and_machines_with_fewer_gpus():
    """The list says what each tag holds, which tags a smaller machine lacks, and what would gather on one GPU."""
    tensors = tuple(samples.tensor("state_dict", f"w{i}", shape=(250,), device=f"cuda:{i}") for i in range(3))
    contents = samples.checkpoint()
    spread = type(contents)(
        **{
            **{name: getattr(contents, name) for name in contents.__slots__},
            "tensors": tensors,
            "storages": tuple(each.storage for each in tensors),
            "state_dicts": (StateDict(("state_dict",), Role.MODEL, tensors),),
        }
    )
    golden("devices.txt", devices.devices(spread))
    assert devices.as_data(spread)[2] == {"device": "cuda:2", "storages": 1, "bytes": 1000}


def test_values_on_one_line():
    """Plain values are shown as they are, long ones abridged, huge ones described."""
    assert [value(each) for each in (True, None, 41, 1_000_000, 0.1)] == ["True", "None", "41", "1,000,000", "0.1"]
    assert value("x\n") == r"'x\\n'" or value("x\n") == r"'x\n'"
    assert len(value("y" * 1_000_000)) <= 40
    assert value(1 << 4_000_000) == "2^4000000"


def test_show_as_json_parses():
    """The JSON has every tensor, and NaN, which JSON lacks, as text."""
    import json

    node = Mapping("dict", (("loss", float("nan")), ("raw", b"123")))
    document = json.loads(show_json.render(samples.checkpoint(), "1", (), node))
    assert document["contents"] == {"loss": {"$float": "nan"}, "raw": {"$bytes": 3}}
    assert document["tensors"][0]["shape"] == [64, 3, 7, 7]
    assert document["state_dicts"][0] == {"path": "state_dict", "role": "model", "tensors": 3}


def test_devices_without_storages(tmp_path):
    """What loading moves to a device counts there; arrays are counted as such."""
    values = {"a": moved(torch.ones(2)), "b": moved(torch.ones(3), saved_as="array"), "c": torch.ones(4)}
    torch.save(values, tmp_path / "a.pt")
    with FileSource(tmp_path / "a.pt") as source:
        checkpoint = formats.read(source, formats.examine(source))
    assert [line.split() for line in devices.devices(checkpoint).splitlines()] == [
        ["cpu", "1", "storage", "16", "bytes", "(root)"],
        ["xla:0", "1", "storage,", "1", "array", "20", "bytes", "(root)"],
    ]
    assert devices.as_data(checkpoint)[1] == {"device": "xla:0", "storages": 1, "bytes": 20}
