"""What a stranger's file claims takes no memory, and many models little time."""

import json
from pathlib import Path

import numpy as np
import pytest
from fuzz.watch import forget_peak, memory
from support.banks import RECORDS, describe, write_bank
from support.cli_runs import jaxaudit
from support.memory import at_most

from jaxaudit.cli.efficacy.run import _outputs_of
from jaxaudit.cli.network_inputs import label_outputs
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.data.bank.foreign import read_labels
from jaxaudit.data.examples import Examples
from jaxaudit.data.records import Records
from jaxaudit.errors import InputError
from jaxaudit.kernels.likelihoods import CATEGORICAL

THIRD, MODELS = 100, 20


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


def claiming(folder: Path) -> None:
    """A bank of log-odds, some 0.1 MB, and a target of the same form; one record has the largest label there can be."""
    random = np.random.default_rng(3)
    counts = {"query": THIRD, "holdout": THIRD, "calibration": THIRD}
    said = describe(outputs="log_odds", classes=10**6, records=3 * THIRD, models=MODELS, counts=counts)
    (folder / "bank").mkdir()
    (folder / "bank" / "bank.json").write_text(json.dumps(said))
    labels = np.arange(3 * THIRD) % 3
    labels[-1] = 10**6 - 1
    np.save(folder / "bank" / "labels.npy", labels)
    membership = np.zeros((MODELS, 3 * THIRD), bool)
    for row in membership:
        row[random.permutation(2 * THIRD)[:THIRD]] = True
    np.save(folder / "bank" / "membership.npy", membership)
    level = random.normal(2, 1, 3 * THIRD)
    odds = level + 2 * membership + random.normal(size=membership.shape)
    np.save(folder / "bank" / "outputs.npy", odds.astype(np.float32))
    target = (level + random.normal(size=3 * THIRD)).astype(np.float32)
    for name, part in (("query", slice(0, THIRD)), ("holdout", slice(THIRD, 2 * THIRD)), ("all", slice(None))):
        np.save(folder / f"{name}.npy", target[part])


def test_a_million_classes_of_log_odds_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Outputs of all classes would have 1.2 GB."""
    monkeypatch.chdir(tmp_path)
    claiming(tmp_path)
    forget_peak()
    began = memory("VmRSS")
    for command in (
        "shadows show bank",
        "ks --shadows bank --target query.npy --holdout-target holdout.npy",
        "attack --shadows bank --target all.npy",
    ):
        done = jaxaudit(*command.split(), "--json")
        assert done.code == 0 or (done.code == 2 and done.err.count("Error:") == 1), done.err
    assert memory("VmHWM") - began < 1 << 29


MANY = 2 * 10**5


def zeros(path: Path, dtype: str, shape: tuple[int, ...]) -> np.memmap:
    """A .npy of zeros that takes no room, mapped to be written."""
    return np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)


def test_very_many_classes_take_little_more_memory_than_their_file(tmp_path: Path):
    classes, records = MANY, 25
    folder = write_bank(tmp_path / "bank", 0)
    counts = {"query": 20, "holdout": 0, "calibration": 5}
    (folder / "bank.json").write_text(json.dumps(describe(classes=classes, records=records, counts=counts)))
    np.save(folder / "labels.npy", np.arange(records))
    np.save(folder / "membership.npy", np.arange(6)[:, None] > np.arange(records) % 5)
    zeros(folder / "outputs" / "00000.npy", "float32", (records, classes)).flush()
    bank = load_bank(folder)
    with at_most(3 * 4 * records * classes):
        assert bank.outputs(0).shape == (records, 1, classes)


def test_a_bank_of_holes_is_refused_by_whatever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """But not where the file system does not tell what it holds: then all of it seems to be holes."""
    monkeypatch.setattr("jaxaudit.data.bank.holes.SMALL", 1 << 20)
    folder = write_bank(tmp_path / "bank", 2)
    assert len(load_bank(folder)) == 6
    classes = 1 << 18
    (folder / "bank.json").write_text(json.dumps(describe(classes=classes)))
    zeros(folder / "outputs" / "00000.npy", "float32", (RECORDS, classes))
    with pytest.raises(InputError, match="holes in place of numbers"):
        load_bank(folder)
    monkeypatch.setattr("jaxaudit.data.bank.holes.BLOCK", 0)
    assert len(load_bank(folder)) == 6
