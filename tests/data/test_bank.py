"""Banks from anybody's script: read as they are, checked against themselves, hostile ones refused without memory."""

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.banks import (
    CLASSES,
    HOLDOUT,
    MODELS,
    QUERY,
    RECORDS,
    describe,
    labels,
    logits,
    rows,
    save,
    softmax,
    write_bank,
)
from support.cli_runs import jaxaudit
from support.memory import at_most, resident_at_most

from jaxaudit.cli.read_sets import label_outputs, outputs_for
from jaxaudit.data import Examples, load_bank
from jaxaudit.data.bank.other_tools import _shape, read_labels
from jaxaudit.errors import InputError


def test_a_bank_of_plain_arrays_is_read(tmp_path: Path):
    bank = load_bank(write_bank(tmp_path / "bank"))
    assert len(bank) == MODELS
    parts = (slice(0, QUERY), slice(QUERY, QUERY + HOLDOUT), slice(QUERY + HOLDOUT, RECORDS))
    assert (bank.query, bank.holdout, bank.calibration) == parts
    assert bank.finished().tolist() == [0, 1, 2]
    assert bank.missing().tolist() == [3, 4, 5]
    np.testing.assert_array_equal(bank.labels, labels())
    np.testing.assert_array_equal(bank.membership, rows())
    np.testing.assert_array_equal(bank.outputs(1)[:, 0], logits(1, rows()[1]))
    for dtype in ("<f2", ">f4"):
        save(bank.directory, 0, np.asfortranarray(logits(0, rows()[0]).astype(dtype)))
        np.testing.assert_array_equal(bank.outputs(0)[:, 0], logits(0, rows()[0]).astype(dtype))
    assert (bank.seeds, bank.groups, bank.dropped.any()) == (None, None, False)


DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "another format": {"format": 2},
    "one class": {"classes": 1},
    "fewer models": {"models": MODELS - 1},
    "too many records": {"records": 10**10},
    "too many rows": {"records": 10**9, "models": 10**6, "counts": None},
    "counts of others": {"counts": {"query": 1}},
    "a negative count": {"counts": {"query": RECORDS + 1, "holdout": -1}},
    "names for others": {"class_names": ["a", "b"]},
    "a strange key": {"path": "../elsewhere"},
    "groups that are missing": {"groups": True},
}
ARRAYS = {
    "labels too few": ("labels", labels()[1:]),
    "labels too large": ("labels", labels() + 1),
    "labels of floats": ("labels", labels().astype(float)),
    "booleans of 2": ("membership", np.where(rows(), 2, 0).astype(np.uint8).view(bool)),
    "all": ("membership", np.ones_like(rows())),
    "none": ("membership", np.zeros_like(rows())),
    "seeds too large": ("seeds", np.arange(MODELS) + 2**32),
    "groups unsaid": ("groups", np.arange(QUERY + HOLDOUT)),
    "dropped members": ("dropped", rows()[0]),
    "one group of all": ("groups", np.zeros(QUERY + HOLDOUT, int)),
}
# Readers differ in which of two fields of one name they take.
TWICE = json.dumps(describe()).replace('"outputs":', '"outputs": "logits", "outputs":')
ONE_GROUP = ARRAYS["one group of all"]
TEXTS = ("", "[]", "{", "[" * 100_000, '{"format": NaN}', '"\\ud800"', " " * ((16 << 20) + 1), TWICE)
WRONG = {**DESCRIPTIONS, **ARRAYS, **{text[:20]: text for text in TEXTS}}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_description_or_an_array_that_does_not_agree_is_refused(tmp_path: Path, wrong: Any):
    folder = write_bank(tmp_path / "bank", **wrong if isinstance(wrong, dict) else {"groups": wrong is ONE_GROUP})
    if isinstance(wrong, tuple):
        np.save(folder / f"{wrong[0]}.npy", wrong[1])
    elif isinstance(wrong, str):
        (folder / "bank.json").write_text(wrong)
    with pytest.raises(InputError, match="twice" if wrong is TWICE else "groups" if wrong is ONE_GROUP else "."):
        load_bank(folder)


