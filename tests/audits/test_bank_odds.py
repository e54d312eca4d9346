"""What models of a bank say: log-odds and accuracy, kinds, memory, allowed tests; banks that are not of one piece."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.banks import (
    CLASSES,
    DEALT,
    QUERY,
    RECORDS,
    bank_of,
    describe,
    labels,
    logits,
    planned,
    rows,
    save,
    softmax,
    write_bank,
)
from support.memory import peak
from support.simulated_shadows import evidence_of

from jaxaudit import Bank, HoldoutTest, load_bank
from jaxaudit.audits import (
    Available,
    ModelOutputs,
    available_tests,
    first_models,
    kinds_of,
    leave_one_out,
    match_row,
    model_outputs,
    open_bank,
    pool_of,
    target_outputs,
)
from jaxaudit.errors import InputError
from jaxaudit.metrics import log_odds
from jaxaudit.shadow_models import Kind


def outputs_of(bank: Bank, model: int) -> ModelOutputs:
    return model_outputs(bank, bank.outputs(model), model)


def test_logits_probabilities_and_log_odds_say_the_same(tmp_path: Path):
    plain = load_bank(write_bank(tmp_path / "logits"))
    found = open_bank(plain, by_view=True).log_odds
    for kind in ("probabilities", "log_odds"):
        folder = write_bank(tmp_path / kind, outputs=kind)
        for model in range(3):
            each = softmax(logits(model, rows()[model])) if kind == "probabilities" else found[model].astype(np.float64)
            save(folder, model, each)
        np.testing.assert_allclose(open_bank(folder, by_view=True).log_odds, found, rtol=1e-5, atol=1e-6)


def test_a_probability_of_one_is_infinite_and_cut_before_views_are_averaged(tmp_path: Path):
    sure = np.full((RECORDS, CLASSES), [1.0, 0.0, 0.0])
    sure[1] = 1 / 3
    folder = write_bank(tmp_path / "one", outputs="probabilities")
    save(folder, 0, sure)
    odds = outputs_of(load_bank(folder), 0).log_odds
    assert (odds[0], odds[2]) == (np.inf, -np.inf)
    viewed = write_bank(tmp_path / "two", outputs="probabilities", queries=2)
    save(viewed, 0, np.stack([sure, np.full_like(sure, 1 / 3)], axis=1))
    odds = outputs_of(load_bank(viewed), 0).log_odds
    np.testing.assert_allclose(odds[[0, 2]], [(20 - np.log(2)) / 2, (-20 - np.log(2)) / 2], rtol=1e-5)
    beyond = write_bank(tmp_path / "logits")
    save(beyond, 0, np.where(np.arange(CLASSES) == labels()[:, None], 1e300, -1e300))
    assert (outputs_of(load_bank(beyond), 0).log_odds == np.inf).all()


def test_dropped_records_say_nothing(tmp_path: Path):
    folder = write_bank(tmp_path / "bank")
    dropped = ~rows().any(axis=0) | (np.arange(RECORDS) == 4)
    members = rows()
    members[:, 4] = False
    np.save(folder / "dropped.npy", dropped)
    np.save(folder / "membership.npy", members)
    np.save(folder / "labels.npy", np.where(dropped, -1, labels()))
    bank = load_bank(folder)
    odds = outputs_of(bank, 0).log_odds
    assert np.isnan(odds[dropped]).all()
    assert np.isfinite(odds[~dropped]).all()
    shadows = open_bank(bank, by_view=True)
    np.testing.assert_array_equal(shadows.log_odds[0], odds[~dropped])
    assert np.isfinite(shadows.own_accuracy).all()


def test_of_a_large_bank_one_file_of_outputs_is_in_memory(tmp_path: Path):
    """256 models of 50,000 records: a membership of 13 MB, and 60 files of outputs of 36 MB together."""
    models, records = 256, 50_000
    folder = tmp_path / "bank"
    (folder / "outputs").mkdir(parents=True)
    (folder / "bank.json").write_text(json.dumps(describe(models=models, records=records, counts=None)))
    np.save(folder / "labels.npy", np.arange(records) % CLASSES)
    with (folder / "membership.npy").open("wb") as file:
        header = {"descr": "|b1", "fortran_order": False, "shape": (models, records)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes([1]) * (records // 2))
        file.truncate(file.tell() + models * records - records // 2)
    save(folder, 0, np.random.default_rng(1).normal(size=(records, CLASSES)).astype(np.float32))
    for model in range(1, 60):
        os.link(folder / "outputs" / "00000.npy", folder / "outputs" / f"{model:05}.npy")

    def read() -> None:
        bank = load_bank(folder)
        assert len(kinds_of(bank)) == models
        for model in bank.finished().tolist():
            outputs_of(bank, model)

    # The rows as booleans, and a few arrays of 50,000 numbers; of two peaks the smaller, as other threads count, too.
    assert min(peak(read), peak(read)) < models * records + 15_000_000


def allowed(bank: Bank, finished: Iterable[int]) -> tuple[Available, ...]:
    kinds = kinds_of(bank)
    return available_tests(pool_of(bank)[0], [kinds[model] for model in finished], kinds)


@pytest.mark.parametrize("groups", [False, True])
def test_a_holdout_test_needs_19_models_and_takes_40(tmp_path: Path, groups: bool):
    bank = load_bank(planned(tmp_path / "bank", 41, 0, holdout=True, groups=groups))
    assert set(kinds_of(bank)) == {"mixed"}
    found = {count: allowed(bank, range(count))[0] for count in (18, 19, 39, 40)}
    assert [each.possible for each in found.values()] == [False, True, True, True]
    assert not any(each.possible for each in allowed(bank, range(41))[1:])


def test_the_shadow_test_needs_19_models_of_two_kinds(tmp_path: Path):
    bank = load_bank(planned(tmp_path / "bank", 77, 0, holdout=False))
    kinds = kinds_of(bank)
    assert [kinds.count(kind) for kind in (Kind.NEVER, Kind.FULLY, Kind.HALF)] == [39, 19, 19]
    for count, possible in ((73, False), (74, True), (77, True)):
        holdout, shadow = allowed(bank, range(count))
        assert (holdout.possible, shadow.possible) == (False, possible)


@pytest.mark.parametrize(("kind", "views"), [("logits", 3), ("probabilities", 1), ("log_odds", 1), ("log_odds", 3)])
def test_a_target_of_the_banks_own_form_has_the_log_odds_of_a_model(tmp_path: Path, kind: str, views: int):
    """Its rows of logits stand for the same log-odds, cut at 20 nats, and for the same class where log-odds decide."""
    bank = load_bank(write_bank(tmp_path / "bank", 0, outputs=kind, queries=views))
    values = np.stack([logits(view, rows()[0]) for view in range(views)], axis=1)
    values[4] *= 30
    if kind == "probabilities":
        values = softmax(values)
    if kind == "log_odds":
        values = values[:, :, :1]
    file = tmp_path / "file.npy"
    np.save(file, values.reshape((RECORDS, *bank.description.shape[1:]))[bank.query])
    target = target_outputs(file, bank, bank.query)
    wanted = model_outputs(bank, values.astype(np.float32))
    own = target.columns(bank.labels[bank.query])
    found = log_odds(target.logits, own)
    np.testing.assert_allclose(found, np.clip(wanted.log_odds, -20, 20)[bank.query], atol=1e-5)
    assert target.probabilities.shape == (QUERY, 2 if kind == "log_odds" else CLASSES)
    if kind == "log_odds" and views == 1:
        hits = target.probabilities.argmax(axis=1) == own
        np.testing.assert_array_equal(hits, wanted.correct[bank.query])


def test_rows_that_no_test_knows_are_of_no_use(tmp_path: Path):
    """3 standard deviations of 60 coins are 11.6 records; what has exactly one of the two sets was not dealt."""
    folder, found = write_bank(tmp_path / "bank", 0, models=11), rows(11)
    dealt, places = found[:, :DEALT], np.arange(DEALT)
    for row, members in zip(dealt, (24, 41, 42, 19, 18), strict=False):
        row[:] = np.random.default_rng(members).permutation(DEALT) < members
    query = places < QUERY
    dealt[5:] = ~query, ~(places >= 0), query, places >= 0, query & (places % 2 == 0), query & (places > 1)
    np.save(folder / "membership.npy", found)
    assert kinds_of(load_bank(folder)) == [
        *("mixed", "mixed", "other", "mixed", "other"),
        *("other", "never", "fully", "other", "half", "half"),
    ]


@pytest.mark.parametrize(("holdout", "groups"), [(True, False), (True, True), (False, False)])
def test_outputs_of_another_model_are_found_whatever_was_dealt(tmp_path: Path, holdout: bool, groups: bool):
    """By groups there are 20 things dealt and 30 records, so the outputs must be plain."""
    folder = planned(tmp_path / "bank", 20, 0, holdout=holdout, groups=groups)
    members = np.load(folder / "membership.npy")
    for model in range(4):
        save(folder, model, logits(model, members[model], memory=9.0))
    bank = load_bank(folder)
    known = first_models(bank)

    save(folder, 7, logits(7, members[7], memory=9.0))
    odds = outputs_of(bank, 7).log_odds
    right: Any = match_row(bank, 7, odds, known)
    assert (right.other, right.shown) == (None, True)
    found: Any = match_row(bank, 9, odds, known)
    assert (found.other, found.shown, found.fit > 5 > found.own_fit) == (7, False, True)
    # Nothing is known of rows that somebody else dealt.
    stranger = load_bank(write_bank(tmp_path / "stranger"))
    assert match_row(stranger, 4, outputs_of(stranger, 1).log_odds, {}) is None


def many(folder: Path, changed: dict[int, np.ndarray] | None = None) -> Bank:
    """A bank of 8 models of 200 records, of which these have other outputs."""
    held = np.random.default_rng(5).random((8, 200)) < 0.5
    own = np.arange(200) % CLASSES
    values = [logits(model, row, of=own) for model, row in enumerate(held)]
    values = [(changed or {}).get(model, each) for model, each in enumerate(values)]
    return bank_of(folder, values, held, "logits")


def test_a_bank_with_one_model_twice_or_one_unlike_all_others_is_refused(tmp_path: Path):
    """A copy makes its records look remembered; one model on another scale hides what all others show."""
    sound = many(tmp_path / "sound")
    assert len(open_bank(sound, by_view=True)) == 8
    first = np.asarray(sound.outputs(2)).reshape(200, CLASSES)
    near = first + 0.003 * np.random.default_rng(1).normal(size=first.shape)
    for name, changed, words in (
        ("same", {6: first}, "models 2 and 6"),
        ("near", {6: near}, "models 2 and 6"),
        ("wild", {2: 1000 * first}, "model 2 is unlike"),
        ("dead", {2: np.ones_like(first)}, "model 2 is unlike"),
    ):
        changed_bank = many(tmp_path / name, changed)
        with pytest.raises(InputError, match=words):
            open_bank(changed_bank, by_view=True)
        rest = [model for model in range(8) if model not in changed]
        assert len(open_bank(changed_bank, rest, by_view=True)) == 7
    # More epochs, and labels that were permuted: unlike others, but not by far.
    for name, other in (("longer", 4 * first), ("permuted", first[:, [1, 2, 0]])):
        assert len(open_bank(many(tmp_path / name, {2: other}), by_view=True)) == 8


def made(folder: Path, membership: np.ndarray, query: int, kind: str, *, coarse: range = range(0)) -> Bank:
    """Models that remember their records, those in `coarse` printed with two decimals; all columns are dealt."""
    random = np.random.default_rng(4)
    records = membership.shape[1]
    level, values = random.normal(1, 1, records), []
    for model, row in enumerate(membership):
        outputs = random.normal(size=(records, CLASSES))
        outputs[np.arange(records), np.arange(records) % CLASSES] += level + 4 * row
        outputs = softmax(outputs) if kind == "probabilities" else outputs
        values.append(np.round(outputs, 2) if model in coarse else outputs)
    counts = {"query": query, "holdout": records - query, "calibration": 0}
    return bank_of(folder, values, membership, kind, counts=counts)


def dealt(models: int, query: int, records: int) -> np.ndarray:
    random = np.random.default_rng(9)
    return np.argsort(np.argsort(random.random((models, records)), axis=1), axis=1) < query


@pytest.mark.parametrize("coarse", [range(0), range(1, 6), range(6)])
def test_outputs_are_compared_at_the_coarsest_resolution_of_any_file(tmp_path: Path, coarse: range):
    bank = made(tmp_path / "bank", dealt(6, 40, 80), 40, "probabilities", coarse=coarse)
    stored = open_bank(bank, range(6)).resolutions
    fine, printed = ([None], ["model 0"]) if len(coarse) < 6 else ([], [])
    assert [each.decimals for each in stored] == [*fine, *([2] if coarse else [])]
    # The first model of a resolution stands for it, whichever file was read first.
    assert [each.name for each in stored] == [*printed, *([f"model {coarse[0]}"] if coarse else [])]


@pytest.mark.parametrize("records", [pytest.param(60, marks=pytest.mark.outer), 30])
def test_rates_are_measured_where_the_holdout_has_another_size(tmp_path: Path, records: int):
    """The query set has 20 records, and the holdout 40 or 10; models remember them well."""
    evidence = evidence_of(made(tmp_path / "bank", dealt(20, 20, records), 20, "logits"), range(20))
    told: list[tuple[int, int]] = []
    evidence = replace(evidence, progress=lambda *done: told.append(done))
    rates = leave_one_out(jax.random.key(2), evidence, [HoldoutTest()])
    assert told == [(done, 60) for done in range(1, 61)]
    assert [(rate.used, rate.targets) for rate in rates] == [(0.0, 20), (0.5, 20), (1.0, 20)]
    assert {rate.records for rate in rates} == {int(20 / records * (records - 20))}


def test_a_damaged_file_is_named_with_its_model(tmp_path: Path):
    bank = made(tmp_path / "bank", dealt(6, 40, 80), 40, "logits")
    path = tmp_path / "bank" / "outputs" / "00004.npy"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match=r"bank, model 4 of 6: .*00004\.npy"):
        open_bank(bank, range(6))
