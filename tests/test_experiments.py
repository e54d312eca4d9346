"""Experiments: worlds of known truth and how their rates are counted; and the pages hold what the results say."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sequences import small_learner

from experiments import readme
from experiments.crosscheck.__main__ import check_of
from experiments.group_rates import QUERY, errors, rates
from experiments.score_rates import LAYOUT, by_way
from experiments.score_rates_worlds import WORLDS, draw_corpus, token_numbers
from experiments.used_share_methods import adjusted_count
from jaxaudit.errors import InputError

NOTES = WORLDS["notes"]
KNOWN = {("fisher_trace", "squared gradient norms of single examples, float32, 30 networks: relative")}
"""1.6e-5 where 1e-5 is promised; the page says so."""


def test_page_is_up_to_date():
    assert readme.README.read_text(encoding="utf-8") == readme.page(), "run python -m experiments.readme"


def test_pages_of_error_rates_are_up_to_date():
    pages = readme.rates_pages()
    assert len(pages) >= len(readme.RATES)
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m experiments.readme"


def test_crosscheck_holds():
    """That of PDTP is `test_binned_dtp_over_the_training_set_is_arts_pdtp`."""
    pytest.importorskip("art", reason="IBM's Adversarial Robustness Toolbox is not installed")
    checks = list(check_of("untargeted_attack")(full=False))
    assert checks
    assert [one.what for one in checks if not one.holds] == []


def test_committed_crosschecks_hold_but_for_those_that_are_known_not_to():
    cells = [line.split(" | ") for line in readme.crosschecks()[2:]]
    assert cells
    assert {(row[0].strip("| `"), row[3]) for row in cells if row[6] != "yes"} <= KNOWN


def test_errors_are_those_of_innocent_groups() -> None:
    found = np.full(QUERY, 0.9)
    found[:2], found[-1] = 1e-4, 0.004
    table = errors(found, 5)
    assert np.flatnonzero(table.accused).tolist() == [0, 1]
    assert np.flatnonzero(table.suspected).tolist() == [0, 1, QUERY - 1]
    counted = rates([table, errors(np.ones(QUERY), 5)])
    assert (counted["any accused"], counted["any suspected"], counted["last"]) == (0, 1, 1)
    assert counted["false share"] == pytest.approx((1 / 3 + 0) / 2)
    assert counted["found"] == pytest.approx(2 / 10)
    assert rates([errors(found, 0)])["found"] is None


def world(seed: int, models: int, records: int, decimals: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of members one higher than those of others, rounded so that some are tied, one of them unknown."""
    random = np.random.default_rng(seed)
    membership = random.random((models, records)) < 0.5
    membership[0, :2] = True, False
    shadows = (random.normal(size=membership.shape) + membership).round(decimals)
    shadows[:, -1] = np.nan
    target = (random.normal(size=records) + (random.random(records) < 0.3)).round(decimals)
    target[-1] = np.nan
    return target, shadows, membership


def twin(target: np.ndarray, shadows: np.ndarray, membership: np.ndarray) -> tuple[Fraction, float] | None:
    """Every score as a threshold in turn, the highest first; a mean over records of the paper's estimates."""
    pairs = [(s, m) for s, m in zip(shadows.ravel(), membership.ravel(), strict=True) if not np.isnan(s)]
    best, found = Fraction(0), None
    for threshold in sorted({score for score, _ in pairs}, reverse=True):
        rates = []
        for side in (True, False):
            calls = [score >= threshold for score, member in pairs if member == side]
            rates.append(Fraction(sum(calls), len(calls)))
        if rates[0] - rates[1] > best:
            best = rates[0] - rates[1]
            known = [score for score in target if not np.isnan(score)]
            each = [(int(score >= threshold) - rates[1]) / (rates[0] - rates[1]) for score in known]
            found = sum(each, Fraction(0)) / len(each), threshold
    return found


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 12), st.sampled_from([0, 1, 9]))
def test_it_is_the_mean_of_the_papers_estimates(seed: int, models: int, records: int, decimals: int):
    target, shadows, membership = world(seed, models, records, decimals)
    slow = twin(target, shadows, membership)
    if slow is None:
        with pytest.raises(InputError):
            adjusted_count(target, shadows, membership)
        return
    found = adjusted_count(target, shadows, membership)
    assert found.threshold == slow[1]
    # A quotient of two differences of rates of at most a few dozen records.
    assert found.share == pytest.approx(float(slow[0]), rel=1e-12, abs=1e-12)


