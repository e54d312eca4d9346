"""How `jaxaudit pdtp` reads a table of your own, and what it refuses."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.cli_runs import content, jaxaudit
from support.people import PEOPLE, people_rows, write_people, write_rows


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with `people.csv`."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)


def test_what_was_found_in_the_table_is_said():
    done = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--categorical", "hours", "--drop", "sex")
    assert done.code == 0
    lines = done.err.splitlines()
    assert lines[0] == "people.csv: 60 records, 3 columns, 2 classes"
    assert [line.split()[:2] for line in lines[1:3]] == [["age:", "numeric,"], ["hours:", lines[2].split()[1]]]
    assert "categories" in lines[2]
    assert lines[3].split()[:3] == ["work:", "3", "categories"]
    assert "missing" in lines[3]


def test_a_table_is_the_same_however_it_is_written():
    header, *rows = people_rows()
    whole = jaxaudit("pdtp", *PEOPLE, "--model", "nb", "--json").result
    table = pyarrow.table({name: list(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)})
    pyarrow.parquet.write_table(table, "people.parquet")
    lines = [";".join(cell.replace(".", ",") for cell in row) for row in (header, *rows)]
    Path("german.csv").write_bytes("\n".join(lines).encode("utf-16"))
    for words in (("--table", "people.parquet"), ("--csv", "german.csv"), ("--csv", "german.csv", "--delimiter", ";")):
        done = jaxaudit("pdtp", *words, "--label", "income", "--model", "nb", "--json")
        assert done.result["records"] == whole["records"]
        assert ("utf-16" in done.err) is ("german.csv" in words)
    Path("tabs.txt").write_text("\n".join("\t".join(row) for row in (header, *rows)))
    tabs = jaxaudit("pdtp", "--csv", "tabs.txt", "--label", "income", "--model", "nb", "--json", "--delimiter", "tab")
    assert tabs.result["records"] == whole["records"]
    again = jaxaudit(*tabs.result["provenance"]["command"][1:], "--json").result
    assert again["records"] == whole["records"]


def test_missing_numbers_become_what_is_said():
    header, *rows = people_rows()
    for place in (4, 7):
        rows[place][1] = ""
    write_rows(Path("gaps.csv"), header, rows)
    words = ("pdtp", "--csv", "gaps.csv", "--label", "income", "--model", "nb")
    refused = jaxaudit(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "'hours' (2 of 60)" in refused.err
    assert "--missing" in refused.err
    dropped = jaxaudit(*words, "--missing", "drop", "--json", "--out", "run").result
    unknown = {place for place, row in enumerate(rows) if "?" in row or place in (4, 7)}
    assert [record["index"] for record in dropped["records"]] == [i for i in range(60) if i not in unknown]
    sampled = jaxaudit(*words, "--missing", "drop", "--sample", "20", "--top", "3", "--show-values").out
    for line in (line for line in sampled.splitlines() if "labelled" in line):
        number, _, said = line.strip().partition(": ")
        age, hours, _, sex, income = rows[int(number)]
        assert said.startswith(f"age {age}, hours {float(hours):g}, work ")
        assert said.endswith(f", sex {sex}, labelled {income}")
    assert len(jaxaudit(*words, "--missing", "mean", "--json").result["records"]) == 60
    columns = jaxaudit(*words, "--missing", "category", "--json").result["provenance"]["data"]["columns"]
    assert columns == ["age", "hours", "hours is missing", "work", "sex"]


def test_an_identifier_is_pointed_at():
    header, *rows = people_rows()
    write_rows(Path("ids.csv"), ["case", *header], [[f"c-{i}", *row] for i, row in enumerate(rows)])
    done = jaxaudit("pdtp", "--csv", "ids.csv", "--label", "income", "--model", "nb", "--sample", "50")
    assert "--drop case" in done.err
    assert "c-1" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--csv", "people.csv", "--data", "wine"), ("--data", "--csv")),
        (("--label", "income"), ("--label", "--csv", "--data")),
        (("--missing", "drop"), ("--missing", "--csv")),
        (("--data", "wine", "--decimal", ","), ("--decimal", "--csv")),
        (("--data", "people.csv", "--label", "income"), ("--data people.csv", "--csv people.csv")),
        ((*PEOPLE, "--decimal", ";"), ("--decimal",)),
        ((*PEOPLE, "--encoding", "klingon"), ("--encoding",)),
        ((*PEOPLE, "--delimiter", "ab"), ("--delimiter",)),
        ((*PEOPLE, "--hidden", "65536,65536,65536,65536"), ("--hidden", "GiB")),
        ((*PEOPLE, "--trees", "1000000", "--depth", "20", "--model", "trees"), ("GiB", "--trees", "--depth")),
        (
            ("--data", "digits", "--drop", "x"),
            ("--categorical", "--numeric", "--drop", "digits", "breast-cancer, wine, adult, location, purchase, acs"),
        ),
        ((*PEOPLE, "--sample", "61"), ("--sample 61", "60", "people.csv")),
        ((*PEOPLE, "--measured-records", "61"), ("--measured-records 61", "60", "people.csv")),
        ((*PEOPLE, "--reduce", "2", "--measured-records", "5"), ("--reduce", "--measured-records")),
        ((*PEOPLE, "--model", "nb", "--reduce", "59"), ("59", "60")),
        ((*PEOPLE, "--bins", "1"), ("1 bin",)),
        ((*PEOPLE, "--show-values", "--json"), ("--show-values", "--json")),
        ((*PEOPLE, "--drop", "salary"), ("salary",)),
        (("--csv", "people.csv", "--label", "incom"), ("incom",)),
        (("--csv", "nobody.csv", "--label", "income"), ("--csv nobody.csv",)),
        ((*PEOPLE, "--model", "knn", "--neighbours", "61"), ("61",)),
        ((*PEOPLE, "--hidden", "x"), ("--hidden x",)),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words: tuple[str, ...], said: tuple[str, ...]):
    before = content(Path.cwd())
    done = jaxaudit("pdtp", *words, "--out", "run")
    assert (done.code, done.out) == (2, ""), done
    last = done.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert [each for each in said if each not in last] == [], last
    assert content(Path.cwd()) == before


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (["age", "income"], [[30 + i, "low"] for i in range(20)], "class"),
        (["age", "income"], [[float("inf") if i == 3 else i + 0.5, "lh"[i % 2]] for i in range(20)], "age"),
        (["age", "age", "income"], [[i, i, "lh"[i % 2]] for i in range(20)], "age"),
        (["age", "income"], [], "record"),
    ],
)
def test_tables_that_cannot_be_used(header, rows, message):
    write_rows(Path("bad.csv"), header, rows)
    done = jaxaudit("pdtp", "--csv", "bad.csv", "--label", "income", "--model", "nb")
    assert (done.code, done.out) == (2, ""), done
    assert message in done.err.splitlines()[-1]
