"""Models are compared with a file at its resolution: with few decimals, and with logits as finely as stored."""

import numpy as np
import pytest
from scipy import special
from support.outputs_files import write_outputs
from support.references import ks_by_scipy
from support.simulated_shadows import shadow_models

from jaxaudit import Rows, TargetOutputs, load_outputs
from jaxaudit.audits import of_file, samples_of_rho
from jaxaudit.data import Examples, Outputs
from jaxaudit.metrics import log_odds
from jaxaudit.shadow_models import OF_RHO, Pool, ShadowModels


def test_shadow_models_are_compared_at_the_files_resolution():
    """A probability of 1 with two decimals counts as 0.995, of every model."""
    odds = np.array([[0.0, 12.0, -12.0], [3.0, 5.0, -0.5]], np.float32)
    three = Examples(np.zeros((3, 1)), np.zeros(3, int), ("a", "b"), "three")
    pool = Pool(three, slice(0, 2), slice(2, 3), slice(3, 3))
    rows: Rows = {kind: np.zeros((1, 3), bool) for kind in OF_RHO}
    models = shadow_models(pool, rows, np.repeat(odds[:1], 3, axis=0))
    printed = Outputs(np.array([[0.5, 0.5], [0.0, 1.0]], np.float32), "probabilities", 2, "float64", "q")
    held = Outputs(np.array([[0.125, 0.875]], np.float32), "probabilities", 3, "float64", "h")
    target, brought, _ = of_file((printed, held), (np.array([0, 1]), np.array([0])), models)
    highest = np.log(0.995 / 0.005)
    # 0.125 of the holdout's file is 0.12 to two decimals, the coarser of the two.
    np.testing.assert_allclose(target, [0.0, highest, np.log(0.12 / 0.88)], rtol=1e-5)
    coarse = brought(odds)
    np.testing.assert_allclose(coarse[0], [0.0, highest, -highest], rtol=1e-5)
    np.testing.assert_allclose(coarse[1], [np.log(0.95 / 0.05), np.log(0.99 / 0.01), np.log(0.38 / 0.62)], rtol=1e-5)


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


def compared(file: Outputs, labels: np.ndarray, models: ShadowModels) -> tuple[np.ndarray, ...]:
    """The target's confidences, and what rho compares."""
    odds, brought, confidences = of_file((file,), (labels,), models)
    outputs = TargetOutputs("t", None, odds, brought, printed=False, confidences=confidences, file=file)
    return confidences, *samples_of_rho(outputs, labels, models)


def tied(sample: np.ndarray) -> float:
    return float(np.unique(sample, return_counts=True)[1].max() / sample.size)


def test_rho_compares_a_printed_file_at_its_resolution():
    """Rounding keeps the order, so that distributions cannot be further apart than before."""
    softened = [log_odds(np.stack([logits_of(seed, 18) / 9]), LABELS) for seed in (1, 2, 3)]
    models, exact, distances = trained(*softened), special.softmax(logits_of(9, 12) / 9, axis=1), []
    for decimals in (2, None):
        said = exact if decimals is None else np.round(exact, decimals)
        file = Outputs(said.astype(np.float32), "probabilities", decimals, "float64", "out.csv")
        _, query, *_, target = compared(file, LABELS, models)
        distances.append(ks_by_scipy(query[0], target[0]))
    model = np.round(special.expit(models.log_odds[0, :N].astype(np.float64)), 2)
    assert distances[0] == pytest.approx(ks_by_scipy(model, np.round(exact, 2)[np.arange(N), LABELS]))
    assert 0.1 < distances[0] < distances[1]


def test_float32_logits_are_compared_as_finely_as_they_were_stored(tmp_path):
    exact = logits_of(9, 17)
    shifted = (exact + np.random.default_rng(0).normal(0, 3, (N, 1))).astype(np.float32)
    confidences, query, _, controls, target = compared(file_of(tmp_path, shifted), LABELS, MODELS)
    assert tied(target) < 0.01
    of_target = log_odds(exact, LABELS)
    for sample, model in zip(query, MODELS.log_odds[:2], strict=True):
        distance = ks_by_scipy(model[:N].astype(np.float64), of_target)
        assert ks_by_scipy(sample, target[0]) == pytest.approx(distance, abs=2 / N)
    assert controls.shape == (1, N)
    # What is shown are probabilities all the same, and of these most are 1.
    assert tied(np.round(confidences.astype(np.float64), 6)) > 0.5
    assert confidences.max() <= 1


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
    _, query, *_, target = compared(file, labels, trained(odds, odds, odds))
    assert file.kind == "logits"
    assert ks_by_scipy(query[0], target[0]) < 0.01
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
