"""A number that a file only claims takes no memory: real processes with a bank of log-odds of a million classes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.banks import describe
from support.cli_runs import jaxaudit
from support.saved_runs import RUNS, as_json, save

from jaxaudit.cli.efficacy.run import _outputs_of
from jaxaudit.cli.network_inputs import label_outputs
from jaxaudit.data.bank.foreign import read_labels
from jaxaudit.data.examples import Examples
from jaxaudit.data.records import Records
from jaxaudit.errors import InputError
from jaxaudit.kernels.likelihoods import CATEGORICAL

RECORDS, MODELS = 960, 24
MOST = 1 << 30
"""Bytes that such a process may have at most: one with a few classes has some 400 MB."""
PEAK = """
import atexit, re, sys
from pathlib import Path
from jaxaudit.cli import main
place = Path(sys.argv.pop(1))
said = Path("/proc/self/status")
atexit.register(lambda: place.write_text(re.search(r"VmHWM:\\s+(\\d+) kB", said.read_text())[1]))
main()
"""
"""A command that writes how much memory it had at most, in KiB. (`getrusage` would count that of this process, too.)"""


def test_classes_that_the_outputs_of_another_tool_claim_are_not_named(tmp_path: Path):
    path = tmp_path / "labels.npy"
    np.save(path, np.zeros(4, int))
    with pytest.raises(InputError, match="100,000,000,000 classes; a bank has at most 1,000,000"):
        read_labels(path, 4, 10**11)


def test_outputs_that_one_label_claims_are_not_made():
    labels = np.array([0, 10**12])
    records, name = Records({"a": np.zeros((2, 1))}, labels, "texts"), "texts: labels are 100,000 or more"
    with pytest.raises(InputError, match=name):
        _outputs_of(records, CATEGORICAL)
    named = Examples(np.zeros((2, 1)), np.array([0, 1]), ("0", "999999999999"), "texts")
    with pytest.raises(InputError, match=name):
        label_outputs(named, None)
    # A number that no machine counts to is a name.
    long = Examples(np.zeros((2, 1)), np.array([0, 1]), ("0", "9" * 5000), "texts")
    assert label_outputs(long, None) is long


def test_records_that_a_result_claims_are_not_drawn(tmp_path: Path):
    value = as_json(RUNS["pdtp"]())
    before, many = value["records_measured"], 10**12
    value["records_measured"] = value["training_records"] = many
    value["distribution"][0]["records"] += many - before
    for name in ("one", "two"):
        save(RUNS["pdtp"](), tmp_path / name, value)
        (tmp_path / name / "records.parquet").unlink(missing_ok=True)
    done = jaxaudit("report", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "page.html"))
    assert done.code == 2
    assert "it measured more than 10,000,000 records" in done.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of log-odds, some 0.1 MB, and a target of the same form; one record has the largest label there can be."""
    folder, random = tmp_path_factory.mktemp("claims"), np.random.default_rng(3)
    third = RECORDS // 3
    counts = {"query": third, "holdout": third, "calibration": third}
    said = describe(outputs="log_odds", classes=10**6, records=RECORDS, models=MODELS, counts=counts)
    (folder / "bank").mkdir()
    (folder / "bank" / "bank.json").write_text(json.dumps(said))
    labels = np.arange(RECORDS) % 3
    labels[-1] = 10**6 - 1
    np.save(folder / "bank" / "labels.npy", labels)
    membership = np.zeros((MODELS, RECORDS), bool)
    for row in membership:
        row[random.permutation(2 * third)[:third]] = True
    np.save(folder / "bank" / "membership.npy", membership)
    level = random.normal(2, 1, RECORDS)
    odds = level + 2 * membership + random.normal(size=membership.shape)
    np.save(folder / "bank" / "outputs.npy", odds.astype(np.float32))
    target = (level + random.normal(size=RECORDS)).astype(np.float32)
    for name, part in (("query", slice(0, third)), ("holdout", slice(third, 2 * third)), ("all", slice(None))):
        np.save(folder / f"{name}.npy", target[part])
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "ks --shadows bank --target query.npy --holdout-target holdout.npy",
        "attack --shadows bank --target all.npy",
        "shadows show bank",
    ],
)
def test_a_million_classes_of_log_odds_take_no_memory(folder: Path, command: str):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "peak", *command.split(), "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        timeout=300,
    )
    assert done.returncode in (0, 2), done.stderr
    assert done.returncode == 0 or done.stderr.count("Error:") == 1
    assert int((folder / "peak").read_text()) * 1024 < MOST
