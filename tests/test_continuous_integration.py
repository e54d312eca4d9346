"""The workflow runs sessions of noxfile.py and nothing else, and both speak of the versions that the package allows."""

import itertools
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from nox import registry

ROOT = Path(__file__).parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
ONE_OF_TESTS = """nox -s "tests-${{ matrix.python }}(jax='${{ matrix.jax }}')\""""
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@cache
def noxfile() -> dict[str, Any]:
    """Its constants; reading it registers its sessions."""
    return runpy.run_path(str(ROOT / "noxfile.py"))


def test_jobs_install_nox_and_run_every_session_that_it_lists_but_all_in_one():
    noxfile()
    assert registry.get().keys() - {"everything"} == WORKFLOW["jobs"].keys()
    for name, job in WORKFLOW["jobs"].items():
        *before, last = [step["run"] for step in job["steps"] if "run" in step]
        assert before == ["python -m pip install nox"], name
        assert last == (ONE_OF_TESTS if name == "tests" else f"nox -s {name}")


def test_systems_pythons_and_ends_of_jax_are_all_there():
    jobs = WORKFLOW["jobs"]
    assert {"ubuntu-latest", "macos-latest", "windows-latest"} == set(jobs["package"]["strategy"]["matrix"]["os"])
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["jax"]) == (noxfile()["PYTHONS"], list(noxfile()["JAX"]))
    assert all(more["python"] in matrix["python"] and more["jax"] in matrix["jax"] for more in matrix["include"])
    least = re.search(r'requires-python = ">=([\d.]+)"', PROJECT)
    assert least is not None
    assert noxfile()["PYTHONS"][0] == least[1]
    bounds = re.search(r'"jax>=([\d.]+),<([\d.]+)"', PROJECT)
    assert bounds is not None
    assert noxfile()["JAX"]["oldest"][0].startswith(f"jax=={bounds[1]}.")
    assert noxfile()["JAX"]["newest"] == (f"jax<{bounds[2]}", f"jaxlib<{bounds[2]}")


def test_no_job_may_write_or_keeps_the_token():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert checkout["with"] == {"persist-credentials": False}
        assert job["timeout-minutes"] <= 180


@pytest.mark.outer
def test_both_circles_and_every_order_run_the_same_tests_each_once():
    def collected(*words: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "::" in line]

    rooms = ("tests/ensemble", "jaxaudit/ensemble")
    roots = ("-o", f"testpaths={' '.join(rooms)}")
    inner, outer, both = collected(*roots), collected(*roots, "--outer"), collected("--outer", *rooms)
    assert inner
    assert outer
    assert sorted(both) == sorted(inner + outer)
    assert sorted(collected(*rooms)) == sorted(inner)
    assert collected(outer[0]) == outer[:1], "a single test that is named runs whatever it is"
    assert collected(*roots, "--order", "reversed") == inner[::-1]
    shuffled = collected(*roots, "--order", "7")
    assert shuffled not in (inner, inner[::-1])
    assert sorted(shuffled) == sorted(inner)
    files = [test.partition("::")[0] for test in shuffled]
    assert len(list(itertools.groupby(files))) == len(set(files)), "tests of a file run one after another"


@pytest.mark.outer
def test_all_checks_in_one_end_with_what_needs_pytorch_and_every_such_test_is_listed():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ *(sed -n '/\^OF_PYTORCH.*?) \| xargs", text, re.MULTILINE)
    listed = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tuple(listed.splitlines()) == noxfile()["OF_PYTORCH"]
    needs = re.compile(r'(importorskip|find_spec)\("(torch|torchax|transformers)"')
    files = {path for path in (ROOT / "tests").rglob("test_*.py") if needs.search(path.read_text(encoding="utf-8"))}
    # Its peer is an extra of its own.
    files -= {ROOT / "tests" / "kernels" / "test_gradient_norms_torch.py"}
    assert {ROOT / test.partition("::")[0] for test in noxfile()["OF_PYTORCH"]} == files
