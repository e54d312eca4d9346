"""Error rates of a bank that dealt whole groups: copies of a record, or patients, are dealt anew together."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats
from support.banks import DEALT, QUERY, planned, train

from jaxaudit.audits.ks.bank import leave_one_out as module
from jaxaudit.audits.ks.bank.evidence import bank_evidence
from jaxaudit.audits.ks.bank.leave_one_out import leave_one_out
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.tests import HoldoutTest
from jaxaudit.data.bank.bank import load_bank

MODELS, MEMORY = 21, 6.0
KEY = jax.random.key(8)
COPIES = 3


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Models that remember their records well; every group is three records."""
    bank = load_bank(planned(tmp_path_factory.mktemp("grouped") / "bank", MODELS, 0, holdout=True, groups=True))
    train(bank, range(MODELS), MEMORY)
    return bank_evidence(bank, range(MODELS))


@pytest.mark.outer
def test_rates_are_measured_where_whole_groups_were_dealt(evidence: Evidence):
    """Used models are found; of unused ones at most 5% are called so, but for once in 1,000 keys."""
    found = {each.used: each for each in leave_one_out(KEY, evidence, [HoldoutTest(query_and_holdout=MODELS)])}
    assert {used: each.targets for used, each in found.items()} == {0.0: MODELS, 0.5: MODELS, 1.0: MODELS}
    assert {each.records for each in found.values()} == {QUERY // 2}
    assert found[0.0].not_forgotten <= stats.binom.ppf(0.999, MODELS, 0.05)
    assert found[1.0].not_forgotten > 0.9 * MODELS


@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_a_group_is_on_one_side_with_all_of_its_records(evidence: Evidence, used: float):
    """And the other models are judged by the rows that they were dealt."""
    whole = evidence.pool.groups
    assert whole is not None
    # Sets of other sizes, and groups that are not neighbours.
    order = np.random.default_rng(1).permutation(QUERY)
    mixed = replace(evidence, pool=evidence.pool._replace(groups=np.concatenate([whole[:QUERY][order], whole[QUERY:]])))
    sizes = np.unique(whole, return_counts=True)[1]
    assert set(sizes) == {COPIES}
    for each in (evidence, mixed):
        rows = each.members("mixed")[:, each.dealt]
        if each is mixed:
            units = mixed.pool.groups
            assert units is not None
            # Rows of whole groups of the other order.
            rows = np.array([np.isin(units, np.unique(whole[row])) for row in rows])
            asked = mixed.pool.asked[:DEALT]
            wide = np.concatenate(mixed.roles["mixed"])
            wide[:, asked] = rows
            each = replace(mixed, roles={"mixed": [row[None] for row in wide]})
        case = module._dealt_anew(KEY, each, 4, used)
        small = case.evidence.pool
        assert small.groups is not None
        query, holdout = small.groups[small.query], small.groups[small.query.stop :]
        assert not np.intersect1d(query, holdout).size
        assert set(np.unique(small.groups, return_counts=True)[1]) == {COPIES}
        for row in case.evidence.members("mixed"):
            assert not np.intersect1d(small.groups[row], small.groups[~row]).size
        # Of what the target was trained on, this fraction is in its query set, and nothing in its holdout.
        log_odds = case.said.log_odds
        own = each.trained["mixed"].log_odds[4][np.flatnonzero(each.members("mixed")[4, each.dealt])]
        inside = np.isin(log_odds, own)
        assert inside[small.query].mean() == pytest.approx(used, abs=0.5 / len(np.unique(query)))
        assert not inside[small.query.stop :].any()


def test_a_bank_of_single_records_has_the_rates_of_records(tmp_path: Path, evidence: Evidence):
    """A group a record is no group at all."""
    bank = load_bank(planned(tmp_path / "bank", 21, 0, holdout=True))
    train(bank, range(21), MEMORY)
    plain = bank_evidence(bank, range(21))
    alone = replace(plain, pool=plain.pool._replace(groups=np.arange(DEALT)))
    for used in (0.0, 1.0):
        one, other = (module._dealt_anew(KEY, each, 2, used) for each in (plain, alone))
        np.testing.assert_array_equal(one.said.log_odds, other.said.log_odds)
        np.testing.assert_array_equal(one.evidence.members("mixed"), other.evidence.members("mixed"))