def test_a_row_of_all_or_none_of_the_records_may_stand_among_others(tmp_path: Path):
    """Models without and with all of a query set, whose other data are elsewhere: that is all there need be."""
    folder = write_bank(tmp_path / "bank", counts=None)
    some = np.zeros((MODELS, RECORDS), bool)
    some[1] = True
    np.save(folder / "membership.npy", some)
    assert load_bank(folder).membership.sum() == RECORDS
    assert msgspec.structs.astuple(load_bank(folder).description.sizes) == (RECORDS, 0, 0)
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"not a bank.*shadows plan"):
            load_bank(place)


BAD = {
    "NaN": lambda good: np.where(np.arange(RECORDS)[:, None] == 4, np.nan, good),
    "one class": lambda good: good[:, :1],
    "views": lambda good: good[:, None],
    "long doubles": lambda good: good.astype(np.longdouble),
    "probabilities": softmax,
    "rounded probabilities": lambda good: np.round(softmax(good), 2),
    "labels": lambda good: np.eye(CLASSES)[good.argmax(axis=1)],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_outputs_that_are_none_of_this_bank_are_refused_when_read(tmp_path: Path, bad: Any):
    folder = write_bank(tmp_path / "bank")
    save(folder, 1, bad(logits(1, rows()[1])))
    bank = load_bank(folder)
    bank.outputs(0)
    with pytest.raises(InputError):
        bank.outputs(1)


@pytest.mark.parametrize("decimals", [None, 2, 4])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_probabilities_sum_to_one_as_precisely_as_they_are_stored(tmp_path: Path, dtype: Any, decimals: int | None):
    folder = write_bank(tmp_path / "bank", outputs="probabilities")
    good = softmax(logits(0, rows()[0]))
    good = (good if decimals is None else np.round(good, decimals)).astype(dtype)
    save(folder, 0, good)
    np.testing.assert_array_equal(load_bank(folder).outputs(0)[:, 0], good)
    for wrong in (1.1 * good, good - 0.1, logits(0, rows()[0]).astype(dtype)):
        save(folder, 0, wrong.astype(dtype))
        with pytest.raises(InputError, match="bank of probabilities"):
            load_bank(folder).outputs(0)


def test_log_odds_may_be_infinite_and_never_nan(tmp_path: Path):
    folder = write_bank(tmp_path / "bank", outputs="log_odds")
    odds = np.linspace(-3, 3, RECORDS)
    odds[0], odds[-1] = -np.inf, np.inf
    save(folder, 0, odds)
    np.testing.assert_array_equal(load_bank(folder).outputs(0)[:, 0, 0], odds)
    odds[5] = np.nan
    save(folder, 0, odds)
    with pytest.raises(InputError, match="NaN"):
        load_bank(folder).outputs(0)


@pytest.mark.parametrize("name", ["bank.json", "labels.npy", "membership.npy", "outputs/00000.npy", "outputs"])
@pytest.mark.parametrize("what", ["link", "pipe", "folder", "nothing"])
def test_only_regular_files_are_opened(tmp_path: Path, name: str, what: str):
    """A pipe would be waited for; a link leads elsewhere."""
    folder = write_bank(tmp_path / "bank")
    path, kept = folder / name, tmp_path / "kept"
    path.rename(kept)
    if what == "link":
        path.symlink_to(kept)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    if (name.startswith("outputs") and what == "nothing") or (name, what) == ("outputs", "folder"):
        assert 0 not in load_bank(folder).finished()
        return
    with pytest.raises(InputError):
        load_bank(folder).finished()


def test_only_names_of_models_are_looked_at(tmp_path: Path):
    folder = write_bank(tmp_path / "bank", finished=0)
    for name in (".writing-1", "00001.writing", "1.npy", "000002.npy", "00006.npy", "٠٠٠٠٣.npy", "00004.npy.tmp"):
        (folder / "outputs" / name).write_text("")
    save(folder, 5, logits(5, rows()[5]))
    assert load_bank(folder).finished().tolist() == [5]


def test_claims_are_bounded_before_anything_is_allocated(tmp_path: Path):
    """Sparse files take no room on the disk, and their arrays would."""
    folder = write_bank(tmp_path / "bank")
    records = 10**9
    (folder / "bank.json").write_text(json.dumps(describe(records=records, models=1, counts=None)))
    for name, kind, shape in (("labels", np.int64, (records,)), ("membership", bool, (1, records))):
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, shape)
    with at_most(10**8), pytest.raises(InputError, match="memory"):
        load_bank(folder)


