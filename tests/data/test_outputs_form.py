"""Tables of outputs: the one form that is read, and that any other is refused with this form and without a cell."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.outputs_files import NAMES, P, csv, table, write_outputs

from jaxaudit.data import load_outputs, shared_record_names
from jaxaudit.errors import InputError

SECOND = P[:, 0]
"""One column: the probabilities of the second of two classes."""
TWO = ("cancer", "normal")
Z = np.round(np.log(SECOND / (1 - SECOND)), 2) + 0.001
ROW, LABEL, FOLD = np.arange(20), np.arange(20) % 2, np.arange(20) % 5
OUT_OF_ORDER = 892 - 3 * ROW


@pytest.fixture
def write(tmp_path):
    return lambda content: write_outputs(tmp_path, content)


def european(values, header=None, index=None, separator=";"):
    cells = csv(values, None, index=index).replace(",", separator).replace(".", ",")
    return cells if header is None else f"{header}\n{cells}"


def lines(values, form="%.17f"):
    return "".join(" ".join(form % number for number in np.atleast_1d(row)) + "\n" for row in values)


MANY = {
    "named": csv(P, "ant,bee,cat,dog"),
    "numbered": csv(P, "p_0,p_1,p_2,p_3"),
    "numbered, in another order": csv(P[:, ::-1], "p_3,p_2,p_1,p_0"),
    "without a header": csv(P),
    "pandas with its index": csv(P, ",ant,bee,cat,dog", index=lambda row: row),
    "numbers of people": csv(P, "PassengerId,ant,bee,cat,dog", index=lambda row: 892 - 3 * row),
    "names of people behind": csv(P, "ant,bee,cat,dog").replace("\n", ",x.png\n").replace("dog,x.png", "dog,file"),
    "names without a header": csv(P, index=lambda row: f"scan{row}.png"),
    "numbers without a header": csv(P, index=lambda row: row),
    "write.csv2": european(P, ";ant;bee;cat;dog", index=lambda row: row + 1),
    "semicolons without a header": european(P),
    "tabs": european(P, separator="\t"),
    "Parquet": table(P),
    "pandas": pa.Table.from_pydict(
        {name: P[:, k] for k, name in enumerate(NAMES)} | {"__index_level_0__": range(7, 27)}
    ),
    "a text in Parquet behind": pa.table(
        {f"p_{k}": P[:, k] for k in range(4)} | {"file": [f"{i}.png" for i in range(20)]}
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_the_form_of_many_classes(write, name):
    outputs = load_outputs(write(MANY[name]), NAMES, 20)
    assert outputs.kind == "probabilities"
    np.testing.assert_allclose(outputs.values, P, atol=1e-15)
    assert outputs.reading[0] == "probabilities of 4 classes"
    further = any(word in name for word in ("people", "names", "numbers", "behind", "pandas", "csv2"))
    assert any("left out" in note or "not used" in note for note in outputs.reading[1:]) == further


ONE = {
    "without a header": csv(SECOND),
    "its class": csv(SECOND, "normal"),
    "its number": csv(SECOND, "p_1"),
    "the other class": csv(1 - SECOND, "cancer"),
    "the other class, numbered": csv(1 - SECOND, "p_0"),
    "the other class beside numbers": csv(1 - SECOND, "id,cancer", index=lambda row: 892 - 3 * row),
    "numbers behind": csv(np.c_[SECOND, ROW], "p_1,id"),
    "numbers that are none of the rows'": csv(np.c_[SECOND, OUT_OF_ORDER], "p_1,Id"),
    "names": csv(SECOND, "file,p_1", index=lambda row: f"{row}.png"),
    "numbers in Parquet": pa.table({"p_1": SECOND, "row": ROW}),
    "two columns": csv(np.c_[1 - SECOND, SECOND]),
    "two columns, named": csv(np.c_[SECOND, 1 - SECOND], "normal,cancer"),
}


@pytest.mark.parametrize("name", ONE)
def test_the_form_of_two_classes(write, name):
    outputs = load_outputs(write(ONE[name]), TWO, 20)
    assert outputs.kind == "probabilities"
    np.testing.assert_allclose(outputs.probabilities[:, 1], SECOND, atol=1e-7)
    assert ("'cancer', as its header says" in outputs.reading[0]) == name.startswith("the other")


def test_classes_that_are_numbers(write):
    second = np.array([0.2, 0.4, 0.6, 0.8])
    for header in ("1", "p_1"):
        outputs = load_outputs(write(csv(second, header)), ("0", "1"), 4)
        np.testing.assert_allclose(outputs.probabilities[:, 1], second, atol=1e-7)
    # p_1 may be the first of classes that are numbered from 1: only their names are read, which need no order.
    names, values = ("1", "2", "10"), np.stack([second, 0.25 * (1 - second), 0.75 * (1 - second)], axis=1)
    np.testing.assert_allclose(load_outputs(write(csv(values, "10,1,2")), names, 4).values, values[:, [1, 2, 0]])
    for header in ("p_0,p_1,p_2", "p_1,p_2,p_10", "010,001,002"):
        with pytest.raises(InputError, match="under the header 1,2,10 in any order"):
            load_outputs(write(csv(values, header)), names, 4)


def test_a_first_row_of_outputs_that_reads_like_class_names_is_data(write):
    text = "0,1\n0.5,0.5\n0.25,0.75\n"
    assert load_outputs(write(text), ("0", "1"), 3).probabilities.tolist() == [[0, 1], [0.5, 0.5], [0.25, 0.75]]
    assert load_outputs(write(text), ("0", "1"), 2).probabilities.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert load_outputs(write(text), ("1", "0"), 2).probabilities.tolist() == [[0.5, 0.5], [0.75, 0.25]]


REFUSED = {
    "blanks": lines(P),
    "a comment": "# " + csv(P, "ant,bee,cat,dog"),
    "decimal commas in quotes": "\n".join(",".join(f'"{p:.17f}"'.replace(".", ",") for p in row) for row in P) + "\n",
    "percent signs": csv(100 * P).replace(",", "%,").replace("\n", "%\n"),
    "other case": csv(P, "Ant,BEE,cat,dog"),
    "prefixes": csv(P, "prob_ant,prob_bee,prob_cat,prob_dog"),
    "numbers of pandas": csv(P, "0,1,2,3"),
    "other names": csv(P, "w,x,y,z"),
    "some names": csv(P, "ant,bee,cat,cow"),
    "a name twice": csv(P, "ant,bee,cat,cat"),
    "no column for a class": csv(P[:, :3], "ant,bee,cat"),
    "two further columns": csv(np.c_[P, ROW, OUT_OF_ORDER], "ant,bee,cat,dog,id,person"),
    "a label": csv(np.c_[P, LABEL], "ant,bee,cat,dog,label"),
    "rows out of order": csv(P, "id,ant,bee,cat,dog", index=lambda row: 19 - row),
    "other numbers without a header": csv(P, index=lambda row: 892 - 3 * row),
    "an index among classes": csv(np.c_[ROW, 4 * P[:, :3] - 2]),
    "a class of text": table(P).set_column(1, "bee", pa.array([f"no number {row}" for row in range(20)])),
    "an array with an index": np.c_[ROW, P],
}
REFUSED_OF_TWO = {
    "another name": csv(SECOND, "probability"),
    "a name with a class in it": csv(SECOND, "not_normal"),
    "0 of pandas": csv(SECOND, "0"),
    "classes in words": csv(np.c_[1 - SECOND, SECOND], "P(cancer),P(normal)"),
    "p,fold": csv(np.c_[SECOND, FOLD], "p,fold"),
    "id,label,p": csv(np.c_[ROW, LABEL, SECOND], "id,label,p"),
    "an index, without a header": csv(np.c_[SECOND, ROW]),
    "labels, without a header": csv(np.c_[LABEL, Z]),
    "array with an index": np.c_[SECOND, ROW],
    "Parquet": pa.table({"label": LABEL, "logit": Z}),
    "decimal commas": "".join(f"0,{3512 + 7 * row}\n" for row in ROW),
    "decimal commas under a name": "normal\n" + "".join(f"0,{3512 + 7 * row}\n" for row in ROW),
    "a percentage of each": "".join(f"{row},{100 - row}\n" for row in ROW),
    "percent signs": lines(100 * SECOND, "%.15f%%"),
}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_OF_TWO])
def test_another_form_is_refused_with_the_form_that_is_read(write, name):
    content, classes = (REFUSED[name], NAMES) if name in REFUSED else (REFUSED_OF_TWO[name], TWO)
    path = write(content)
    with pytest.raises(InputError) as refused:
        load_outputs(path, classes, 20)
    text = str(refused.value)
    assert not re.search(r"\d{4}|no number \d|892|scan", text)
    if not any(word in text for word in ("holds text", "Expected 1 columns")):
        assert f"under the header {','.join(classes)} or {','.join(f'p_{k}' for k in range(len(classes)))}" in text
        assert f"outputs, columns={list(classes)!r}).to_csv('out.csv', index=False)" in text


def test_the_form_of_very_many_classes_is_short(write):
    names = [f"{'class' * 20} {number}" for number in range(1000)]
    for classes, header in ((names, "...,class"), (1000, "0,1,2,...,999"), ([str(k + 1) for k in range(1000)], "1,2,")):
        with pytest.raises(InputError) as refused:
            load_outputs(write(P), classes, 20)
        assert header in str(refused.value)
        assert len(str(refused.value)) < 800


@pytest.mark.parametrize(
    ("content", "second"),
    [
        (np.c_[np.ones(20), SECOND * 1e-9], SECOND * 1e-9),
        (np.c_[np.zeros(20), Z], 1 / (1 + np.exp(-Z))),
        (csv(np.c_[FOLD, Z], "cancer,normal"), 1 / (1 + np.exp(FOLD - Z))),
        (csv(np.c_[FOLD, LABEL * 3], "cancer,normal", decimals=0), 1 / (1 + np.exp(FOLD - LABEL * 3))),
    ],
)
def test_whole_numbers_may_be_outputs(write, content, second):
    outputs = load_outputs(write(content), TWO, 20)
    np.testing.assert_allclose(outputs.probabilities[:, 1], second, atol=1e-6)


@pytest.mark.parametrize(("rows", "counted"), [(20, 19), (18, 19)])
@pytest.mark.parametrize("header", [None, "ant,bee,cat,dog", "id,ant,bee,cat,dog"])
def test_a_header_is_no_row(write, rows, counted, header):
    index = (lambda row: row) if header and header.startswith("id") else None
    with pytest.raises(InputError, match=f"has {counted} rows but the query set has {rows}"):
        load_outputs(write(csv(P[:19], header, index=index)), NAMES, rows)


def test_decimals_of_parquet_are_numbers(tmp_path):
    texts = [[f"{p:.6f}" for p in column] for column in P.T]
    columns = [pa.array(column).cast(pa.decimal128(10, 6)) for column in texts]
    parquet.write_table(pa.table(columns, names=list(NAMES)), tmp_path / "out.parquet")
    np.testing.assert_allclose(load_outputs(tmp_path / "out.parquet", NAMES, 20).values, P.round(6), rtol=1e-15)


def test_the_index_of_pandas_is_no_output(tmp_path):
    """It stands last: beside one column of probabilities it would be taken for the second class."""
    path = tmp_path / "out.parquet"
    for titles, kept in ((["p_1"], P[:, :1] / 2), (NAMES, P)):
        made = table(np.column_stack([kept, np.arange(20) + 50]), [*titles, "rec"])
        parquet.write_table(made.replace_schema_metadata({"pandas": json.dumps({"index_columns": ["rec"]})}), path)
        outputs = load_outputs(path, NAMES if len(titles) > 1 else 2, 20)
        np.testing.assert_array_equal(outputs.values, kept)
        assert any("'rec'" in note for note in outputs.reading)


def test_names_that_the_set_has_too_put_the_rows_in_order(write, tmp_path):
    """Numbers and names; rows that are counted in another order than the set's are put in its order, too."""
    wrong = np.random.default_rng(0).permutation(20)
    for names in (OUT_OF_ORDER, ROW[wrong], [f"scan{row}" for row in ROW]):
        (tmp_path / "set.csv").write_text("age,id,label\n" + "".join(f"{row},{names[row]},a\n" for row in ROW))
        shuffled = np.random.default_rng(1).permutation(20)
        content = csv(P[shuffled], "id,ant,bee,cat,dog", index=lambda row, at=shuffled, of=names: of[at[row]])
        named = pa.table({**{name: P[shuffled, k] for k, name in enumerate(NAMES)}, "id": np.array(names)[shuffled]})
        for path in (write(content), write(named)):
            records = shared_record_names(str(tmp_path / "set.csv"), path, NAMES)
            outputs = load_outputs(path, NAMES, 20, records=records)
            np.testing.assert_allclose(outputs.values, P, atol=1e-15)
            assert "rows are put in order by the names in column" in outputs.reading[1]
    # The last names are words.
    with pytest.raises(InputError, match="are not those of the query set"):
        load_outputs(write(content.replace("scan3,", "scan77,", 1)), NAMES, 20, records=records)


