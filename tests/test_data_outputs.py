"""A model's outputs from any framework: read, recognised, or refused in one line."""

import itertools

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from jaxaudit.data.outputs import confidence_of, load_outputs, match_precision
from jaxaudit.data.precision import decimals_of, round_like
from jaxaudit.errors import InputError

LOGITS = np.random.default_rng(0).normal(0, 3, (20, 4))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
NAMES = ("ant", "bee", "cat", "dog")


def csv(values, header=None, decimals=17, index=None):
    lines = [] if header is None else [header]
    for row, line in enumerate(np.asarray(values)):
        cells = [f"{value:.{decimals}f}" for value in np.atleast_1d(line)]
        lines.append(",".join(cells if index is None else [str(index(row)), *cells]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def write(tmp_path):
    def write_file(content, suffix=None):
        if isinstance(content, str):
            path = tmp_path / "out.csv"
            path.write_text(content)
        elif isinstance(content, dict):
            path = tmp_path / "out.npz"
            np.savez(path, **content)
        elif isinstance(content, pa.Table):
            path = tmp_path / "out.parquet"
            parquet.write_table(content, path)
        else:
            path = tmp_path / "out.npy"
            np.save(path, content)
        return path

    return write_file


def table(values, names=None):
    return pa.table({(names or NAMES)[k]: values[:, k] for k in range(values.shape[1])})


@pytest.mark.parametrize(
    "content",
    [
        P,
        np.asfortranarray(P),
        {"anything": P},
        {"probs": P, "labels": np.zeros(20)},
        {"y_pred": P, "x": P},
        csv(P),
        csv(P, ",".join(NAMES)),
        csv(P, "p0,p1,p2,p3"),
        csv(P, "0,1,2,3"),
        csv(P, ",0,1,2,3", index=lambda row: row),
        csv(P, "index,0,1,2,3", index=lambda row: row),
        csv(P, "id,a,b,c,d", index=lambda row: 7 * row),
        csv(P, "file,a,b,c,d", index=lambda row: f"scan{row}.png"),
        csv(P, index=lambda row: row + 1),
        csv(P, index=lambda row: f"scan{row}.png"),
        csv(P[:, ::-1], ",".join(NAMES[::-1])),
        csv(P[:, ::-1], "id," + ",".join(NAMES[::-1]), index=lambda row: row),
        table(P),
        table(P, "wxyz"),
        table(P[:, [2, 0, 3, 1]], ["cat", "ant", "dog", "bee"]),
        pa.table({"probabilities": list(P)}),
        pa.table({"file": [f"{i}.png" for i in range(20)]} | {f"p{k}": P[:, k] for k in range(4)}),
        pa.table({"__index_level_0__": np.arange(20)} | {f"p{k}": P[:, k] for k in range(4)}),
    ],
    ids=itertools.count(),
)
def test_probabilities(write, content):
    outputs = load_outputs(write(content), NAMES, 20)
    assert outputs.kind == "probabilities"
    assert outputs.decimals is None
    assert outputs.probabilities.dtype == np.float32
    assert outputs.dtype == ("text" if isinstance(content, str) else "float64")
    np.testing.assert_allclose(outputs.probabilities, P, atol=1e-7)


@pytest.mark.parametrize(
    "content",
    [LOGITS, np.log(P), LOGITS * 1.0 + 1000, {"logits": LOGITS}, csv(LOGITS), table(LOGITS)],
    ids=itertools.count(),
)
def test_logits(write, content):
    outputs = load_outputs(write(content), 4, 20)
    assert outputs.kind == "logits"
    assert outputs.decimals is None
    np.testing.assert_allclose(outputs.probabilities, P, atol=1e-7)


def test_forced_kind(write):
    small = LOGITS / 100 + 0.5  # all within [0, 1]
    outputs = load_outputs(write(small), 4, 20, kind="logits")
    expected = np.exp(small) / np.exp(small).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs.probabilities, expected, atol=1e-7)
    assert load_outputs(write(P), 4, 20, kind="probabilities").kind == "probabilities"
    assert load_outputs(write(P), 4, 20, kind="logits").kind == "logits"


def test_named_arrays_by_preference(write):
    assert load_outputs(write({"logits": LOGITS, "probs": P}), 4, 20).kind == "probabilities"


def test_large_logits_do_not_overflow(write):
    outputs = load_outputs(write(np.array([[1e4, 0.0], [-1e4, 0.0]])), 2, 2)
    assert outputs.probabilities.tolist() == [[1, 0], [0, 1]]


def test_float32_softmax_may_leave_the_interval_by_rounding(write):
    values = np.array([[1.0000001, -1e-9], [0.25, 0.75]], np.float32)
    outputs = load_outputs(write(values), 2, 2)
    assert outputs.kind == "probabilities"
    assert outputs.probabilities.min() == 0
    assert outputs.probabilities.max() == 1


@pytest.mark.parametrize("decimals", [2, 3, 4, 5, 6])
def test_printed_decimals_are_found(write, decimals):
    outputs = load_outputs(write(csv(P, decimals=decimals)), 4, 20)
    assert (outputs.kind, outputs.decimals) == ("probabilities", decimals)
    np.testing.assert_allclose(outputs.probabilities, P, atol=0.5001 * 10.0**-decimals)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [2, 4, 6])
