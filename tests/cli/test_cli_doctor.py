"""`jaxaudit doctor`: what it says is what is here, and it changes nothing."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from support.cli_runs import content, jaxaudit, process

from jaxaudit.cli.doctor import installed
from jaxaudit.cli.doctor.installed import folder_size
from jaxaudit.version import __version__


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder and a cache of its own, and no home with sets."""
    for name, folder in {"JAXAUDIT_DATA": "data", "JAXAUDIT_CACHE": "cache", "HOME": "home"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    return tmp_path


def test_it_says_what_is_here_and_changes_nothing(here: Path):
    (here / "data" / "adult").mkdir(parents=True)
    (here / "data" / "adult" / "adult.data").write_text("x" * 3000)
    (here / "data" / "mnist").mkdir()
    before = content(here)
    done = jaxaudit("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    assert content(here) == before
    found = done.result
    assert (found["jaxaudit"], found["problems"]) == (__version__, [])
    assert found["devices"]["names"] == ["cpu: cpu"] * len(found["devices"]["names"])
    places = {each["name"]: each for each in found["places"]}
    assert (places["data"]["size"], places["data"]["files"], places["data"]["there"]) == (3000, 1, True)
    assert (places["cache"]["there"], places["cache"]["chosen_by"]) == (False, "JAXAUDIT_CACHE")
    packages = {each["name"]: each for each in found["packages"]}
    assert packages["jax"]["version"] == version("jax")
    assert all(each["fits"] for each in found["packages"])
    sets = {each["name"]: each for each in found["data_sets"]}
    assert all(sets[name]["ready"] for name in ("digits", "printed-digits", "wine", "breast-cancer", "adult"))
    assert not sets["purchase"]["ready"]
    assert "transactions.csv" in sets["purchase"]["todo"]
    assert sets["mnist"]["where"].endswith("not looked into")
    assert {"prepare", "medical", "cuda", "torch", "keras", "dp", "ray"} <= {each["name"] for each in found["extras"]}


def test_what_every_command_needs_and_is_not_there_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch):
    asked = ["jax>=99", "no-such-package>=1.5", 'windows-only; sys_platform == "none"', 'other; extra == "torch"']
    monkeypatch.setattr(installed, "requires", lambda _: asked)
    done = jaxaudit("doctor")
    assert done.code == 1
    assert f"jax is {version('jax')}, >=99 is needed: pip install 'jax>=99'" in done.out
    assert "no-such-package is missing, >=1.5 is needed" in done.out
    assert "windows-only" not in done.out
    monkeypatch.setattr(installed, "requires", lambda _: [])
    assert "is not installed here" in jaxaudit("doctor").out


def test_a_cache_that_cannot_be_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "file").write_text("")
    monkeypatch.setenv("JAXAUDIT_CACHE", str(here / "file" / "cache"))
    done = jaxaudit("doctor", "--json")
    assert done.code == 1
    assert "JAXAUDIT_CACHE" in json.loads(done.out)["problems"][0]


@pytest.mark.outer
def test_no_device_is_a_failure(tmp_path: Path):
    done = process("doctor", cwd=tmp_path, JAX_PLATFORMS="nothing")
    assert done.code == 1
    assert "JAX has no device" in done.out
    assert done.err == ""


def test_an_extra_of_another_package_is_missing_with_it():
    (jax,) = installed.extras()["cuda"]
    assert jax.name == "jax[cuda13]"
    assert jax.version is not None
    assert not jax.fits


def test_folders_are_measured_without_following_links(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "a" / "b" / f"{number}").write_bytes(bytes(10))
    os.symlink(tmp_path, tmp_path / "a" / "around")
    os.symlink(tmp_path / "a" / "b" / "0", tmp_path / "a" / "linked")
    assert folder_size(tmp_path) == (30, 3, True)
    assert folder_size(tmp_path, most=2) == (20, 2, False)
    assert folder_size(tmp_path / "gone") == (0, 0, True)
