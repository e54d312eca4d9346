"""Which columns of a file of outputs are the classes: by their titles, or by what is in the others."""

import numpy as np
import pyarrow as pa
import pytest
from support.outputs_files import NAMES, P, csv, write_outputs

from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.errors import InputError

SECOND = P[:, 0]
"""One column: the probabilities of the second of two classes."""
TWO = ("cancer", "normal")
Z = np.round(np.log(SECOND / (1 - SECOND)), 2) + 0.001
ROW, LABEL, FOLD = np.arange(20), np.arange(20) % 2, np.arange(20) % 5
FORMS_OF_NO = [
    *("no_prob", "pred_no", ".pred_no", "p_0", "p0", "class0", "class_0", "no.p", "prob.no", "class_no_prob", "P(no)"),
    *("probability of no", "Score: NO"),
]


@pytest.fixture
def write(tmp_path):
    return lambda content: write_outputs(tmp_path, content)


NO_CLASS = {
    "p,fold": csv(np.c_[SECOND, FOLD], "p,fold"),
    "fold,p": csv(np.c_[FOLD, SECOND], "fold,p"),
    "logit,label": csv(np.c_[Z, LABEL], "logit,label"),
    "label,logit": csv(np.c_[LABEL, Z], "label,logit"),
    "y_true,logit": csv(np.c_[LABEL, Z], "y_true,logit"),
    "one of two is a class": csv(np.c_[Z, FOLD], "normal,fold"),
    "id,label,p": csv(np.c_[ROW, LABEL, SECOND], "id,label,p"),
    "id,label": csv(np.c_[ROW, LABEL], "id,label"),
    "label,id": csv(np.c_[LABEL, ROW], "label,id"),
    "no header": csv(np.c_[SECOND, ROW]),
    "npy": np.c_[SECOND, ROW],
    "npy of labels": np.c_[LABEL, Z],
    "Parquet": pa.table({"label": LABEL, "logit": Z}),
    "lists in Parquet": pa.table({"out": np.c_[LABEL, Z].tolist()}),
}


@pytest.mark.parametrize("name", NO_CLASS)
def test_an_index_a_fold_or_a_label_is_no_class(write, name):
    with pytest.raises(InputError):
        load_outputs(write(NO_CLASS[name]), TWO, 20)


@pytest.mark.parametrize("content", [csv(np.c_[900 - 7 * ROW, Z, -Z]), np.c_[ROW, Z, -Z], np.c_[Z, -Z, ROW]])
def test_an_index_is_none_of_several_classes(write, content):
    with pytest.raises(InputError, match="whole numbers"):
        load_outputs(write(content), ("ant", "bee", "cat"), 20)


@pytest.mark.parametrize(
    "content",
    [
        csv(np.c_[SECOND, ROW], "p,id"),
        csv(np.c_[SECOND, 892 - 3 * ROW], "p,Id"),
        np.c_[ROW, SECOND],
        pa.table({"p": SECOND, "row": ROW}),
    ],
)
def test_an_index_is_left_out_wherever_it_stands(write, content):
    outputs = load_outputs(write(content), TWO, 20)
    np.testing.assert_allclose(outputs.values[:, 0], SECOND, atol=1e-15)
    assert any("is left out" in note for note in outputs.reading)


