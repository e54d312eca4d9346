"""The workflow and noxfile.py speak of the versions that the package allows, and no job may write."""

import ast
import re
from pathlib import Path
from typing import Any

import yaml

from jaxaudit.version import __version__

ROOT = Path(__file__).parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
NOXFILE = (ROOT / "noxfile.py").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def constant(name: str) -> Any:
    """A constant of noxfile.py, which is not imported: nox is not needed to run the tests."""
    assigned = {
        target.id: node.value
        for node in ast.parse(NOXFILE).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return ast.literal_eval(assigned[name])


def test_systems_pythons_and_ends_of_jax_are_all_there():
    jobs = WORKFLOW["jobs"]
    assert {"ubuntu-latest", "macos-latest", "windows-latest"} == set(jobs["package"]["strategy"]["matrix"]["os"])
    assert jobs["tests"]["strategy"]["matrix"]["python"] == constant("PYTHONS")
    assert jobs["tests"]["strategy"]["matrix"]["jax"] == list(constant("JAX"))
    least = re.search(r'requires-python = ">=([\d.]+)"', PROJECT)
    assert least is not None
    assert constant("PYTHONS")[0] == least[1]
    bounds = re.search(r'"jax>=([\d.]+),<([\d.]+)"', PROJECT)
    assert bounds is not None
    assert constant("JAX")["oldest"][0].startswith(f"jax=={bounds[1]}.")
    assert constant("JAX")["newest"] == (f"jax<{bounds[2]}", f"jaxlib<{bounds[2]}")


def test_no_job_may_write_or_keeps_the_token():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert checkout["with"] == {"persist-credentials": False}
        assert job["timeout-minutes"] <= 180


def test_the_version_stands_in_one_place():
    tracked = ("pyproject.toml", "CITATION.cff", "CONTRIBUTING.md", "noxfile.py", ".github/workflows/ci.yml")
    for name in tracked:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if re.search(rf"\b{re.escape(__version__)}\b", line)] == [], name
    assert 'version = { attr = "jaxaudit.version.__version__" }' in PROJECT
