import pytest

from ckptdoctor import config
from ckptdoctor.config import Config
from ckptdoctor.errors import UsageError


def written(folder, name, text):
    """A file in a folder that is made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder)


def test_pyproject(tmp_path):
    """The table tool.ckptdoctor of a pyproject.toml is read, from any directory below."""
    text = '[tool.ckptdoctor]\nselect = ["N"]\nextend-select = ["D601"]\nfail-on = "error"\nformat = "concise"\n'
    written(tmp_path, "pyproject.toml", text)
    below = written(tmp_path / "a" / "b", "x.txt", "")
    assert config.load(below) == Config(("N",), None, ("D601",), "error", "concise")


def test_own_file_comes_first(tmp_path):
    """Beside a pyproject.toml the ckptdoctor.toml counts."""
    written(tmp_path, "pyproject.toml", '[tool.ckptdoctor]\nselect = ["N"]\n')
    assert config.load(written(tmp_path, "ckptdoctor.toml", 'ignore = ["A701"]\n')) == Config(ignore=("A701",))


def test_the_nearest_wins(tmp_path):
    """A project's settings replace those of the directory above; a pyproject.toml without a table does not count."""
    written(tmp_path, "ckptdoctor.toml", 'select = ["N"]\n')
    nested = written(tmp_path / "p", "pyproject.toml", '[project]\nname = "x"\n')
    assert config.load(nested) == Config(select=("N",))
    written(tmp_path / "p", "pyproject.toml", '[tool.ckptdoctor]\nselect = ["D"]\n')
    assert config.load(nested) == Config(select=("D",))


def test_nothing_set(tmp_path):
    """An empty table, or a pyproject.toml that mentions the name elsewhere, sets nothing."""
    assert config.load(written(tmp_path / "a", "ckptdoctor.toml", "")) == Config()
    text = '[project]\ndependencies = ["ckptdoctor"]\n[tool.ckptdoctor]\n'
    assert config.load(written(tmp_path / "b", "pyproject.toml", text)) == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selekt = []", 'unknown setting "selekt". Did you mean "select"?'),
        ("zzz = []", 'unknown setting "zzz". Use one of select, ignore, extend-select, fail-on, format, keys.'),
        ('format = "jsno"', 'Did you mean "json"?'),
        ('select = "N401"', "select must be a list"),
        ("ignore = [1]", "ignore must be a list"),
        ('fail-on = "often"', "fail-on must be one of error, warning, info, never"),
        ("format = 3", "format must be one of full"),
        ("= broken", "is not valid TOML"),
        ('keys = "f"', "keys must be a table"),
        ("[keys]\nfilter = 1", "keys.filter must be a key"),
        ("[keys]\nfilter = []", "keys.filter must be a key"),
    ],
)
def test_mistakes_name_the_file_and_the_key(tmp_path, text, said):
    """Whatever cannot be understood is refused with the file and the key."""
    with pytest.raises(UsageError, match=said) as caught:
        config.load(written(tmp_path, "ckptdoctor.toml", text))
    assert "ckptdoctor.toml" in caught.value.message


def test_a_table_that_is_none(tmp_path):
    """tool.ckptdoctor has to be a table."""
    with pytest.raises(UsageError, match="must be a table"):
        config.load(written(tmp_path, "pyproject.toml", "[tool]\nckptdoctor = 1\n"))


def test_keys(tmp_path):
    """Other keys for the browser: one, or several."""
    text = '[tool.ckptdoctor.keys]\nfilter = "f"\nlist = ["z", "f2"]\n'
    assert config.load(written(tmp_path, "pyproject.toml", text)).keys == {"filter": "f", "list": "z,f2"}
