import pytest

from tests.cli import files


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """A directory with one file of each sort; the tests only read it."""
    folder = tmp_path_factory.mktemp("shelf")
    for make in (files.sick, files.healthy, files.training, files.hostile):
        make(folder)
    (folder / "empty.pt").write_bytes(b"")
    (folder / "page.pt").write_text("<!DOCTYPE html><html><title>Quota exceeded</title></html>")
    return folder
