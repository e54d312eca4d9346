"""PDTP of the same records beside the attack that decides: counts and rank correlations, from numbers of any source."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.banks import QUERY, RECORDS, planned, train

from jaxaudit import attack
from jaxaudit.attacks.records import LiRA
from jaxaudit.audits.attack.result import BesidePDTP
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.errors import InputError

MODELS = 24


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    folder = planned(tmp_path / "bank", MODELS, 0, holdout=True)
    train(load_bank(folder), range(MODELS), 4.0)
    return load_bank(folder)


def beside(bank: Bank, pdtp: np.ndarray) -> BesidePDTP:
    found = attack(bank, attacks=[LiRA(fixed=True)], pdtp=pdtp).result.beside_pdtp
    assert found is not None
    return found


def test_records_are_compared_where_both_are_measured(bank: Bank):
    pdtp = np.full(RECORDS, np.nan)
    pdtp[:QUERY] = np.random.default_rng(3).gamma(1.0, size=QUERY)
    found = beside(bank, pdtp)
    assert list(found.pdtp) == pdtp[:QUERY].tolist()
    named = np.array(found.named)
    rank = stats.spearmanr(pdtp[:QUERY], named)
    assert (found.rank_correlation, found.p_value) == pytest.approx(tuple(rank))
    assert found.both == ((pdtp[:QUERY] > 1) & (named >= 0.5)).sum()
    assert found.attack_alone == ((pdtp[:QUERY] <= 1) & (named >= 0.5)).sum()
    assert found.both + found.pdtp_alone + found.attack_alone + found.neither == QUERY


def test_pdtp_may_be_infinite_or_the_same_everywhere(bank: Bank):
    pdtp = np.full(RECORDS, np.nan)
    pdtp[:10] = np.inf
    pdtp[10:20] = 0.0
    found = beside(bank, pdtp)
    assert len(found.pdtp) == len(found.named) == 20
    assert found.both + found.pdtp_alone == 10
    assert np.isnan(beside(bank, np.zeros(RECORDS)).rank_correlation)
    with pytest.raises(InputError, match=r"must have"):
        beside(bank, np.zeros(7))
