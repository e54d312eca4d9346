"""What holds for all tests of data: no data directory, no home, no cache and no proxy but those of the test."""

from pathlib import Path

import pytest

UNSET = ("JAXAUDIT_DATA", "TFDS_DATA_DIR", "NO_PROXY", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("JAXAUDIT_CACHE", "cache"), ("HOME", "home"), ("USERPROFILE", "home")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    for variable in UNSET:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    # To count them, scikit-learn would start a process.
    monkeypatch.setattr("joblib.externals.loky.backend.context.physical_cores_cache", 1)