def test_a_column_that_two_tables_share_by_chance_names_no_records(write, tmp_path):
    (tmp_path / "set.csv").write_text("p_1,sex,label\n" + "".join(f"{row},{row % 2},a\n" for row in ROW))
    path = write(csv(SECOND, "sex,p_1", index=lambda row: f"s{row}"))
    assert shared_record_names(str(tmp_path / "set.csv"), path, TWO) is None
    # Rows that are counted from 0 are left out, although the set has numbers of its own.
    (tmp_path / "set.csv").write_text("id,label\n" + "".join(f"{100 + row},a\n" for row in ROW))
    path = write(csv(SECOND, "id,p_1", index=lambda row: row))
    records = shared_record_names(str(tmp_path / "set.csv"), path, TWO)
    outputs = load_outputs(path, TWO, 20, records=records)
    np.testing.assert_allclose(outputs.values[:, 0], SECOND, atol=1e-15)
    assert any("numbers the rows" in note for note in outputs.reading)


def test_logits_of_the_other_class_change_sign_and_printed_probabilities_keep_their_precision(write):
    logits = np.log(SECOND / (1 - SECOND))
    outputs = load_outputs(write(csv(-logits, "cancer")), TWO, 20)
    np.testing.assert_array_equal(outputs.values, load_outputs(write(csv(logits, "normal")), TWO, 20).values)
    assert outputs.kind == "logits"
    rounded = SECOND.round(3)
    first, second = load_outputs(write(csv(1 - rounded, "cancer", 3)), TWO, 20), load_outputs(write(rounded), TWO, 20)
    assert first.decimals == second.decimals == 3
    np.testing.assert_array_equal(first.probabilities, second.probabilities)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.array([0.5, 97.0, 12.0, 33.0]), ("percentages (divide them by 100)", "logits of one sign")),
        (np.array([0.0, 255.0, 12.0, 133.0]), ("8-bit probabilities", "logits of one sign")),
        (np.array([-0.5, -7.0, -0.01, -3.0]), ("logarithms of probabilities", "logits of one sign")),
        ("37,63\n37,63\n12,88\n99,17\n", ("two whole numbers", "decimal comma")),
        ("0,1\n1,0\n0,1\n1,0\n", ("predicted labels",)),
    ],
)
def test_two_readings_are_both_told(write, content, said):
    with pytest.raises(InputError) as refused:
        load_outputs(write(content), ("0", "1"), 4)
    assert [words for words in said if words not in str(refused.value)] == []