@pytest.mark.parametrize(
    ("content", "second"),
    [
        (np.c_[np.ones(20), SECOND * 1e-9], SECOND * 1e-9),
        (np.c_[np.log(SECOND) - 30, np.zeros(20)], np.ones(20)),
        (np.c_[np.zeros(20), Z], 1 / (1 + np.exp(-Z))),
        (csv(np.c_[FOLD, Z], "cancer,normal"), 1 / (1 + np.exp(FOLD - Z))),
        (np.c_[FOLD, LABEL * 3], 1 / (1 + np.exp(FOLD - LABEL * 3))),
    ],
)
def test_whole_numbers_may_be_outputs(write, content, second):
    outputs = load_outputs(write(content), TWO, 20)
    np.testing.assert_allclose(outputs.probabilities[:, 1], second, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "titles"),
    [
        (("no", "yes"), FORMS_OF_NO),
        (("0", "1"), ["p0", "class0", "class_0", ".pred_0", "0_prob", "p_0"]),
        (None, ["p0", "class_0"]),
        (("1", "2"), ["p1", ".pred_1"]),
        (("1", "2"), ["001", "1.0", "01.0", "p_01"]),
    ],
)
def test_a_title_names_its_class_in_many_forms(write, classes, titles):
    for title in titles:
        outputs = load_outputs(write(csv(1 - SECOND, title)), classes or 2, 20)
        np.testing.assert_allclose(outputs.probabilities[:, 1], SECOND, atol=1e-7, err_msg=title)


def test_columns_of_classes_with_zeros_before_their_numbers_are_in_any_order(write):
    table = np.stack([SECOND, 0.25 * (1 - SECOND), 0.75 * (1 - SECOND)], axis=1)
    outputs = load_outputs(write(csv(table, "010,001,002")), ("1", "2", "10"), 20)
    np.testing.assert_allclose(outputs.values, table[:, [1, 2, 0]])
    # Classes that differ in these zeros alone are told apart by them.
    outputs = load_outputs(write(csv(table[:, :2] / table[:, :2].sum(axis=1, keepdims=True), "1,01")), ("01", "1"), 20)
    np.testing.assert_allclose(outputs.values[:, 1], table[:, 0] / table[:, :2].sum(axis=1))


@pytest.mark.parametrize("title", ["not_no", "no of run", "yes-model", "1 - no"])
def test_the_name_of_a_class_in_words_is_refused(write, title):
    with pytest.raises(InputError, match=r"'no'.*'yes'|'yes'.*'no'"):
        load_outputs(write(csv(SECOND, title)), ("no", "yes"), 20)


@pytest.mark.parametrize("titles", ["yes_prob,no_prob", ".pred_yes,.pred_no", "p1,p0", "class_1,class_0", "p2,p1"])
def test_two_titles_are_put_in_the_order_of_the_classes(write, titles):
    both = np.c_[SECOND, 1 - SECOND]
    outputs = load_outputs(write(csv(both, titles)), ("no", "yes"), 20)
    np.testing.assert_allclose(outputs.values, both[:, ::-1], atol=1e-15)
    with pytest.raises(InputError, match="second and the first"):
        load_outputs(write(csv(both, "yes of run,no of run")), ("no", "yes"), 20)


def test_a_series_of_pandas_has_a_header_without_a_name(write):
    outputs = load_outputs(write(csv(SECOND, "0")), ("no", "yes"), 20)
    np.testing.assert_allclose(outputs.values[:, 0], SECOND, atol=1e-15)


@pytest.mark.parametrize("classes", [("1", "2", "3", "4"), NAMES])
def test_columns_numbered_by_pandas_are_in_their_order(write, classes):
    outputs = load_outputs(write(csv(P, "0,1,2,3")), classes, 20)
    np.testing.assert_allclose(outputs.values, P, atol=1e-15)
    assert "its columns are numbered from 0: taken in their order" in outputs.reading


@pytest.mark.parametrize("header", ["no,yes,\n", ",no,yes,\n", ""])
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_delimiter_at_the_end_of_each_line_makes_no_column(write, header, separator):
    both = np.c_[1 - SECOND, SECOND]
    index = (lambda row: row) if header.startswith(",") else None
    content = header + "".join(f"{line},\n" for line in csv(both, index=index).splitlines())
    outputs = load_outputs(write(content.replace(",", separator)), ("no", "yes"), 20)
    np.testing.assert_allclose(outputs.values, both, atol=1e-15)


def test_a_column_of_nan_is_no_empty_column(write):
    with pytest.raises(InputError, match="NaN"):
        load_outputs(write("0.1,nan\n0.2,nan\n0.3,nan\n"), ("no", "yes"), 3)
