"""`jaxaudit deal` of tables: what it writes has the source's columns and cells, and is read as the source is."""

import codecs
import csv
import hashlib
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.cli_runs import jaxaudit, refused

from jaxaudit.data import Examples, groups_in_file, load, refuse_read_otherwise
from jaxaudit.errors import InputError

COUNT, SIZE = 300, 5
ROLES = ("query", "members", "holdout")
SHARES = ("--members-share", "0.4", "--holdout-share", "0.3", "--seed", str(2**60 + 3))
HEADER = ["id", '"age, ""years"""', "patient", " bp ", "outcome", "w"]
NAMES = ('age, "years"', "bp", "w")
OUTCOME = ("--label", "outcome", "--drop", "id")


def cells() -> list[list[str]]:
    """Numbers as people write them, texts in quotation marks, groups; and a label that is not the last column."""
    values = np.random.default_rng(0).normal(size=(COUNT, 3))
    return [
        [
            str(row),
            f'"{first:+.3f}"',
            f" P-{row // SIZE}x",
            f"{second:08.2f} ",
            ("no", '"yes"', "yes")[row % 3],
            f"{third:.2E}",
        ]
        for row, (first, second, third) in enumerate(values.tolist())
    ]


def write_table(path: str, mark: bytes = b"", ending: str = "\r\n", sign: str = ",") -> None:
    lines = [sign.join(line) for line in (HEADER, *cells())]
    Path(path).write_bytes(mark + (ending.join(lines) + ending).encode())


def rows_of(path: str, sign: str = ",") -> list[list[str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=sign))


def deal(*words: str, data: str = "all.csv", out: str = "deal") -> tuple[dict[str, Any], str]:
    done = jaxaudit("deal", data, *words, "--out", out)
    assert done.code == 0, done.err
    return json.loads(Path(out, "deal.json").read_text()), done.out


def files_with_patients(folder: str) -> list[str]:
    """Whole names: two letters of one stand by chance in some kilobytes of any binary file."""
    return [path.name for path in Path(folder).iterdir() if re.search(rb"P-\d+x", path.read_bytes())]


def rows_in(source: Examples, part: Examples) -> list[int]:
    """Where the records of a part stand in the source, each of which is there once."""
    place = {record.tobytes(): row for row, record in enumerate(source.record_hashes)}
    assert len(place) == len(source)
    return [place[record.tobytes()] for record in part.record_hashes]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table("all.csv")
    return tmp_path