def votes(dtype):
    """The shares of votes of a forest of 100 trees, of which some are 0, and their logarithms."""
    shares = np.array([np.random.default_rng(row).multinomial(100, p) for row, p in enumerate(P)]) / 100
    with np.errstate(divide="ignore"):
        return shares, np.log(shares).astype(dtype)


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "auto"), ("float64", "logits")])
def test_the_logarithm_of_zero_is_a_probability_of_zero(write, dtype, kind):
    shares, logs = votes(dtype)
    assert np.isinf(logs).any()
    outputs, same = load_outputs(write(logs), 4, 20, kind), load_outputs(write(shares), 4, 20)
    assert (outputs.kind, outputs.decimals) == ("probabilities", same.decimals)
    assert list(outputs.reading) == ([] if kind == "logits" else ["logarithms of probabilities of 4 classes"])
    np.testing.assert_array_equal(outputs.probabilities, same.probabilities)
    printed = csv(votes("float64")[1])
    np.testing.assert_array_equal(load_outputs(write(printed), 4, 20).probabilities, same.probabilities)


@pytest.mark.parametrize(("place", "number"), [((3, 1), np.nan), ((3, 1), np.inf), ((3, slice(None)), -np.inf)])
def test_other_infinite_numbers_are_refused(write, place, number):
    _, logs = votes("float64")
    logs[place] = number
    with pytest.raises(InputError):
        load_outputs(write(logs), 4, 20)
    with pytest.raises(InputError, match="NaN or infinite"):
        load_outputs(write(logs[:, 0]), 2, 20)
