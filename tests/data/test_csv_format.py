"""CSV files: how they are written, what is read of them, and what is refused before room is made for it."""

import time
from pathlib import Path

import numpy as np
import pytest

from jaxaudit.data import encode_labels, load, load_outputs, load_scores, load_table
from jaxaudit.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_csv(content, encoding="utf-8"):
        path = tmp_path / "a.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write_csv


USUAL = [["âge", "city", "label"], ["1", "Zürich", "n"], ["2", "Bern", "p"]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_delimiters_are_found(write, delimiter, encoding):
    path = write("\r\n".join(delimiter.join(line) for line in USUAL) + "\r\n", encoding)
    table = load_table(str(path))
    assert [(column.name, column.categories) for column in table.columns] == [
        ("âge", ("1", "2")),
        ("city", ("Bern", "Zürich")),
    ]
    words = {";": "semicolons", "\t": "tabs"}
    assert table.notes == ((f"it is read as {words[delimiter]} between cells",) if delimiter != "," else ())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1", "cp1252"])
def test_other_encodings_are_refused(write, encoding):
    with pytest.raises(InputError, match=r"is not text in UTF-8.*pandas"):
        load_table(str(write("\n".join(",".join(line) for line in USUAL), encoding)))


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        ("a;b;label\n1,5;2,5;x\n0,5;3;y\n", [[1.5, 2.5], [0.5, 3]]),
        ("a\tb\tlabel\n1,5\t-2,5e3\tx\n2\t3\ty\n", [[1.5, -2500], [2, 3]]),
        ("a,b,label\n1.5,2e1,x\n.5,3,y\n", [[1.5, 20], [0.5, 3]]),
    ],
)
def test_what_stands_between_cells_and_in_numbers(write, content, numbers):
    assert load(str(write(content))).inputs.tolist() == numbers
    cells = "\n".join(line.replace("label", "c").rsplit(content[1], 1)[0] for line in content.splitlines()[1:])
    assert load_outputs(write(cells + "\n"), 2, 2, "logits").values.tolist() == numbers


def test_decimal_commas_are_numbers(write):
    # Where both signs stand, nobody knows what either is.
    with pytest.raises(InputError, match="row 1, column 1 holds text"):
        load_outputs(write("0,5;1,5\n1,5;0,5\n1.234;3\n"), 2, 3)
    people = load_table(str(write("a;label\n" + "".join(f"{i},5;{'np'[i % 2]}\n" for i in range(12)))))
    assert people.values[:, 0].tolist() == [i + 0.5 for i in range(12)]
    assert people.notes == ("it is read as semicolons between cells, decimal commas",)


READERS = [
    lambda path: load(str(path)),
    lambda path: load_table(str(path)),
    lambda path: load_outputs(path, 2, 3),
]


@pytest.mark.parametrize(
    "content",
    [
        b"," * 2**20,
        b"a,b\n" + b"," * 2**20 + b"\n",
        b'"' * 2**20,
        b"x" * 2**22,
        b"a\n" + b'"' + b"x" * 2**22,
        b"1" * 2**17 + b"x,y\n1,2\n",
        b"\xff\xfe" + b",\0" * 2**20,
        b"\0" * 2**10,
        b"a,b\n\xff\xfe\n",
        bytes(range(256)),
    ],
)
def test_bombs_are_refused_quickly(write, content):
    path, start = write(content), time.process_time()
    for reader in READERS:
        with pytest.raises(InputError) as raised:
            reader(path)
        assert len(str(raised.value)) < 500
    assert time.process_time() - start < 3 * len(READERS)


SECRET = "Grubers-Secret"


@pytest.mark.parametrize(
    "content",
    [
        f"a,y\n{SECRET},1\n{SECRET}\n",
        f"a,y\n1,{SECRET}\n{SECRET},0\n",
        f"39,{SECRET},y\n40,{SECRET},n\n",
        f"{SECRET},Rome\n{SECRET},Rome\nx,Bern\n",
        f"a,y\n{SECRET},\n1,2\n",
        f'a,y\n"{SECRET},2\n1,2\n',
        f"a,label\n1,{SECRET}\n1,0.5\n2,\n",
        "a,label\n1,0.123\n1,0.5\n",
        "a,label\n1,9000123\n1,9000124\n",
        f"a,y\n{SECRET},1\n1e999,0\n",
        f"a,y\n\x00{SECRET},1\n",
    ],
)
def test_no_message_says_what_stands_in_a_record(write, content):
    path = write(content)
    for reader in (
        *READERS,
        lambda path: load_table(str(path), label="y"),
        lambda path: load(str(path), label="y"),
    ):
        try:
            reader(path)
        except InputError as error:
            assert not any(cell in str(error) for cell in (SECRET, "39,", "Rome", "0.123", "9000123"))  # noqa: PT017


@pytest.mark.parametrize("cell", ["1_0", "0.2_5"])
def test_what_python_alone_takes_for_a_number_is_text(cell: str, tmp_path: Path):
    outputs, scores = tmp_path / "outputs.csv", tmp_path / "scores.csv"
    outputs.write_text(f"a,b\n.5,.5\n.25,{cell}\n")
    scores.write_text(f"set,target.loss\nquery,{cell}\nholdout,2\n")
    for read in (lambda: load_outputs(outputs, ("a", "b"), 2), lambda: load_scores(scores)):
        with pytest.raises(InputError):
            read()
    assert encode_labels(np.array([cell, "7"]), None, "labels")[1] == tuple(sorted((cell, "7")))