def test_rounded_arrays_are_found(write, dtype, decimals):
    rounded = np.round(P.astype(dtype), decimals)
    assert load_outputs(write(rounded), 4, 20).decimals == decimals


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_unrounded_arrays_have_no_decimals(write, dtype):
    outputs = load_outputs(write(P.astype(dtype)), 4, 20)
    assert outputs.decimals is None
    assert outputs.dtype == np.dtype(dtype).name


def test_near_one_is_not_taken_for_a_grid(write):
    # Neighbours of 1 in float32: a tolerance instead of equality would call them 1.000000.
    steps = np.arange(1, 21, dtype=np.float32)[:, None] * np.float32(2**-24)
    near = np.concatenate([1 - steps, steps], axis=1)
    outputs = load_outputs(write(near), 2, 20)
    assert outputs.decimals is None
    np.testing.assert_array_equal(match_precision(near, outputs), near)
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
    half = P.astype(np.float16).astype(np.float32)
    assert load_outputs(write(half), 4, 20).dtype == "float16"
    brain = P.astype(ml_dtypes.bfloat16).astype(np.float32)
    outputs = load_outputs(write(brain), 4, 20)
    assert outputs.dtype == "bfloat16"
    np.testing.assert_array_equal(match_precision(P, outputs), P.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_match_precision_makes_equal_what_was_equal(write):
    confidences = P.astype(np.float32)
    for content in (csv(P, decimals=3), np.round(confidences, 3), confidences.astype(np.float16)):
        outputs = load_outputs(write(content), 4, 20)
        np.testing.assert_array_equal(match_precision(confidences, outputs), outputs.probabilities)
    outputs = load_outputs(write(LOGITS.astype(np.float16)), 4, 20)
    np.testing.assert_array_equal(match_precision(confidences, outputs), confidences)


def test_round_like():
    # Every tie between neighbours of bfloat16 in [1, 2), and just beside the ties.
    ties = (1 + (np.arange(128) + 0.5) / 128).astype(np.float32)
    for values in (ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(9))):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(round_like(values, None, "bfloat16"), expected)
    assert round_like(np.array([0.12345]), 2, "text").tolist() == [np.float32(0.12)]
    assert round_like(np.array([1.0]), None, "float32").tolist() == [1.0]


@pytest.mark.parametrize("shape", [(20,), (20, 1)])
def test_binary_classifiers_may_give_one_column(write, shape):
    p = P[:, 0].reshape(shape)
    outputs = load_outputs(write(p), 2, 20)
    np.testing.assert_allclose(outputs.probabilities, np.stack([1 - P[:, 0], P[:, 0]], axis=1), atol=1e-7)
    z = np.log(P[:, 0] / (1 - P[:, 0])).reshape(shape)
    outputs = load_outputs(write(z), 2, 20)
    assert outputs.kind == "logits"
    np.testing.assert_allclose(outputs.probabilities[:, 1], P[:, 0], atol=1e-7)
    outputs = load_outputs(write(csv(P[:, 0], decimals=3)), 2, 20)
    assert outputs.decimals == 3
    outputs = load_outputs(write(csv(P[:, 0], "id,score", index=lambda row: row)), 2, 20)
    np.testing.assert_allclose(outputs.probabilities[:, 1], P[:, 0], atol=1e-7)
    with pytest.raises(InputError, match=r"row 1 holds .* which is no probability"):
        load_outputs(write(z), 2, 20, kind="probabilities")


