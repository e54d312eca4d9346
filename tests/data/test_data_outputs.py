"""A model's outputs from any framework: read, recognised, or refused in one line, without memory beyond their shape."""

import itertools
import os
from functools import cache
from typing import Literal

import ml_dtypes
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from scipy.stats import ks_2samp
from support.banks import describe
from support.memory import at_most
from support.outputs_files import LOGITS, NAMES, P, csv, table, write_outputs
from support.references import softmax

from jaxaudit.data import Description, confidence_of, load, load_into, load_outputs, match_precision
from jaxaudit.data.outputs.kinds import decimals_of, significant_of
from jaxaudit.errors import InputError

READERS = {
    "outputs": lambda path: load_outputs(path, NAMES, 20),
    "records": lambda path: load(str(path)),
    "outputs for a bank": lambda path: load_into(path, msgspec.convert(describe(), Description)),
}


@pytest.mark.parametrize("suffix", ["pt", "pkl", "joblib", "CKPT"])
@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_is_refused_with_the_line_that_converts_it(tmp_path, reader, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(b"PK")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"are never read here.*numpy\.save\('FILE\.npy', numpy\.asarray\("):
        READERS[reader](tmp_path / f"a.{suffix}")


@pytest.fixture
def write(tmp_path):
    return lambda content: write_outputs(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (P, "probabilities"),
        (np.asfortranarray(P), "probabilities"),
        ({"probs": P, "labels": np.zeros(20, int), "names": np.array(["a"] * 20)}, "probabilities"),
        (csv(P), "probabilities"),
        (LOGITS + 1000, "logits"),
        ({"logits": LOGITS}, "logits"),
        (csv(LOGITS), "logits"),
        (table(LOGITS), "logits"),
    ],
    ids=itertools.count(),
)
def test_what_outputs_are_is_recognised(write, content, kind):
    outputs = load_outputs(write(content), NAMES, 20)
    assert (outputs.kind, outputs.decimals) == (kind, None)
    assert outputs.probabilities.dtype == np.float32
    assert outputs.dtype == ("text" if isinstance(content, str) else "float64")
    np.testing.assert_allclose(outputs.probabilities, P, atol=1e-7)


def test_forced_kind(write):
    small = LOGITS / 100 + 0.5  # all within [0, 1]
    outputs = load_outputs(write(small), 4, 20, kind="logits")
    expected = np.exp(small) / np.exp(small).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs.probabilities, expected, atol=1e-7)
    assert load_outputs(write(P), 4, 20, kind="probabilities").kind == "probabilities"
    assert load_outputs(write(P), 4, 20, kind="logits").kind == "logits"
    for wrong, message in ((LOGITS, r"\[0, 1\], so these are no"), (P / 2, r"row 1 sums to 0\.5, so these are no")):
        with pytest.raises(InputError, match=message):
            load_outputs(write(wrong), 4, 20, kind="probabilities")


