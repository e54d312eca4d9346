"""How finely a file's numbers were printed or stored, and confidences made as coarse."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from support.outputs_files import LOGITS, P, csv, write_outputs

from jaxaudit.data.outputs.outputs import confidence_of, load_outputs, match_precision
from jaxaudit.data.outputs.precision import decimals_of, round_like, significant_of


@pytest.fixture
def write(tmp_path):
    return lambda content: write_outputs(tmp_path, content)


def test_near_one_is_not_taken_for_a_grid(write):
    # Neighbours of 1 in float32: a tolerance instead of equality would call them 1.000000.
    steps = np.arange(1, 21, dtype=np.float32)[:, None] * np.float32(2**-24)
    near = np.concatenate([1 - steps, steps], axis=1)
    outputs = load_outputs(write(near), 2, 20)
    assert outputs.decimals is None
    assert outputs.significant is None
    np.testing.assert_array_equal(match_precision(near, outputs), np.round(near.astype(float), 6).astype(np.float32))
    assert decimals_of(near[:, 0].astype(np.float64), "float32") is None
    # Near 1 the fourth decimal is finer than float16 itself, so any number would lie on it.
    halves = (1 - np.arange(1, 21) * 2.0**-11).astype(np.float16)
    assert decimals_of(halves.astype(np.float64), "float16") is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**4), min_size=1, max_size=50), st.sampled_from(["float32", "float64"]))
def test_decimals_equal_the_shortest_print(counts, dtype):
    values = (np.array(counts) / 10**4).astype(dtype)
    slow = max(1, *(len(f"{count / 10**4:.4f}".rstrip("0")) - 2 for count in counts))
    assert decimals_of(values.astype(np.float64), dtype) == slow


def test_half_precision_saved_as_float32_is_noticed(write):
    for half in (P.astype(np.float16), P.astype(np.float16).astype(np.float32)):
        outputs = load_outputs(write(half), 4, 20)
        assert (outputs.decimals, outputs.dtype) == (None, "float16")
    brain = P.astype(ml_dtypes.bfloat16).astype(np.float32)
    outputs = load_outputs(write(brain), 4, 20)
    assert outputs.dtype == "bfloat16"
    expected = np.round(P.astype(ml_dtypes.bfloat16).astype(float), 6).astype(np.float32)
    np.testing.assert_array_equal(match_precision(P, outputs), expected)


def test_match_precision_makes_equal_what_was_equal(write):
    confidences = P.astype(np.float32)
    for content in (csv(P, decimals=3), np.round(confidences, 3), confidences.astype(np.float16)):
        outputs = load_outputs(write(content), 4, 20)
        theirs = match_precision(outputs.probabilities, outputs)
        np.testing.assert_array_equal(match_precision(confidences, outputs), theirs)
    outputs = load_outputs(write(LOGITS.astype(np.float16)), 4, 20)
    np.testing.assert_allclose(match_precision(confidences, outputs), confidences, atol=5.1e-7)


def test_round_like():
    # Every tie between neighbours of bfloat16 in [1, 2), and just beside the ties.
    ties = (1 + (np.arange(128) + 0.5) / 128).astype(np.float32)
    for values in (ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(9))):
        expected = np.round(values.astype(ml_dtypes.bfloat16).astype(float), 6).astype(np.float32)
        np.testing.assert_array_equal(round_like(values, None, None, "bfloat16"), expected)
    assert round_like(np.array([0.12345]), 2, None, "text").tolist() == [np.float32(0.12)]
    digits = round_like(np.array([0.98766, 0.0012344, 0.0, 1.0]), None, 4, "text")
    assert digits.tolist() == np.array([0.9877, 0.001234, 0, 1], np.float32).tolist()
    assert round_like(np.array([1.0]), None, None, "float32").tolist() == [1.0]
    near = np.array([1 - 4e-7, 1 - 6e-7, 4e-7], np.float32)
    assert round_like(near, None, None, "float32").tolist() == np.array([1, 0.999999, 0], np.float32).tolist()


def printed(values, form):
    return "\n".join(",".join(form % value for value in row) for row in np.atleast_2d(values)) + "\n"


@pytest.mark.parametrize(
    ("form", "digits"), [("%.2g", 2), ("%.3g", 3), ("%.4g", 4), ("%.6g", 6), ("%.1e", 2), ("%.2e", 3), ("%.5e", 6)]
)
def test_printed_significant_digits_are_found(write, form, digits):
    outputs = load_outputs(write(printed(P, form)), 4, 20)
    assert (outputs.kind, outputs.significant) == ("probabilities", digits)
    np.testing.assert_allclose(outputs.probabilities, P, rtol=0.51 * 10.0 ** (1 - digits))
    as_float32 = np.array([[np.float32(form % value) for value in row] for row in P])
    assert load_outputs(write(as_float32), 4, 20).significant == digits


def test_one_column_of_significant_digits_bounds_the_decimals_of_the_other_class(write):
    p = np.geomspace(1e-9, 0.9, 50)
    outputs = load_outputs(write(printed(p[:, None], "%.3g")), 2, 50)
    assert (outputs.decimals, outputs.significant) == (3, 3)
    for label, truth in ((0, 1 - p), (1, p)):
        own = match_precision(confidence_of(outputs, np.full(50, label)), outputs)
        np.testing.assert_array_equal(match_precision(truth, outputs), own)


def test_the_digits_of_logits_are_found_too(write):
    outputs = load_outputs(write(printed(LOGITS, "%.3g")), 4, 20)
    assert (outputs.kind, outputs.significant) == ("logits", 3)
    outputs = load_outputs(write(printed(LOGITS, "%.2f")), 4, 20)
    assert (outputs.kind, outputs.decimals) == ("logits", 2)
    assert load_outputs(write(np.rint(LOGITS * 10).astype(int)), 4, 20).decimals == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-25, 1), min_size=1, max_size=30), st.integers(1, 6), st.sampled_from(["float32", "text"]))
def test_significant_digits_equal_the_shortest_print(values, digits, dtype):
    texts = [f"{value:.{digits - 1}e}" for value in values]
    slow = max(len(text.partition("e")[0].replace(".", "").rstrip("0")) for text in texts)
    numbers = np.array(texts, np.float64).astype("float32" if dtype == "float32" else "float64")
    assert significant_of(numbers.astype(np.float64), dtype) == slow


def saturated_logits():
    """`float32[2000, 4]`, labels all 0: 30% of the confidences above 1 - 1e-6, the others anywhere."""
    generator = np.random.default_rng(5)
    margin = np.sort(np.concatenate([generator.uniform(14.5, 19, 600), generator.normal(5, 3.5, 1400).clip(-9, 13)]))
    logits = generator.normal(0, 0.5, (2000, 4))
    logits[:, 0] = margin + np.log(np.exp(logits[:, 1:]).sum(axis=1))
    return (logits + generator.normal(0, 3, (2000, 1))).astype(np.float32)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@cache
def forms_of_one_model():
    """Its exact outputs, and what files may hold of them."""
    logits = saturated_logits()
    exact, naive = softmax(logits.astype(np.float64)), softmax(logits)
    files = {
        "logits": logits,
        "naive": naive,
        "exact": exact,
        "half": exact.astype(np.float16),
        "naive half": naive.astype(np.float16),
        **{form: printed(exact, form) for form in FORMS},
        **{f"naive {form}": printed(naive, form) for form in FORMS[:2]},
    }
    return exact[:, 0].astype(np.float32), files


def distance(first, second):
    return np.asarray(ks_2samp(first, second, method="asymp"))[0]


FORMS = ("%.4g", "%.6f", "%.4f", "%.2f", "%.2e", "%.3g", "%.6g", "%.9g")
ARRAYS = ("logits", "naive", "exact", "half", "naive half")


@pytest.mark.parametrize("name", [*ARRAYS, *FORMS, *(f"naive {form}" for form in FORMS[:2])])
def test_one_model_compared_with_itself_is_at_no_distance(write, name):
    confidences, files = forms_of_one_model()
    assert np.mean(confidences > 1 - 1e-6) == pytest.approx(0.3, abs=0.01)
    outputs = load_outputs(write(files[name]), 4, len(confidences))
    own = confidence_of(outputs, np.zeros(len(confidences), int))
    assert distance(match_precision(confidences, outputs), match_precision(own, outputs)) < 0.01
    # Without a common grid some would be at a distance: this test can fail.
    if name in ("naive", "%.4g"):
        assert distance(confidences, own) > 0.01
