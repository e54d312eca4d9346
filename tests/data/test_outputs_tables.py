"""Tables of outputs as other tools write them: read as the same numbers, or refused with both readings."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.outputs_files import NAMES, P, csv, write_outputs

from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.errors import InputError

SECOND = P[:, 0]
"""One column: the probabilities of the second of two classes."""
TWO = ("cancer", "normal")


@pytest.fixture
def write(tmp_path):
    return lambda content: write_outputs(tmp_path, content)


def european(values, header=None, index=None, separator=";"):
    return (
        csv(values, None, index=index).replace(",", separator).replace(".", ",")
        if header is None
        else (header + "\n" + european(values, None, index, separator))
    )


def lines(values, form="%.17f"):
    return "".join(" ".join(form % number for number in np.atleast_1d(row)) + "\n" for row in values)


MANY = {
    "np.savetxt": lines(P, "%.18e"),
    "padded": lines(P, "%25.17f"),
    "a commented header": "# ant bee cat dog\n" + lines(P),
    "write.table": '"ant" "bee" "cat" "dog"\n'
    + "".join(f'"{row}" {line}\n' for row, line in enumerate(lines(P).splitlines(), 1)),
    "write.table, decimal commas": lines(P).replace(".", ","),
    "write.csv2": european(P, ";ant;bee;cat;dog", index=lambda row: row + 1),
    "semicolons without a header": european(P),
    "tabs": european(P, separator="\t"),
    "quoted decimal commas": "\n".join(",".join(f'"{p:.17f}"'.replace(".", ",") for p in row) for row in P) + "\n",
    "percent signs": csv(100 * P, "ant,bee,cat,dog", decimals=15)
    .replace(",", "%,")
    .replace("\n", "%\n")
    .replace("ant%,bee%,cat%,dog%", "ant,bee,cat,dog"),
    "European percent signs": european(100 * P).replace(";", "%;").replace("\n", "%\n"),
    "a comment before commas": "# " + csv(P, "ant,bee,cat,dog"),
    "other case": csv(P[:, ::-1], "Dog,CAT,Bee,ant"),
    "wrapped names": csv(P[:, ::-1], "P(dog),P(cat),P(bee),P(ant)"),
    "prefixed names": csv(P[:, ::-1], "prob_dog,prob_cat,prob_bee,prob_ant"),
    "numbers of people": csv(P, "PassengerId,ant,bee,cat,dog", index=lambda row: 892 - 3 * row),
    "numbers without a header": csv(P, index=lambda row: 892 - 3 * row),
    "text behind": "".join(f"{line},scan{row}\n" for row, line in enumerate(csv(P).splitlines())),
    "pandas": pa.Table.from_pydict(
        {name: P[:, k] for k, name in enumerate(NAMES)} | {"__index_level_0__": range(7, 27)}
    ),
    "a text in Parquet behind": pa.table(
        {f"p{k}": P[:, k] for k in range(4)} | {"file": [f"{i}.png" for i in range(20)]}
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_the_same_numbers_in_another_form(write, name):
    outputs = load_outputs(write(MANY[name]), NAMES, 20)
    assert outputs.kind == "probabilities"
    np.testing.assert_allclose(outputs.values, P, atol=1e-15)
    assert outputs.reading[0] == "probabilities of 4 classes"


def test_the_index_of_pandas_is_known_by_its_metadata(tmp_path):
    made = pa.table({"p": SECOND, "patient": np.arange(100, 120)})
    made = made.replace_schema_metadata({b"pandas": b'{"index_columns": ["patient"]}'})
    parquet.write_table(made, tmp_path / "out.parquet")
    outputs = load_outputs(tmp_path / "out.parquet", 2, 20)
    np.testing.assert_array_equal(outputs.values[:, 0], SECOND)
    assert any("'patient'" in note for note in outputs.reading)


def test_decimals_of_parquet_are_numbers(tmp_path):
    texts = [[f"{p:.6f}" for p in column] for column in P.T]
    columns = [pa.array(column).cast(pa.decimal128(10, 6)) for column in texts]
    parquet.write_table(pa.table(columns, names=list(NAMES)), tmp_path / "out.parquet")
    np.testing.assert_allclose(load_outputs(tmp_path / "out.parquet", NAMES, 20).values, P.round(6), rtol=1e-15)


ONE = {
    "decimal commas": lines(SECOND).replace(".", ","),
    "decimal commas under a name": "p\n" + lines(SECOND).replace(".", ","),
    "quoted decimal commas": "".join(f'"{p:.17f}"\n'.replace(".", ",") for p in SECOND),
    "quoted name": '"x"\n' + lines(SECOND).replace(".", ","),
    "pandas": csv(SECOND, ",probability", index=lambda row: 892 - 3 * row),
    "id": csv(SECOND, "id,prob", index=lambda row: 892 - 3 * row),
    "PassengerId": csv(SECOND, "PassengerId,Survived", index=lambda row: 892 - 3 * row),
    "without a header": csv(SECOND, index=lambda row: 892 - 3 * row),
    "names": csv(SECOND, "file,p", index=lambda row: f"{row}.png"),
    "its class": csv(SECOND, "normal"),
    "the other class": csv(1 - SECOND, "cancer"),
    "the other class, wrapped": csv(1 - SECOND, "id,P(cancer)", index=lambda row: row),
    "the other class in Parquet": pa.table({"cancer": 1 - SECOND}),
    "percent signs": lines(100 * SECOND, "%.15f%%"),
}


@pytest.mark.parametrize("name", ONE)
def test_one_column_of_two_classes(write, name):
    outputs = load_outputs(write(ONE[name]), TWO, 20)
    assert outputs.kind == "probabilities"
    np.testing.assert_allclose(outputs.probabilities[:, 1], SECOND, atol=1e-7)
    assert ("'cancer', as its header says" in outputs.reading[0]) == name.startswith("the other")


def test_logits_of_the_other_class_change_sign_and_no_digit(write):
    logits = np.log(SECOND / (1 - SECOND))
    outputs = load_outputs(write(csv(-logits, "cancer")), TWO, 20)
    np.testing.assert_array_equal(outputs.values, load_outputs(write(csv(logits, "normal")), TWO, 20).values)
    assert outputs.kind == "logits"


def test_printed_probabilities_of_the_other_class_keep_their_precision(write):
    rounded = SECOND.round(3)
    first, second = load_outputs(write(csv(1 - rounded, "cancer", 3)), TWO, 20), load_outputs(write(rounded), TWO, 20)
    assert first.decimals == second.decimals == 3
    np.testing.assert_array_equal(first.probabilities, second.probabilities)


def test_a_short_decimal_comma_is_read_where_no_two_whole_numbers_are_written_so(write):
    outputs = load_outputs(write("0,5\n0,25\n1\n0,05\n"), 2, 4)
    assert outputs.values[:, 0].tolist() == [0.5, 0.25, 1, 0.05]


def test_probabilities_of_some_decimals_are_no_class_with_a_percentage(write):
    outputs = load_outputs(write("0,3512\n0,9200\n1,0000\n0,6411\n"), 2, 4)
    assert outputs.values[:, 0].tolist() == [0.3512, 0.92, 1, 0.6411]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("0,35\n0,92\n0,81\n0,64\n", ("two whole numbers", "decimal comma")),
        ("0,255\n0,92\n0,181\n0,64\n", ("two whole numbers", "decimal comma")),
        ("0,3512\n1,9200\n0,8101\n0,6411\n", ("two whole numbers", "decimal comma")),
        ("0,1000\n0,1000\n0,1000\n0,1000\n", ("two whole numbers", "decimal comma")),
        ("37,63\n37,63\n12,88\n99,17\n", ("two whole numbers", "decimal comma")),
        (np.array([0.5, 97.0, 12.0, 33.0]), ("percentages: divide them by 100", "logits of one sign")),
        (np.array([0.0, 255.0, 12.0, 133.0]), ("8-bit probabilities", "logits of one sign")),
        (np.array([0.5, 970.0, 12.0, 33.0]), ("another scale", "logits of one sign")),
        (np.array([-0.5, -7.0, -0.01, -3.0]), ("logarithms of probabilities", "logits of one sign")),
        ("0\n0.2\n0.4\n0.6\n0.8\n", ("is headed '0'", "p_0 or p_1")),
        (",0\n" + csv([0.2, 0.4, 0.6, 0.8], index=lambda row: 7 * row), ("is headed '0'", "p_0 or p_1")),
    ],
)
def test_two_readings_are_both_told(write, content, said):
    with pytest.raises(InputError) as refused:
        load_outputs(write(content), ("0", "1"), 4)
    assert [words for words in said if words not in str(refused.value)] == []


def test_the_way_out_of_two_readings(write):
    one_sign = np.array([0.5, 97.0, 12.0, 33.0])
    assert load_outputs(write(one_sign), 2, 4, kind="logits").kind == "logits"
    assert load_outputs(write(one_sign / 100), 2, 4).kind == "probabilities"
    outputs = load_outputs(write("p_0\n0.2\n0.4\n0.6\n0.8\n"), ("0", "1"), 4)
    np.testing.assert_allclose(outputs.probabilities[:, 0], [0.2, 0.4, 0.6, 0.8], atol=1e-7)
    outputs = load_outputs(write("1\n0.2\n0.4\n0.6\n0.8\n"), ("0", "1"), 4)
    np.testing.assert_allclose(outputs.probabilities[:, 1], [0.2, 0.4, 0.6, 0.8], atol=1e-7)


def test_hard_labels_beside_numbers_of_records_are_no_decimal_commas(write):
    for content in ("0,1\n1,0\n2,1\n3,1\n", "7,1\n9,0\n2,1\n3,1\n", "0,1\n1,0\n0,1\n1,0\n"):
        with pytest.raises(InputError, match="predicted labels"):
            load_outputs(write(content), 2, 4)


def test_a_class_without_a_column_is_never_predicted(write):
    names = ("0", "1", "2", "3", "4")
    wide = np.insert(P, 2, 0, axis=1)
    for content in (csv(P, "0,1,3,4"), csv(P[:, ::-1], "4,3,1,0"), csv(P, ",0,1,3,4", index=lambda row: row)):
        outputs = load_outputs(write(content), names, 20)
        np.testing.assert_allclose(outputs.values, wide, atol=1e-15)
        assert outputs.absent == (2,)
        assert any("no column for '2'" in note for note in outputs.reading)
    outputs = load_outputs(write(pa.table({name: P[:, k] for k, name in enumerate("0134")})), names, 20)
    np.testing.assert_array_equal(outputs.values, wide)
    with pytest.raises(InputError, match="has 4 columns"):
        load_outputs(write(P), names, 20)
    with pytest.raises(InputError, match="has logits, but no column"):
        load_outputs(write(csv(4 * P - 2, "0,1,3,4")), names, 20)


def votes(dtype):
    """The shares of votes of a forest of 100 trees, of which some are 0, and their logarithms."""
    shares = np.array([np.random.default_rng(row).multinomial(100, p) for row, p in enumerate(P)]) / 100
    with np.errstate(divide="ignore"):
        return shares, np.log(shares).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["auto", "logits"])
def test_the_logarithm_of_zero_is_a_probability_of_zero(write, dtype, kind):
    shares, logs = votes(dtype)
    assert np.isinf(logs).any()
    outputs, same = load_outputs(write(logs), 4, 20, kind), load_outputs(write(shares), 4, 20)
    assert (outputs.kind, outputs.decimals) == ("probabilities", same.decimals)
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (P, ["probabilities of 4 classes"]),
        (np.log(P), ["logarithms of probabilities of 4 classes"]),
        (4 * P - 2, ["logits of 4 classes"]),
        (csv(P, "ant,bee,cat,dog"), ["probabilities of 4 classes"]),
    ],
)
def test_the_reading_is_told(write, content, words):
    assert list(load_outputs(write(content), NAMES, 20).reading) == words
    assert list(load_outputs(write(content), NAMES, 20, kind="logits").reading) == []


def test_names_of_other_things_than_classes_are_told(write):
    assert "not named after the classes" in load_outputs(write(csv(P, "w,x,y,z")), NAMES, 20).reading[1]