def test_two_columns_that_could_be_a_row_number_are_not_dropped(write):
    values = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    assert load_outputs(write(csv(values)), 2, 3).probabilities.tolist() == values.tolist()

    # Logits of two records; two numbers are too few to be a row number.
    outputs = load_outputs(write("0,3.5\n1,-2.5\n"), 2, 2)
    assert outputs.kind == "logits"
    np.testing.assert_allclose(outputs.probabilities[:, 1], 1 / (1 + np.exp([-3.5, 3.5])), atol=1e-7)


def test_a_first_row_of_outputs_that_reads_like_class_names_is_data(write):
    text = "0,1\n0.5,0.5\n0.25,0.75\n"
    assert load_outputs(write(text), ("0", "1"), 3).probabilities.tolist() == [[0, 1], [0.5, 0.5], [0.25, 0.75]]
    assert load_outputs(write(text), ("0", "1"), 2).probabilities.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert load_outputs(write(text), ("1", "0"), 2).probabilities.tolist() == [[0.5, 0.5], [0.75, 0.25]]


def test_content_hash(write):
    first = load_outputs(write(P), 4, 20).content_hash
    assert first.startswith("blake2b:")
    assert load_outputs(write({"p": P}), 4, 20).content_hash == first
    assert load_outputs(write(P[::-1]), 4, 20).content_hash != first


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


