"""What tests of commands share: a copy of a module's files to work in."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as working folder, of what the module's own fixture `made` made once."""
    copy = shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(copy)
    return copy