SURE = P**8 / (P**8).sum(axis=1, keepdims=True)
"""Probabilities of a model that is sure of most records."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.log10(P), "logarithms to base 10"),
        (np.log2(P), "logarithms to base 2"),
        (-np.log(P), "negative logarithms"),
        (softmax(SURE), "through a softmax once more"),
        (csv(softmax(SURE), decimals=4), "through a softmax once more"),
    ],
)
def test_what_a_softmax_would_not_turn_back_is_refused_unless_it_is_said(write, content, message):
    with pytest.raises(InputError, match=message):
        load_outputs(write(content), 4, 20)
    kind = "probabilities" if "softmax" in message else "logits"
    assert load_outputs(write(content), 4, 20, kind=kind).kind == kind


def test_logits_of_which_the_largest_or_the_smallest_is_0_are_read(write):
    """Zeros and large numbers sum to 1 by any logarithm: rows are logarithms only where a second class has a share."""
    generator = np.random.default_rng(4)
    sure = 40 * np.eye(4)[np.arange(20) % 4] + generator.normal(size=(20, 4))
    for logits in (sure - sure.max(axis=1, keepdims=True), sure - sure.min(axis=1, keepdims=True)):
        assert load_outputs(write(logits), 4, 20).kind == "logits"


def test_one_column_after_a_second_softmax_is_refused(write):
    """Two classes, of which one column is given; and a model that knows little is read."""
    twice = softmax(np.stack([SURE[:, 0], 1 - SURE[:, 0]], axis=1))[:, 1]
    with pytest.raises(InputError, match="through a softmax once more"):
        load_outputs(write(twice), 2, 20)
    assert load_outputs(write(0.5 + (P[:, 0] - 0.5) / 5), 2, 20).kind == "probabilities"


@pytest.mark.parametrize(
    "bits",
    [
        (P.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
        P.astype(np.float16).view(np.uint16),
        P.astype(np.float64).view(np.int64),
        np.rint(P * 65535).astype(np.uint16),
    ],
    ids=["bfloat16", "float16", "float64", "16-bit probabilities"],
)
def test_bits_of_numbers_are_no_logits(write, bits):
    """NumPy has no bfloat16, so programs save its bits as whole numbers."""
    for kind in ("auto", "logits"):
        with pytest.raises(InputError, match="whole numbers of type"):
            load_outputs(write(bits), 4, 20, kind=kind)
    whole = np.rint(LOGITS * 8).astype(np.int8)
    assert load_outputs(write(whole), 4, 20).kind == "logits"


def test_float32_softmax_may_leave_the_interval_by_rounding(write):
    outputs = load_outputs(write(np.array([[1.0000001, -1e-9], [0.25, 0.75]], np.float32)), 2, 2)
    assert (outputs.kind, outputs.probabilities.min(), outputs.probabilities.max()) == ("probabilities", 0, 1)


@pytest.mark.parametrize("shape", [(20,), (20, 1)])
def test_binary_classifiers_may_give_one_column(write, shape):
    p = P[:, 0].reshape(shape)
    outputs = load_outputs(write(p), 2, 20)
    np.testing.assert_allclose(outputs.probabilities, np.stack([1 - P[:, 0], P[:, 0]], axis=1), atol=1e-7)
    z = np.log(P[:, 0] / (1 - P[:, 0])).reshape(shape)
    outputs = load_outputs(write(z), 2, 20)
    assert outputs.kind == "logits"
    np.testing.assert_allclose(outputs.probabilities[:, 1], P[:, 0], atol=1e-7)
    assert load_outputs(write(csv(P[:, 0], decimals=3)), 2, 20).decimals == 3
    with pytest.raises(InputError, match="so these are not probabilities"):
        load_outputs(write(z), 2, 20, kind="probabilities")
    with pytest.raises(InputError, match=HARD):
        load_outputs(write(np.arange(20).reshape(shape) % 2), 2, 20)


def test_two_columns_that_could_be_a_row_number_are_not_dropped(write):
    values = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    assert load_outputs(write(csv(values)), 2, 3).probabilities.tolist() == values.tolist()
    # Two numbers are too few to be a row number.
    outputs = load_outputs(write("0,3.5\n1,-2.5\n"), 2, 2)
    np.testing.assert_allclose(outputs.probabilities[:, 1], 1 / (1 + np.exp([-3.5, 3.5])), atol=1e-7)


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


HARD = "these are predicted labels, but"
BAD = [
    (P[:19], r"out\.npy: has 19 rows but the query set"),
    (P.T, "rows but the query set has 20 records"),
    (P[None], r"of shape \(1, 20, 4\)\. Outputs on the query set are 20 rows"),
    (np.zeros((20, 0)), "is empty"),
    ("", "out.csv: is empty"),
    (changed(changed(P, (7, 0), np.inf), (5, 2), np.nan), r"NaN or infinite values \(first: row 6\)"),
    (csv(P).replace("\n", "\nnan,0,0,0\n", 1).rsplit("\n", 2)[0] + "\n", "1 rows"),
    (csv(P[:19]) + "0.1,none,0,0\n", "row 20, column 2 holds text"),
    (csv(P[:19], ",".join(NAMES)) + "0.1,,0,0\n", "row 20, column 'bee' is empty"),
    (P.argmax(axis=1), HARD),
    ("\n".join(np.array(NAMES)[P.argmax(axis=1)]) + "\n", "no numbers, as predicted labels"),
    (np.eye(4)[P.argmax(axis=1)], "only 0 and 1: " + HARD),
    (np.array([None] * 20, dtype=object), "pickled objects"),
    ({"a": P, "b": P}, "outputs are one"),
    ({"arr_0": P[:10], "arr_1": P[10:]}, "outputs are one"),
    ({"labels": np.zeros(20, int), "fold": np.zeros(20, int)}, "outputs are one"),
    (P * 0.5, r"neither probabilities nor logits: .* row 1 sums to 0.5; .*`kind` logits.*renormalise"),
    (P * 100, "every row sums to about 100: these look like percentages; divide them by 100"),
    (np.round(P * 500).astype(np.int32), "counts, such as votes of trees; divide them by 500"),
    (np.round(P * 255).astype(np.uint8), "these look like 8-bit probabilities; divide them by 255"),
    (table(P).set_column(1, "bee", pa.array([None] + [0.1] * 19)), r"column 2 \('bee'\) has empty cells"),
    (table(P).set_column(1, "bee", pa.array(["x"] * 20)), r"column 2 \('bee'\) has no numbers"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=itertools.count())
def test_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        load_outputs(write(content), NAMES, 20)


def test_probabilities_of_0_and_1_are_read_at_the_users_word(write):
    """Extra trees, grown in full without bootstrap, are sure of all that they were trained on."""
    sure = np.eye(4)[P.argmax(axis=1)]
    with pytest.raises(InputError, match=f"only 0 and 1: {HARD}.*trees.*give `kind` probabilities"):
        load_outputs(write(sure), NAMES, 20)
    assert np.array_equal(load_outputs(write(sure), NAMES, 20, "probabilities").probabilities, sure)
    second = load_outputs(write(sure[:, 1]), NAMES[:2], 20, "probabilities")
    assert np.array_equal(second.probabilities, np.stack([1 - sure[:, 1], sure[:, 1]], axis=1))
    # Labels that are no row of probabilities stay refused, and so do logits that are not what they are said to be.
    wrong: list[tuple[np.ndarray, Literal["probabilities", "logits"]]]
    wrong = [(P.argmax(axis=1), "probabilities"), (sure, "logits")]
    for content, kind in wrong:
        with pytest.raises(InputError, match=HARD):
            load_outputs(write(content), NAMES, 20, kind)


def test_confidences(write):
    outputs = load_outputs(write(P), 4, 20)
    labels = np.arange(20) % 4
    confidences = confidence_of(outputs, labels)
    assert confidences.dtype == np.float32
    assert confidences.tolist() == [outputs.probabilities[i, label] for i, label in enumerate(labels)]
    with pytest.raises(InputError, match="has 20 rows but there are 19 labels"):
        confidence_of(outputs, labels[:19])
    with pytest.raises(ValueError, match="read-only"):
        outputs.probabilities[0] = 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (("," * 100_000 + "\n") * 3, "columns but the query set"),
        (("0.25," * 6 + "0.1\n") * 3, "columns but the query set"),
        ("1" * (2 << 20), "first line is longer than"),
        (None, "longer than 20 rows of 4 numbers"),
    ],
)
def test_a_table_that_cannot_be_of_these_records_is_not_parsed(tmp_path, monkeypatch, content, message):
    path = write_outputs(tmp_path, content or "")
    if content is None:
        os.truncate(path, 1 << 30)
    monkeypatch.setattr(arrow_csv, "read_csv", lambda *_: pytest.fail("parsed"))
    with pytest.raises(InputError, match=message):
        load_outputs(path, NAMES, 20)


def test_an_array_of_more_numbers_is_not_unpacked_or_read(tmp_path):
    """100 MB of zeros in 100 kB, beside arrays that are none of the outputs."""
    np.savez_compressed(tmp_path / "out.npz", probabilities=np.zeros((10**8, 1), np.int8), labels=np.zeros(20, int))
    with at_most(10**6), pytest.raises(InputError, match="more than the allowed"):
        load_outputs(tmp_path / "out.npz", NAMES, 20)
    # A sparse file takes no room on the disk, and its array would.
    np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float64, (2**26, 4))
    with at_most(2**20), pytest.raises(InputError, match="more than the allowed"):
        load_outputs(tmp_path / "out.npy", NAMES, 20)


def test_names_of_records_in_parquet_are_not_read(tmp_path):
    """A dictionary holds one long text, and a column of it has one a record."""
    names = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 2_000_000])
    values = np.random.default_rng(0).dirichlet(np.ones(4), 1000)
    made = pa.table({"file": names} | {name: values[:, k] for k, name in enumerate(NAMES)})
    parquet.write_table(made, tmp_path / "out.parquet", store_schema=False)
    assert (tmp_path / "out.parquet").stat().st_size < 1_000_000
    before = pa.default_memory_pool().max_memory()
    np.testing.assert_allclose(load_outputs(tmp_path / "out.parquet", NAMES, 1000).values, values)
    assert pa.default_memory_pool().max_memory() < before + 50_000_000


def test_huge_logits_are_read_without_a_warning(tmp_path):
    outputs = load_outputs(write_outputs(tmp_path, np.array([[1e308, -1e308], [3.5, 4.0]])), 2, 2)
    assert outputs.kind == "logits"
    assert outputs.probabilities[0].tolist() == [1, 0]
    with pytest.raises(InputError) as refused:
        load_outputs(write_outputs(tmp_path, np.array([0.25, 7.125])), 2, 2, kind="probabilities")
    assert "7.125" not in str(refused.value)


def test_near_one_is_not_taken_for_a_grid(write):
    # Neighbours of 1 in float32: a tolerance instead of equality would call them 1.000000.
    steps = np.arange(1, 21, dtype=np.float32)[:, None] * np.float32(2**-24)
    near = np.concatenate([1 - steps, steps], axis=1)
    outputs = load_outputs(write(near), 2, 20)
    assert (outputs.decimals, outputs.significant) == (None, None)
    np.testing.assert_array_equal(match_precision(near, outputs), np.round(near.astype(float), 6).astype(np.float32))
    assert decimals_of(near[:, 0].astype(np.float64), "float32") is None
    # Near 1 the fourth decimal is finer than float16 itself, so any number would lie on it.
    halves = (1 - np.arange(1, 21) * 2.0**-11).astype(np.float16)
    assert decimals_of(halves.astype(np.float64), "float16") is None


def test_half_precision_saved_as_float32_is_noticed(write):
    for half in (P.astype(np.float16), P.astype(np.float16).astype(np.float32)):
        outputs = load_outputs(write(half), 4, 20)
        assert (outputs.decimals, outputs.dtype) == (None, "float16")
    brain = P.astype(ml_dtypes.bfloat16).astype(np.float32)
    outputs = load_outputs(write(brain), 4, 20)
    assert outputs.dtype == "bfloat16"
    expected = np.round(P.astype(ml_dtypes.bfloat16).astype(float), 6).astype(np.float32)
    np.testing.assert_array_equal(match_precision(P, outputs), expected)


def printed(values, form):
    return "\n".join(",".join(form % value for value in row) for row in np.atleast_2d(values)) + "\n"


def test_one_column_of_significant_digits_bounds_the_decimals_of_the_other_class(write):
    p = np.geomspace(1e-9, 0.9, 50)
    outputs = load_outputs(write(printed(p[:, None], "%.3g")), 2, 50)
    assert (outputs.decimals, outputs.significant) == (3, 3)
    for label, truth in ((0, 1 - p), (1, p)):
        own = match_precision(confidence_of(outputs, np.full(50, label)), outputs)
        np.testing.assert_array_equal(match_precision(truth, outputs), own)


def saturated_logits():
    """`float32[2000, 4]`, labels all 0: 30% of the confidences above 1 - 1e-6, the others anywhere."""
    generator = np.random.default_rng(5)
    margin = np.sort(np.concatenate([generator.uniform(14.5, 19, 600), generator.normal(5, 3.5, 1400).clip(-9, 13)]))
    logits = generator.normal(0, 0.5, (2000, 4))
    logits[:, 0] = margin + np.log(np.exp(logits[:, 1:]).sum(axis=1))
    return (logits + generator.normal(0, 3, (2000, 1))).astype(np.float32)


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


def test_lists_and_columns_are_counted_before_they_are_unpacked(tmp_path, monkeypatch):
    long = pa.ListArray.from_arrays(np.arange(21, dtype=np.int32) * 100_000, np.zeros(2_000_000))
    parquet.write_table(pa.table({"a": long}), tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").stat().st_size < 3000
    monkeypatch.setattr(parquet.ParquetFile, "read", lambda _, names: names and pytest.fail("unpacked"))
    with pytest.raises(InputError, match="no numbers"):
        load_outputs(tmp_path / "out.parquet", 4, 20)
    parquet.write_table(table(np.tile(P, 3), [f"c{k}" for k in range(12)]), tmp_path / "out.parquet")
    with pytest.raises(InputError, match="has 12 columns but the query set"):
        load_outputs(tmp_path / "out.parquet", NAMES, 20)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**4), min_size=1, max_size=50), st.sampled_from(["float32", "float64"]))
def test_decimals_equal_the_shortest_print(counts, dtype):
    values = (np.array(counts) / 10**4).astype(dtype)
    slow = max(1, *(len(f"{count / 10**4:.4f}".rstrip("0")) - 2 for count in counts))
    assert decimals_of(values.astype(np.float64), dtype) == slow


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-25, 1), min_size=1, max_size=30), st.integers(1, 6), st.sampled_from(["float32", "text"]))
def test_significant_digits_equal_the_shortest_print(values, digits, dtype):
    texts = [f"{value:.{digits - 1}e}" for value in values]
    slow = max(len(text.partition("e")[0].replace(".", "").rstrip("0")) for text in texts)
    numbers = np.array(texts, np.float64).astype("float32" if dtype == "float32" else "float64")
    assert significant_of(numbers.astype(np.float64), dtype) == slow