HARD = "these are predicted labels, but the method needs confidences"
BAD = [
    (P[:19], r"out.npy: has 19 rows but the query set 20 records; .*in the order of the query set"),
    (csv(P[:19]), "out.csv: has 19 rows but the query set 20 records"),
    (csv(P[:18], ",".join(NAMES)), "out.csv: has 18 rows but the query set 20 records"),
    (table(P[:19]), "out.parquet: has 19 rows"),
    (P.T, r"has shape \(4, 20\), one row a class; transpose it to 20 rows"),
    (P[:, :3], "has 3 columns but the query set 4 classes; give one column a class, in label order"),
    (csv(P[:, :3]), "has 3 columns"),
    (csv(np.concatenate([P[:, :1], P], axis=1)), "has 5 columns"),
    (P[None], r"has shape \(1, 20, 4\); outputs are"),
    (P[:0], "is empty; did the model write its outputs"),
    (np.zeros((20, 0)), "is empty"),
    ("", "cannot be read as CSV .Empty CSV file"),
    (changed(P, (3, 1), np.nan), r"1 rows hold NaN or infinite values \(first: row 4\)"),
    (changed(changed(P, (7, 0), np.inf), (5, 2), np.nan), r"2 rows hold NaN or infinite values \(first: row 6\)"),
    (csv(P).replace("\n", "\nnan,0,0,0\n", 1).rsplit("\n", 2)[0] + "\n", r"1 rows hold NaN .*\(first: row 2\)"),
    (csv(P).replace("\n", "\n0.1,none,0,0\n", 1).rsplit("\n", 2)[0] + "\n", "row 2, column 2 holds the text 'none'"),
    (csv(P, "a,b,c,d").replace("\n", "\n0.1,,0,0\n", 1).rsplit("\n", 2)[0] + "\n", "row 1, column 'b' is empty"),
    (csv(P, "ant,bee,cat,cow"), "some columns are named after classes, but 'cow' is no class; name all columns"),
    (csv(P, "ant,bee,cat,cat"), "some columns are named after classes, but 'ant' is there twice|'cat' is there twice"),
    (csv(P, "id,a,b,c,d", index=lambda row: 19 - row), "its first column numbers the rows out of order"),
    (P.argmax(axis=1), HARD),
    (P.argmax(axis=1).astype(float)[:, None], HARD),
    (np.array(NAMES)[P.argmax(axis=1)], HARD),
    ("\n".join(np.array(NAMES)[P.argmax(axis=1)]) + "\n", HARD + "|has 19 rows"),
    ("prediction\n" + "\n".join(np.array(NAMES)[P.argmax(axis=1)]) + "\n", HARD),
    (pa.table({"prediction": np.array(NAMES)[P.argmax(axis=1)]}), HARD),
    (np.eye(4)[P.argmax(axis=1)], "holds only 0 and 1: " + HARD),
    (np.array([["a"] * 4] * 20), "holds values of type <U1: save numbers"),
    (np.array([None] * 20, dtype=object), "holds pickled objects"),
    ({"a": P, "b": P}, "holds the arrays 'a', 'b'; call the outputs 'probabilities' or 'logits'"),
    ({}, r"holds the arrays \(none\)"),
    (P * 0.5, r"neither probabilities nor logits: .* row 1 sums to 0.5; .*--target-kind logits.*renormalise"),
    (changed(P, 4, P[4] * 0.9), "neither probabilities nor logits: .* row 5 sums to 0.9"),
    (1 / (1 + np.exp(-LOGITS)), "neither probabilities nor logits"),
    (P * 100, "every row sums to about 100: these look like percentages; divide them by 100"),
    (np.round(P * 255).astype(np.uint8), "these look like 8-bit probabilities; divide them by 255"),
    (pa.table({"a": [[0.1, 0.9], [0.5]] * 10}), "its lists are not all of one length"),
    (pa.table({"a": [[0.1, 0.9], [None, 1.0]] * 10}), "has empty cells"),
    (table(P).set_column(1, "bee", pa.array([None] + [0.1] * 19)), "column 'bee' has empty cells"),
    (table(P).set_column(1, "bee", pa.array(["x"] * 20)), "column 'bee' is of type string"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=itertools.count())
def test_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        load_outputs(write(content), NAMES, 20)


def test_binary_hard_labels(write):
    with pytest.raises(InputError, match=HARD):
        load_outputs(write(np.array([0, 1, 1])), 2, 3)


def test_forced_probabilities_that_are_none(write):
    with pytest.raises(InputError, match=r"row 1 leaves \[0, 1\], so these are no probabilities"):
        load_outputs(write(LOGITS), 4, 20, kind="probabilities")
    with pytest.raises(InputError, match=r"row 1 sums to 0.5, so these are no probabilities"):
        load_outputs(write(P / 2), 4, 20, kind="probabilities")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"none.csv: there is no such file"):
        load_outputs(tmp_path / "none.csv", 4, 20)
    for name, message in (
        ("a.json", r"outputs are read from .npz, .npy, .csv, .parquet"),
        ("a.npy", "is not a NumPy array file"),
        ("a.npz", "is not a readable .npz file"),
        ("a.parquet", "is not a readable Parquet file"),
    ):
        (tmp_path / name).write_bytes(b"rubbish")
        with pytest.raises(InputError, match=message):
            load_outputs(tmp_path / name, 4, 20)


def test_parquet_bombs_are_refused(write, monkeypatch):
    monkeypatch.setattr("jaxaudit.data.output_files.MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"unpacks to 0.0 GiB; save only the outputs"):
        load_outputs(write(table(P)), 4, 20)


def test_confidences(write):
    outputs = load_outputs(write(P), 4, 20)
    labels = np.arange(20) % 4
    confidences = confidence_of(outputs, labels)
    assert confidences.dtype == np.float32
    assert confidences.tolist() == [outputs.probabilities[i, label] for i, label in enumerate(labels)]
    with pytest.raises(InputError, match="has 20 rows but there are 19 labels"):
        confidence_of(outputs, labels[:19])


def test_outputs_are_read_only(write):
    with pytest.raises(ValueError, match="read-only"):
        load_outputs(write(P), 4, 20).probabilities[0] = 0
