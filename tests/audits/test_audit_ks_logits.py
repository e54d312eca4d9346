"""A target whose logits are known is compared in log-odds: nothing is rounded away near a probability of 1."""

import numpy as np
import pytest
from support.outputs_files import write_outputs
from support.references import ks_by_scipy
from support.simulated_shadows import shadow_models

from jaxaudit.audits.ks.evidence import of_file
from jaxaudit.audits.ks.models import Rows
from jaxaudit.data import Examples
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.metrics.scores import log_odds
from jaxaudit.shadow_models import OF_RHO, Pool, ShadowModels

N, CLASSES = 3000, 4
LABELS = np.arange(N) % CLASSES


def logits_of(seed: int, centre: float) -> np.ndarray:
    """Of a saturated model: most log-odds above 14 nats, where 6 decimals say 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (N, CLASSES))
    logits[np.arange(N), LABELS] += generator.normal(centre, 5, N)
    return logits


def trained(query: np.ndarray, calibration: np.ndarray, control: np.ndarray) -> ShadowModels:
    """Models of rho with these log-odds on the query set, and the same on the holdout."""
    records = Examples(np.zeros((2 * N, 1)), np.zeros(2 * N, int), ("a", "b"), "records")
    pool = Pool(records, slice(0, N), slice(N, 2 * N), slice(2 * N, 2 * N))
    counts = zip(OF_RHO, (query, calibration, control), strict=True)
    rows: Rows = {kind: np.zeros((len(odds), 2 * N), bool) for kind, odds in counts}
    odds = np.concatenate([query, calibration, control])
    return shadow_models(pool, rows, np.concatenate([odds, odds], axis=1).astype(np.float32))


MODELS = trained(
    *(
        log_odds(np.stack([logits_of(seed, centre) for seed in seeds]), LABELS)
        for seeds, centre in (((1, 2), 18), ((3, 4), 16), ((5,), 17))
    )
)


def file_of(tmp_path, values: np.ndarray) -> Outputs:
    return load_outputs(write_outputs(tmp_path, values), CLASSES, N)


def tied(sample: np.ndarray) -> float:
    return float(np.unique(sample, return_counts=True)[1].max() / sample.size)


def test_float32_logits_are_compared_as_finely_as_they_were_stored(tmp_path):
    exact = logits_of(9, 17)
    shifted = (exact + np.random.default_rng(0).normal(0, 3, (N, 1))).astype(np.float32)
    _, _, compared = of_file((file_of(tmp_path, shifted),), (LABELS,), MODELS)
    assert tied(compared.target) < 0.01
    of_target = log_odds(exact, LABELS)
    for sample, model in zip(compared.query, MODELS.log_odds[:2], strict=True):
        distance = ks_by_scipy(model[:N].astype(np.float64), of_target)
        assert ks_by_scipy(sample, compared.target[0]) == pytest.approx(distance, abs=2 / N)
    assert compared.controls.shape == (1, N)
    # What is shown are probabilities all the same, and of these most are 1.
    assert tied(np.round(compared.confidences.astype(np.float64), 6)) > 0.5
    assert compared.confidences.max() <= 1


STORES = {
    "float16": (1, lambda logits: logits.astype(np.float16)),
    "1 decimal": (1, lambda logits: np.round(logits, 1)),
    "2 digits": (8, lambda logits: np.array([[float(f"{value:.2g}") for value in row] for row in logits])),
    "integers": (40, lambda logits: np.rint(logits).astype(np.int16)),
}


@pytest.mark.parametrize("stored", STORES)
def test_coarse_logits_do_not_part_a_model_from_itself(tmp_path, stored):
    """Two classes, logits in a narrow range far from 0, where a coarse grid leaves few values."""
    width, store = STORES[stored]
    margins = width * np.random.default_rng(3).normal(3, 0.4, N)
    values = np.stack([np.full(N, 30.0), 30.0 + margins], axis=1)
    file = load_outputs(write_outputs(tmp_path, store(values)), 2, N)
    labels, odds = np.ones(N, int), margins.astype(np.float32)[None]
    _, _, compared = of_file((file,), (labels,), trained(odds, odds, odds))
    assert file.kind == "logits"
    assert ks_by_scipy(compared.query[0], compared.target[0]) < 0.01
    assert ks_by_scipy(odds[0], log_odds(file.logits.astype(np.float64), labels)) > 0.01


def test_logits_of_both_sets_go_into_the_tests_of_use_as_they_are(tmp_path):
    logits = logits_of(7, 17).astype(np.float32)
    (tmp_path / "held").mkdir()
    files = [file_of(tmp_path, logits), file_of(tmp_path / "held", logits[::-1])]
    shadows, labels = MODELS.log_odds[:2], (LABELS, LABELS[::-1])
    target, brought, _ = of_file((files[0], files[1]), labels, MODELS)
    odds = log_odds(logits.astype(np.float64), LABELS)
    np.testing.assert_allclose(target, np.concatenate([odds, odds[::-1]]), atol=5e-6)
    np.testing.assert_allclose(brought(shadows), shadows, atol=5e-6)
    # One file of probabilities is enough to bring all to what probabilities tell.
    probabilities = Outputs(files[1].probabilities, "probabilities", None, "float32", "held.npy")
    target, brought, _ = of_file((files[0], probabilities), labels, MODELS)
    assert np.abs(brought(shadows)).max() < 15
    assert np.abs(target).max() < 15
    assert tied(target) > 0.5