@pytest.mark.parametrize(
    ("mark", "ending", "sign"), [(b"", "\r\n", ","), (codecs.BOM_UTF8, "\n", ";"), (b"", "\n", "\t")]
)
def test_cells_and_names_are_those_of_the_source(folder: Path, mark: bytes, ending: str, sign: str) -> None:
    write_table("all.csv", mark, ending, sign)
    record, _ = deal(*OUTCOME, "--groups", "patient", *SHARES)
    source = load("all.csv", label="outcome", drop=["id"], groups=["patient"])
    whole, places = cells(), []
    for role in ROLES:
        part = load(f"deal/{role}.csv", label="outcome")
        assert (part.titles, part.class_names) == (NAMES, ("no", "yes"))
        rows = rows_in(source, part)
        np.testing.assert_array_equal(part.labels, source.labels[rows])
        assert record[role]["membership"] == hashlib.sha256(part.record_hashes.tobytes()).hexdigest()
        first, *lines = rows_of(f"deal/{role}.csv", sign)
        assert first == ["group", 'age, "years"', "bp", "outcome", "w"]
        numbers = []
        for row, (number, *line) in zip(rows, lines, strict=True):
            _, age, _, *rest = (cell.strip('"') for cell in whole[row])
            assert line == [age, *rest]
            numbers.append((row // SIZE, int(number)))
        assert len(set(numbers)) == len({group for group, _ in numbers}) == len({number for _, number in numbers})
        places += rows
    assert sorted(places) == list(range(COUNT))
    assert record["source"]["columns"] == {"inputs": list(NAMES), "label": "outcome"}


def test_a_parquet_file_is_dealt_as_parquet_files(folder: Path) -> None:
    """With the types of its columns; what no cell has, such as pandas' notes, is left out."""
    random = np.random.default_rng(1)
    places = pa.array([row % 2 for row in range(COUNT)], pa.int8())
    columns = {
        "patient": [f"P-{row // SIZE}x" for row in range(COUNT)],
        "age": random.integers(0, 99, COUNT).astype(np.int16),
        "kind": pa.DictionaryArray.from_arrays(places, ["a", "b", "P-9x"]),
        "bp": random.normal(size=COUNT).astype(np.float32),
    }
    table = pa.table(columns).replace_schema_metadata({"pandas": '{"index_columns": [], "note": "P-7x"}'})
    parquet.write_table(table, "all.parquet")
    words = ("--label", "kind", "--groups", "patient", *SHARES, "--blind")
    record, out = deal(*words, data="all.parquet")
    source = load("all.parquet", label="kind", groups=["patient"])
    for role in ROLES:
        part = parquet.read_table(f"deal/{role}.parquet")
        assert part.column_names == ["group", "age", "kind", "bp"]
        assert part.schema.types == [pa.int64(), pa.int16(), pa.string(), pa.float32()]
        rows = rows_in(source, load(f"deal/{role}.parquet", label="kind"))
        assert part.column("bp").to_pylist() == table.column("bp").take(pa.array(rows)).to_pylist()
    assert parquet.read_table("deal/challenge.parquet").column_names == ["record", "age", "bp"]
    assert record["query"]["file"] == "query.parquet"
    assert "key.json" in out
    assert not files_with_patients("deal")


def probabilities(path: str) -> np.ndarray:
    """What some model says of each row of a file, by its columns' names."""
    with Path(path).open(newline="") as file:
        first = [float(row['age, "years"']) for row in csv.DictReader(file)]
    share = 1 / (1 + np.exp(-np.array(first)))
    return np.stack([share, 1 - share], axis=1)


def answers(out: str, first: str, *more: str) -> str:
    """Outputs on these files, in a folder; of the challenge alone, the file."""
    Path(f"{out}_outputs").mkdir()
    for role in (first, *more):
        np.savetxt(f"{out}_outputs/{role}.csv", probabilities(f"{out}/{role}.csv"), delimiter=",")
    return f"{out}_outputs" if more else f"{out}_outputs/{first}.csv"


def test_the_printed_commands_work_as_they_are(folder: Path) -> None:
    """They read the same records, with the groups; also of a challenge, whose key names the files and the label."""
    words = (*OUTCOME, "--groups", "patient", *SHARES)
    _, out = deal(*words)
    deal(*words, "--blind", out="blind")
    (command,) = [line.strip() for line in out.splitlines() if line.startswith("  jaxaudit ks")]
    assert command == "jaxaudit ks --deal deal --target OUTPUTS"
    of_deal = tuple(shlex.split(command.replace("OUTPUTS", answers("deal", *ROLES)))[1:])
    for words in (of_deal, ("ks", "--deal", "blind", "--target", answers("blind", "challenge"))):
        found = jaxaudit(*words, "--json").result["provenance"]
        # They take the groups that the files have; a table has no images, and no word on them.
        assert (found["data"]["groups"]["query"], "--images" in found["command"]) == (18, False)
        refused((*words, "--label", "w"), ("--label",))


def test_a_challenge_has_the_names_of_the_inputs_alone(folder: Path) -> None:
    deal(*OUTCOME, "--groups", "patient", *SHARES, "--blind")
    key = json.loads(Path("deal/key.json").read_text())
    first, *lines = rows_of("deal/challenge.csv")
    assert first == ["record", *NAMES]
    for role in ROLES:
        for row, (_, age, bp, _, w) in zip(key["rows"][role], rows_of(f"deal/{role}.csv")[1:], strict=True):
            assert lines[row][1:] == [age, bp, w]
    assert {"query.csv", "challenge.csv"} < key["files"].keys()
    assert (key["label"], key["groups"]) == ("outcome", True)
    Path("named.csv").write_text(Path("all.csv").read_text().replace(" bp ", "record", 1))
    refused(("deal", "named.csv", *OUTCOME, "--groups", "patient", "--blind", "--out", "new"), ("'record'",))


def test_no_value_of_a_group_is_in_any_file(folder: Path) -> None:
    np.save("ids.npy", np.array([f"P-{row // SIZE}x" for row in range(COUNT)]))
    for out, words in (
        ("by_column", ("--groups", "patient")),
        ("by_file", ("--groups", "ids.npy", "--drop", "patient")),
    ):
        _, said = deal(*OUTCOME, *words, *SHARES, "--blind", out=out)
        assert not files_with_patients(out)
        assert "P-" not in said
    assert Path("by_file/query.csv").read_text().startswith("group,")
    text = Path("all.csv").read_text()
    for name, label in ((" bp ", "outcome"), ("outcome", "P-3x")):
        Path("named.csv").write_text(text.replace(name, "P-3x", 1))
        words = ("deal", "named.csv", "--label", label, "--drop", "id", "--groups", "patient", "--out", "new")
        assert "P-3x" not in refused(words, ("names of its columns are values of the groups",))


def test_words_that_name_groups_are_not_shared(folder: Path) -> None:
    """Those themselves, and other names of them."""
    np.save("ids.npy", np.array([f"P-{row // SIZE}x" for row in range(COUNT)]))
    np.save("numbers.npy", np.arange(COUNT) // SIZE * 7)
    for groups in ("ids.npy", "numbers.npy"):
        words = ("deal", "all.csv", *OUTCOME, "--groups", groups, *SHARES, "--out", "new")
        assert "P-" not in refused(words, ("column 'patient' has the values of the groups",))


def test_only_random_numbers_of_a_deal_are_taken_for_its_groups(folder: Path) -> None:
    """A deal, which would write a second column of that name, asks for them, or refuses another one."""
    deal(*OUTCOME, "--groups", "patient", *SHARES)
    found = [groups_in_file(name) is not None for name in ("deal/query.csv", "all.csv")]
    assert found == [True, False]
    again = ("deal", "deal/members.csv", "--label", "outcome", "--withdraw", "0.4", "--out", "new")
    refused(again, ("--groups group",))
    Path("small.csv").write_text("".join(["group,a,label\n", *(f"{row % 4},{row}.5,{row % 2}\n" for row in range(60))]))
    assert (load("small.csv").titles, groups_in_file("small.csv")) == (("group", "a"), None)
    refused(("deal", "small.csv", "--out", "new"), ("'group'", "rename it"))


def test_a_cell_may_have_the_end_of_a_line(folder: Path) -> None:
    """Copies are dealt together, as a group."""
    lines = [f'{row // 2 * 7 % 60}.5,"{row // 2}","k\n{row // 2 % 2}",{row // 6}' for row in range(60)]
    Path("ends.csv").write_text("\n".join(["a,b,label,who", *lines, ""]))
    deal("--drop", "who", *SHARES, data="ends.csv")
    for role in ROLES:
        part = load(f"deal/{role}.csv")
        assert (part.titles, part.class_names) == (("a", "b"), ("k\n0", "k\n1"))
        assert groups_in_file(f"deal/{role}.csv") is not None
        np.testing.assert_array_equal(part.labels, part.inputs[:, 1] % 2)


def test_classes_that_a_set_lacks_are_kept_by_arrays(folder: Path) -> None:
    """A reader numbers the classes that a table has: one of a single record would be missing in two of three."""
    lines = [f"{row}.5,{'rare' if row == 7 else 'ab'[row % 2]}" for row in range(60)]
    Path("rare.csv").write_text("\n".join(["a,label", *lines, ""]))
    done = jaxaudit("deal", "rare.csv", *SHARES, "--out", "deal")
    assert done.code == 0
    assert "records of all 3 classes" in done.err
    assert {path.name for path in Path("deal").iterdir()} == {"deal.json", *(f"{role}.npz" for role in ROLES)}
    assert "deal/query.npz" in done.out
    assert {load(f"deal/{role}.npz").class_names for role in ROLES} == {("a", "b", "rare")}
    assert json.loads(Path("deal/deal.json").read_text())["source"]["columns"] is None


def test_decimal_commas_are_read_as_in_the_source(folder: Path) -> None:
    """Whole numbers are the same without the few cells that show the decimal sign."""
    lines = [f"{3 * row};{row % 7}{',5' if row == 3 else ''};{row % 2}" for row in range(60)]
    Path("commas.csv").write_text("\n".join(["n;a;label", *lines, ""]))
    deal(*SHARES, data="commas.csv")
    source = load("commas.csv")
    assert source.inputs[3].tolist() == [9, 3.5]
    assert sorted(row for role in ROLES for row in rows_in(source, load(f"deal/{role}.csv"))) == list(range(60))


def test_a_part_that_is_read_otherwise_is_refused(folder: Path) -> None:
    lines = [f"{row}.5,{row % 2}" for row in range(8)]
    Path("few.csv").write_text("\n".join(["a,label", *lines, ""]))
    whole = load("few.csv")
    refuse_read_otherwise(Path("few.csv"), whole, None)
    for other in (whole.take(np.arange(8)[::-1]), whole.take(np.arange(7)), replace(whole, titles=("b",))):
        with pytest.raises(InputError, match=r"few\.csv: the rows would not be read again"):
            refuse_read_otherwise(Path("few.csv"), other, None)
