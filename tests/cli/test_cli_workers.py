"""`--workers`: who trains decides no number."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from support.cli_runs import QUICK, Done, jaxaudit, process

from jaxaudit.cli.attack import AttackOptions
from jaxaudit.cli.harness import crew
from jaxaudit.cli.options import identity_of
from jaxaudit.cli.parsers import parse_workers
from jaxaudit.cli.shared_options import RecipeFlags
from jaxaudit.errors import InputError

PDTP = ("pdtp", "--data", "digits", "--sample", "100", "--measured-records", "6", "--json")


def numbers(done: Done) -> str:
    """Everything that is printed, but for the provenance."""
    result = done.result
    del result["provenance"]
    return json.dumps(result)


@pytest.mark.outer
def test_a_stopped_command_leaves_no_worker_and_continues(tmp_path: Path):
    """Killed, then interrupted; the third ends as if it had been the first."""
    words = [*PDTP, "--epochs", "150", "--recipe", "models-per-batch=1"]
    environment = {**os.environ, "JAXAUDIT_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "jaxaudit", *words, "--out", "run", "--workers", "2"]
    for number in (signal.SIGKILL, signal.SIGINT):
        before = chunks(tmp_path)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes) as run:
            while chunks(tmp_path) <= before:
                assert run.poll() is None, run.communicate()
                time.sleep(0.01)
            children = Path(f"/proc/{run.pid}/task").glob("*/children")
            found = {int(pid) for each in children for pid in each.read_text().split()}
            run.send_signal(number)
            _, err = run.communicate(timeout=60)
        assert len(found) >= 2
        if number == signal.SIGINT:
            assert run.returncode == 130
            assert "models are trained" in err
        deadline = time.monotonic() + 20
        while any(map(lives, found)):
            assert time.monotonic() < deadline, "workers outlive their command"
            time.sleep(0.05)
    again = process(*words, "--out", "run", "--workers", "1", cwd=tmp_path, JAXAUDIT_CACHE=str(tmp_path))
    assert "Resuming" in again.err
    assert numbers(again) == numbers(jaxaudit(*words))


def chunks(folder: Path) -> set[Path]:
    return set(folder.rglob("chunks/*/*.npz"))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.outer
def test_a_network_from_a_file_goes_to_workers(sets: Path):
    (sets / "net.py").write_text("from jaxaudit.models import MLP\n")
    words = ("ks", *QUICK, "--model", "net.py:MLP", "--json")
    assert numbers(jaxaudit(*words)) == numbers(jaxaudit(*words, "--workers", "2"))


def test_what_becomes_of_workers_is_said(capsys: pytest.CaptureFixture[str]):
    with crew(RecipeFlags(workers="1")) as executor:
        assert executor is not None
        for message in ("ended", "ended"):
            warnings.warn(RuntimeWarning(message), stacklevel=1)
    assert capsys.readouterr().err.splitlines() == ["ended", "ended"]
    with crew(RecipeFlags()) as executor:
        assert executor is None


LOOK = """
import os, sys
from jax._src import xla_bridge

def look(*_):
    options = xla_bridge._options_from_jax_configs("cuda")
    names = "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE"
    print(options.get("visible_devices", "all"), *map(os.environ.get, names), flush=True)
    os._exit(0)

xla_bridge.backends = look
from jaxaudit.cli import main
sys.argv = ["jaxaudit", *sys.argv[1:]]
main()
"""
"""Runs a command up to its first device, and prints what JAX would ask CUDA for: its own function says it."""


@pytest.mark.outer
@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("pdtp", "--data", "digits", "--workers", "2", "--report", "page.html"), "[0] 6,GPU-7 false"),
        (("pdtp", "--data", "digits", "--report", "page.html"), "all 6,GPU-7 None"),
    ],
)
def test_a_command_with_workers_uses_one_gpu_itself(words: tuple[str, ...], seen: str, tmp_path: Path):
    """And leaves the others to be seen: by its workers, or by a Ray that it starts."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "6,GPU-7"}
    environment.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines() == [seen], done.stderr


def test_who_trains_is_no_part_of_a_run():
    ray, *further = (identity_of(AttackOptions(workers=text)) for text in ("ray", "2", "4@ray://head:1", None))
    assert further == [ray] * 3


def test_words_that_name_no_workers_are_refused():
    for text in ("0", "-1", "1.5", "", "dask", "ray://head", "ray:/head:1", "ray://a b:1", "0@ray", "2@", "ray@2"):
        with pytest.raises(InputError, match="ray://HOST:PORT"):
            parse_workers(text)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_without_ray_names_the_extra():
    done = jaxaudit("pdtp", "--workers", "ray")
    assert done.code == 2
    assert "jaxaudit[ray]" in done.err


@pytest.mark.outer
def test_by_ray():
    pytest.importorskip("ray")
    words = (*PDTP, "--epochs", "2", "--recipe", "models-per-batch=2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert numbers(jaxaudit(*words)) == numbers(jaxaudit(*words, "--workers", "ray"))
