"""The checks of this project, each as a session: `nox -l` lists them, `nox -s NAME` runs one.

`.github/workflows/ci.yml` runs these and nothing else, so what it finds can be found on any machine.

A check is a session. `noxfile.py` has the checks; the workflow runs its sessions and nothing else, and a test holds the
two together. What a session cannot have here (other systems, other Pythons) is written as if it could.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
JAX = {"oldest": ("jax==0.10.0", "jaxlib==0.10.0"), "newest": ("jax<0.12", "jaxlib<0.12")}
"""The two ends of what `pyproject.toml` allows."""
AXE = "axe-playwright-python==0.1.8"
"""Ships axe-core as a file, which is all that is used of it: no driver is installed with it."""
LEAST_TYPED = 95.0
"""Percent of public names with a known type."""
OF_PYTORCH = (
    "tests/attacks/test_attacks_learned.py::test_as_good_as_the_toolbox_itself",
    "tests/audits/test_efficacy_adapters.py",
    "tests/cli/test_cli_chats.py",
    "tests/cli/test_cli_efficacy_texts.py",
    "tests/cli/test_cli_scores_lm.py",
    "tests/cli/test_cli_shadows_adapters.py",
    "tests/fuzz/test_fuzz.py::test_what_is_given_to_a_language_model_is_scored_or_refused",
    "tests/learners/test_recipes.py",
    "tests/models/test_causal.py",
    "tests/models/test_lora.py",
    "tests/models/test_models_language_model.py",
    "tests/models/test_torch_module.py",
    "tests/models/test_transformers_classifier.py",
    "tests/test_examples.py::test_a_script_trains_what_is_missing[shadows_pytorch.py]",
    "tests/test_examples.py::test_logits_of_a_pytorch_module_become_numpy",
    "tests/test_what_leaves.py",
)
"""Tests that need PyTorch or transformers, which the other sessions do without."""


@nox.session
def everything(session: nox.Session) -> None:
    """All tests with this Python, linters, types, pages in a browser, the site; `.ci/run` also tests the built site."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (f"tests-{here}(jax='newest')", "lint", "types", "accessibility", "docs"):
        session.notify(name)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the contracts between rooms."""
    session.install("-e", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Types of all code, and how many of the public names have one."""
    session.install("-e", ".[test]")
    python = str(Path(session.bin) / Path(sys.executable).name)
    session.run("pyright", "--pythonpath", python)
    command = ["pyright", "--verifytypes", "jaxaudit", "--ignoreexternal", "--outputjson"]
    # Pyright does not follow an editable installation to its sources by itself. It asks the session's own Python.
    said = session.run(*command, silent=True, success_codes=[0, 1], env={"PYTHONPATH": str(ROOT)})
    if not isinstance(said, str):
        return
    share = 100 * json.loads(said[said.index("{") :])["typeCompleteness"]["completenessScore"]
    session.log(f"types are known of {share:.1f}% of the public names; at least {LEAST_TYPED:g}% are asked for")
    if share < LEAST_TYPED:
        session.error("too few public names have a type: pyright --verifytypes jaxaudit --ignoreexternal names them")


@nox.session(python=PYTHONS)
@nox.parametrize("jax", list(JAX))
def tests(session: nox.Session, jax: str) -> None:
    """All tests, with the oldest or the newest jax that is allowed; what stands behind `--` goes to pytest instead."""
    session.install("-e", ".[test]", *JAX[jax])
    circle = ["-n", "auto", "--dist", "loadfile"]
    for words in [session.posargs] if session.posargs else [circle, [*circle, "--outer"]]:
        session.run("python", "-m", "pytest", *words)


@nox.session
def pytorch(session: nox.Session) -> None:
    """Networks of PyTorch, language models of transformers and adapters of peft: what the other sessions leave out."""
    session.install("-e", ".[test,transformers]", "peft")
    session.run("python", "-m", "pytest", "--outer", "-n", "auto", "--dist", "loadfile", *OF_PYTORCH)


@nox.session
def accessibility(session: nox.Session) -> None:
    """axe-core on the report's pages, in a headless Chromium, which must be there."""
    session.install("-e", ".[test]")
    session.install("--no-deps", AXE)
    command = ["python", "-m", "pytest", "--outer", "tests/report/test_report_browser.py"]
    session.run(*command, *session.posargs, env={"JAXAUDIT_NEEDS_BROWSER": "1"})


@nox.session
def docs(session: nox.Session) -> None:
    """The site, into docs/_build/html; a warning is an error."""
    session.install("-e", ".[docs]")
    # Tutorials that were run before would not be run again.
    shutil.rmtree("docs/_build", ignore_errors=True)
    session.run(*["python", "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html"])


@nox.session
def package(session: nox.Session) -> None:
    """Wheel and sdist: built, checked, each installed into an empty environment and tried outside of the checkout."""
    session.install("build", "twine")
    with tempfile.TemporaryDirectory() as folder:
        clean, dist = (Path(folder) / name for name in ("clean", "dist"))
        # What git does not know is not in the package: nothing may be found here by chance.
        session.run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(clean), external=True)
        session.run("python", "-m", "build", "--outdir", str(dist), str(clean))
        made = sorted(dist.iterdir())
        session.run("twine", "check", "--strict", *map(str, made))
        for file in made:
            venv, elsewhere = (Path(folder) / f"{name}{file.suffix}" for name in ("venv", "elsewhere"))
            elsewhere.mkdir()
            session.run("python", "-m", "venv", str(venv))
            python = next(path for path in (venv / "bin" / "python", venv / "Scripts" / "python.exe") if path.exists())
            session.run(str(python), "-m", "pip", "install", "--quiet", str(file), external=True)
            with session.chdir(elsewhere):
                session.run(str(python), str(ROOT / "tests" / "smoke.py"), external=True, env={"PYTHONPATH": ""})