def test_token_numbers_are_those_of_a_loop():
    corpus = draw_corpus(NOTES, None)
    learner, inputs = small_learner(corpus.inputs.shape[1], corpus.vocabulary), corpus.inputs[:3]

    @jax.jit
    def said(inputs: Any) -> Any:
        params = learner.finish(learner.init(jax.random.key(1)))
        tokens = jnp.where(inputs < 0, ~inputs, inputs)
        logits, _ = learner.net.apply(params.params, params.state, tokens, False)
        numbers, loss = token_numbers(learner, params, inputs), -learner.log_probs(params, inputs)[:, 0]
        return numbers, loss, jax.nn.log_softmax(logits)

    numbers, loss, log_p = (np.asarray(each, np.float64) for each in said(inputs))
    np.testing.assert_allclose(numbers[:, 0], loss, rtol=1e-5)
    for row, record in enumerate(inputs):
        places = [place for place in range(1, len(record)) if record[place] >= 0]
        raw = [log_p[row, place - 1, record[place]] for place in places][:-1]
        normal = []
        for place in places[:-1]:
            p = np.exp(log_p[row, place - 1])
            mean = (p * log_p[row, place - 1]).sum()
            deviation = np.sqrt((p * log_p[row, place - 1] ** 2).sum() - mean**2)
            normal.append((log_p[row, place - 1, record[place]] - mean) / deviation)
        most = max(1, len(raw) // 5)
        slow = [-np.mean(sorted(values)[:most]) for values in (raw, normal)]
        np.testing.assert_allclose(numbers[row, 1:], slow, rtol=1e-3, atol=1e-3)


def answer(way: str, used: float, verdict: str, **more: Any) -> dict[str, Any]:
    facts = {"world": "notes", "deal": 0, "model": int(used * 8), "groups": 8, "records": 10}
    return {**facts, "way": way, "used": used, "verdict": verdict, "upper": 1.0, "p_never": 0.01, **more}


def test_rates_count_what_they_say():
    answers = [
        answer("members", 0.0, "not forgotten"),
        answer("members", 0.0, "forgotten", upper=0.1),
        answer("members", 0.25, "forgotten", upper=0.2),
        answer("members", 0.5, "forgotten", upper=0.2),
        answer("members", 1.0, "not forgotten"),
        answer("members", 1.0, "inconclusive"),
    ]
    cells = by_way(answers)["members"]
    counts = {name: (rate["count"], rate["of"]) for name, rate in cells.items()}
    assert counts == {
        "false alarms": (1, 2),
        "wrong forgotten": (1, 3),
        "at stated": (1, 1),
        "covered": (2, 4),
        "given covered": (0, 2),
        "forgotten": (1, 2),
        "found": (1, 2),
        "half found": (0, 1),
        "quarter found": (0, 1),
    }
    by_cell = {"first": by_way(answers[1:]), "second": by_way(answers)}
    name, rate = LAYOUT.worst(by_cell, "members", "false alarms") or ("", {})
    assert (name, rate["share"]) == ("second", 0.5)
    assert LAYOUT.worst(by_cell, "holdout", "covered") is None
    name, rate = LAYOUT.worst(by_cell, "members", "at stated") or ("", {})
    assert (name, rate["count"], rate["of"]) == ("every one", 2, 2)