THIRD, SHADOWS = 100, 20


def claiming(folder: Path) -> None:
    """A bank of log-odds, some 0.1 MB, and a target of the same form; one record has the largest label there can be."""
    random = np.random.default_rng(3)
    counts = {"query": THIRD, "holdout": THIRD, "calibration": THIRD}
    said = describe(outputs="log_odds", classes=10**6, records=3 * THIRD, models=SHADOWS, counts=counts)
    (folder / "bank").mkdir()
    (folder / "bank" / "bank.json").write_text(json.dumps(said))
    labels = np.arange(3 * THIRD) % 3
    labels[-1] = 10**6 - 1
    np.save(folder / "bank" / "labels.npy", labels)
    membership = np.zeros((SHADOWS, 3 * THIRD), bool)
    for row in membership:
        row[random.permutation(2 * THIRD)[:THIRD]] = True
    np.save(folder / "bank" / "membership.npy", membership)
    level = random.normal(2, 1, 3 * THIRD)
    odds = level + 2 * membership + random.normal(size=membership.shape)
    np.save(folder / "bank" / "outputs.npy", odds.astype(np.float32))
    target = (level + random.normal(size=3 * THIRD)).astype(np.float32)
    (folder / "target").mkdir()
    parts = {"target/query": slice(0, THIRD), "target/holdout": slice(THIRD, 2 * THIRD), "all": slice(None)}
    for name, part in parts.items():
        np.save(folder / f"{name}.npy", target[part])


@pytest.mark.outer
def test_a_million_classes_of_log_odds_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Outputs of all classes would have 1.2 GB."""
    monkeypatch.chdir(tmp_path)
    claiming(tmp_path)
    with resident_at_most(1 << 29):
        for command in (
            "shadows show bank",
            "ks --shadows bank --target target",
            "attack --shadows bank --target all.npy",
        ):
            done = jaxaudit(*command.split(), "--json")
            assert done.code == 0 or (done.code == 2 and done.err.count("Error:") == 1), done.err


def test_classes_that_the_outputs_of_another_tool_claim_are_not_named(tmp_path: Path):
    path = tmp_path / "labels.npy"
    np.save(path, np.zeros(4, int))
    with pytest.raises(InputError, match=r"of which there are 2 to 1,000,000, as many as outputs .100000000000"):
        read_labels(path, 4, 10**11)


def test_outputs_of_the_lira_code_have_views_whether_or_not_an_axis_says_so():
    for shape, views in (((9, 4), 1), ((9, 2, 4), 2), ((9, 1, 2, 4), 2)):
        assert _shape(shape, Path("f.npy")) == (9, views, 4)
    for shape in ((9, 2, 2, 4), (9, 1, 1, 2, 4)):
        words = re.escape(f"f.npy: has shape {shape}; logits must be [records, 1, views,")
        with pytest.raises(InputError, match=words):
            _shape(shape, Path("f.npy"))


def test_outputs_that_one_label_claims_are_not_made():
    name = "texts: labels are 100,000 or more"
    with pytest.raises(InputError, match=name):
        outputs_for(10**12, "texts")
    named = Examples(np.zeros((2, 1)), np.array([0, 1]), ("0", "999999999999"), "texts")
    with pytest.raises(InputError, match=name):
        label_outputs(named, None)
    # A number that no machine counts to is a name.
    long = Examples(np.zeros((2, 1)), np.array([0, 1]), ("0", "9" * 5000), "texts")
    assert label_outputs(long, None) is long


def test_a_bank_of_holes_is_refused_by_whatever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """But not where the file system does not tell what it holds: then all of it seems to be holes."""
    monkeypatch.setattr("jaxaudit.data.bank.bank.SMALL", 1 << 20)
    folder = write_bank(tmp_path / "bank", 2)
    assert len(load_bank(folder)) == 6
    classes = 1 << 18
    (folder / "bank.json").write_text(json.dumps(describe(classes=classes)))
    np.lib.format.open_memmap(folder / "outputs" / "00000.npy", "w+", "float32", (RECORDS, classes))
    with pytest.raises(InputError, match="holes in place of numbers"):
        load_bank(folder)
    monkeypatch.setattr("jaxaudit.data.bank.bank.STORAGE_UNIT", 0)
    assert len(load_bank(folder)) == 6
