"""Tables of scores: columns, from a data frame or a file, and written; what no column may be, and copies of models."""

import csv
import os
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data import ScoreTable, load_scores, refuse_repeated, score_table, target_on, write_scores
from jaxaudit.errors import InputError

GOOD = {
    "set": ["query", "query", "holdout", "holdout", "members"],
    "target.loss": [0.1, 0.25, 2.0, 1.5, 0.3],
    "baseline.old.model.loss": [1.0, 2.0, 1.75, 1.5, 0.5],
    "unused.truth_ratio": [0.5, 0.75, None, None, None],
    "covariate.tokens": [3, 4, 5, 6, 7],
    "group": ["a", "b", "c", "d", "e"],
    "text": ["one", "two", "three", "four", "five"],
}


def _write(path: Path, columns: dict) -> Path:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".csv":
        lines = [",".join(columns), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_every_format_gives_the_same_table(name: str, tmp_path: Path) -> None:
    found = load_scores(_write(tmp_path / name, GOOD))
    assert found.content_hash == score_table(GOOD).content_hash
    models = [(model.role, model.name) for model in found.models]
    assert models == [("target", ""), ("baseline", "old.model"), ("unused", "")]
    assert found.texts == tuple(GOOD["text"])
    assert list(found.rows("holdout", "query")) == [2, 3, 0, 1]


def test_a_data_frame_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    assert score_table(pandas.DataFrame(GOOD)).content_hash == score_table(GOOD).content_hash


def test_a_direction_is_said_and_unknown_columns_are_named(tmp_path: Path) -> None:
    columns = {"set": GOOD["set"], "target.mine": GOOD["target.loss"], "note": GOOD["text"]}
    found = load_scores(_write(tmp_path / "s.csv", columns), lower=["mine"])
    assert (found.directions, found.ignored) == ({"mine": -1}, ("note",))
    for lower, higher in ((["loos"], []), (["loss"], ["loss"])):
        with pytest.raises(InputError):
            score_table(GOOD, lower=lower, higher=higher)


@pytest.mark.parametrize(
    "change",
    [
        {"set": None},
        {"set": ["query", "query", "holdout", "holdout", "train"]},
        {"target.loss": None, "baseline.old.model.loss": None, "unused.truth_ratio": None},
        {"target.loss": [0.1, None, 2.0, 1.5, 0.3]},
        {"target.loss": [0.1, float("inf"), 2.0, 1.5, 0.3]},
        {"target.loss": [1.0] * 5},
        {"target.loss": [0.0, 0.0, 1.0, 1.0, 0.3]},
        {"target.loss": ["a", "b", "c", "d", "e"]},
        {"covariate.tokens": [3, None, 5, 6, 7]},
        {"group": ["a", "", "c", "d", "e"]},
        {"pair": [1, 2, 1, 2, None]},
        {"group": None, "pair": [1, 1, 2, 2, None]},
        {"text": ["one", "two", "one", "four", "five"]},
        {"index": ["1", "1", "1", "2", "3"]},
    ],
)
def test_bad_tables_are_refused(change: dict, tmp_path: Path) -> None:
    columns = {name: values for name, values in {**GOOD, **change}.items() if values is not None}
    with pytest.raises(InputError):
        load_scores(_write(tmp_path / "s.csv", columns))


def test_no_message_shows_a_cell(tmp_path: Path) -> None:
    """Names of sets are shown if they are few: more would be another column, such as one of persons."""
    persons = [f"SECRET {number}" for number in range(6)]
    more = {name: [*column, column[0]] for name, column in GOOD.items()}
    for change in ({"target.loss": ["SECRET"] * 5}, {"covariate.tokens": ["SECRET"] * 5}, {**more, "set": persons}):
        with pytest.raises(InputError) as error:
            load_scores(_write(tmp_path / "s.csv", {**GOOD, **change}))
        assert "SECRET" not in str(error.value)


def test_long_texts_take_no_more_memory_than_they_have() -> None:
    """An array of texts has cells as wide as the longest: here 40 GB."""
    texts = ["x" * 10**6, *map(str, range(9_999))]
    columns = {"set": ["query", "holdout"] * 5_000, "target.loss": np.arange(10_000.0), "text": texts}
    assert score_table(columns).texts == tuple(texts)
    for column in ("set", "group"):
        with pytest.raises(InputError):
            score_table({**columns, column: texts})


def test_a_column_that_is_not_used_may_hold_text_and_a_used_one_empty_cells(tmp_path: Path) -> None:
    columns = {"set": GOOD["set"], "unused.truth_ratio": GOOD["unused.truth_ratio"], "model.name": GOOD["text"]}
    found = load_scores(_write(tmp_path / "s.csv", {**columns, "target.loss": GOOD["target.loss"]}))
    assert (found.ignored, len(found.of("unused"))) == (("model.name",), 1)


def test_a_bank_takes_the_target_of_a_set_from_a_table(tmp_path: Path):
    path = tmp_path / "s.csv"
    path.write_text("set,target.loss,before.loss\nholdout,3,1\nquery,1,2\nquery,2,5\n")
    np.testing.assert_array_equal(target_on(path, "query", True, 1), [-1, -2])
    np.testing.assert_array_equal(target_on(path, "query", False, -1), [1, 2])
    with pytest.raises(InputError, match="one score that is higher"):
        target_on(path, "query", False, 1)
    path.write_text("set,target.a.loss,target.b.loss\nholdout,3,1\nquery,1,2\n")
    with pytest.raises(InputError, match="2 targets"):
        target_on(path, "query", True, 1)
    for plain in ("score\n1\n2\n", "0.5,0.5\n0.25,0.75\n", ""):
        path.write_text(plain)
        assert target_on(path, "query", True, 1) is None
    parquet.write_table(pa.table({"set": ["query", "holdout"], "target.loss": [1.0, 2.0]}), tmp_path / "s.parquet")
    np.testing.assert_array_equal(target_on(tmp_path / "s.parquet", "query", True, 1), [-1])


FLOATS = arrays.arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False))


@given(values=FLOATS)
def test_a_number_reads_back_bit_for_bit(values: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("scores")
    for name, read in (("s.csv", arrow_csv.read_csv), ("s.parquet", parquet.read_table)):
        write_scores(folder / name, {"set": ["query"] * len(values), "target.loss": values})
        back = read(folder / name)["target.loss"].cast("double").to_numpy()
        np.testing.assert_array_equal(back.view(np.int64), values.view(np.int64))
    with open(folder / "s.csv", newline="") as file:
        python = [float(row["target.loss"]) for row in csv.DictReader(file)]
    np.testing.assert_array_equal(np.array(python).view(np.int64), values.view(np.int64))


def test_what_was_not_measured_is_an_empty_cell(tmp_path: Path) -> None:
    """And a number of 32 bits keeps its value."""
    write_scores(tmp_path / "f.csv", {"target.loss": np.array([0.1], np.float32)})
    assert float((tmp_path / "f.csv").read_text().split()[1]) == np.float32(0.1)
    columns = {"index": [0, 1, 2], "target.loss": [0.5, None, float("nan")], "text": ['a "b",\nc', None, "d"]}
    write_scores(tmp_path / "s.csv", columns)
    assert stat.S_IMODE(os.stat(tmp_path / "s.csv").st_mode) == 0o600 or sys.platform == "win32"
    with open(tmp_path / "s.csv", newline="") as file:
        assert list(csv.reader(file))[1:] == [["0", "0.5", 'a "b",\nc'], ["1", "", ""], ["2", "", "d"]]
    write_scores(tmp_path / "s.parquet", columns)
    assert parquet.read_table(tmp_path / "s.parquet")["target.loss"].to_pylist() == [0.5, None, None]


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    there, target = tmp_path / "there.csv", tmp_path / "target.csv"
    there.write_text("mine")
    for link in ("link.csv", "dangling.csv"):
        (tmp_path / link).symlink_to(there if link == "link.csv" else target)
    (tmp_path / "folder.csv").mkdir()
    for name in ("there.csv", "link.csv", "dangling.csv", "folder.csv"):
        with pytest.raises(InputError, match="already exists"):
            write_scores(tmp_path / name, {"set": ["query"]})
    assert there.read_text() == "mine"
    assert not target.exists()


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for name, columns, match in (
        ("s.txt", {"set": ["query"]}, ".csv or a .parquet"),
        ("no/s.csv", {"set": ["query"]}, "no directory"),
        ("s.csv", {"set": ["query"], "target.loss": [1.0, 2.0]}, "a cell a record"),
    ):
        with pytest.raises(InputError, match=match):
            write_scores(tmp_path / name, columns)
    assert not list(tmp_path.iterdir())


RANDOM = np.random.default_rng(1)
SETS = np.repeat(["query", "holdout"], 100)
HARD = RANDOM.normal(3, 1, 200)
A, B, C = HARD + 0.1 * RANDOM.normal(size=(3, 200))
"""Losses of three models."""
RIGHT, OTHER = (RANDOM.uniform(size=(2, 200)) < 0.7).astype(float)
RARE = (np.arange(200) % 60 == 0).astype(float)
QUERY = SETS == "query"


def table(columns: dict[str, Any]) -> ScoreTable:
    return score_table({"set": SETS, **columns})


@pytest.mark.parametrize(
    "columns",
    [
        {"target.loss": A, "unused.1.loss": B, "unused.2.loss": B},
        {"target.loss": A, "before.loss": A},
        {"target.a.loss": A, "target.b.loss": A},
        {"target.loss": A, "used.log_likelihood": -A},
        {"target.loss": A, "used.perplexity": np.exp(A)},
        {"target.loss": A, "used.loss": 2 * A + 7},
        {"target.loss": A, "used.loss": A.round(5)},
        {"target.loss": A, "covariate.length": A},
        {"unused.loss": A, "used.loss": A, "target.loss": B},
        {"target.loss": A, "unused.loss": np.where(QUERY, A, np.nan)},
        {"target.loss": A, "unused.loss": np.where(QUERY, A, B)},
        {"target.loss": A, "target.zlib": B, "unused.loss": A, "unused.zlib": C},
        {"target.loss": A, "unused.1.accuracy": RIGHT, "unused.2.accuracy": RIGHT},
    ],
)
def test_copies_are_refused_and_both_columns_named(columns: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        table(columns)
    assert sum(name in str(refused.value) for name in columns) >= 2


@pytest.mark.parametrize("role", ["target", "unused", "before"])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_the_scores_of_one_set_as_those_of_another_are_refused(role: str, share: float) -> None:
    """A model that was asked for the query set twice has used nothing; so a used one is `forgotten`."""
    copied, count = B.copy(), round(share * 100)
    copied[100 : 100 + count] = copied[:count]
    columns = {"target.loss": A, f"{role}.loss": copied}
    with pytest.raises(InputError, match=rf"column {role}\.loss has the same numbers on holdout as on query"):
        table(columns)
    table({"target.loss": A, "covariate.words": copied})
    # Of few different numbers most may be the same.
    table({"target.loss": A, "target.accuracy": np.tile(RIGHT[:100], 2)})


@pytest.mark.parametrize("times", [2, 3])
def test_a_table_that_has_every_record_several_times_is_refused(times: int) -> None:
    """Copies of records make any difference significant."""
    columns = {"set": SETS, "target.loss": A, "unused.loss": np.where(QUERY, B, np.nan)}
    repeated = {name: np.repeat(values, times) for name, values in columns.items()}
    with pytest.raises(InputError, match=f"every record occurs {times} times"):
        score_table(repeated)
    score_table(columns)
    score_table({name: values[:-1] for name, values in repeated.items()})
    few = {"set": np.repeat(SETS, 2), "target.accuracy": np.repeat(RIGHT, 2)}
    score_table(few)


@pytest.mark.parametrize("change", [lambda a: a + 0.003 * RANDOM.normal(size=200), lambda a: a.round(3)])
@pytest.mark.parametrize("role", ["unused.1", "used.1", "target.b"])
def test_a_model_that_was_asked_again_is_one_model(change: Any, role: str) -> None:
    """Another batch size, or rounding: where three models that are trained alike show what is usual."""
    a, b, c = HARD + 0.4 * np.random.default_rng(3).normal(size=(3, 200))
    with pytest.raises(InputError, match=rf"(?=.*target\.a\.loss)(?=.*{role}\.loss)".replace(".1", r"\.1")):
        table({"target.a.loss": a, f"{role}.loss": change(a), "unused.2.loss": c, "used.9.loss": b})
    table({"target.a.loss": a, f"{role}.loss": b, "unused.2.loss": c})
    # A deletion of few records may change little.
    again = a + 0.003 * RANDOM.normal(size=200)
    table({"target.a.loss": a, "before.loss": again, "unused.2.loss": c, "used.9.loss": b})


@pytest.mark.parametrize(
    "columns",
    [
        {"target.loss": A, "target.log_likelihood": -A, "unused.1.loss": B, "unused.2.loss": C},
        {"target.loss": A, "before.loss": B, "used.loss": B},
        {"target.loss": A, "baseline.loss": B, "unused.loss": B, "covariate.base": B},
        {"target.loss": A, "covariate.tokens": B, "covariate.words": B},
        # What two models may share by chance: few different numbers.
        {"target.loss": A, "unused.1.accuracy": RARE, "unused.2.accuracy": RARE},
        {"target.accuracy": RIGHT, "unused.accuracy": OTHER},
        {"target.loss": A, "unused.loss": B, "target.accuracy": RIGHT, "unused.accuracy": RIGHT},
    ],
)
def test_what_is_no_copy_is_read(columns: dict[str, Any]) -> None:
    read = table(columns)
    models = {tuple(name.split(".")[:-1]) for name in columns if not name.startswith("covariate.")}
    assert (len(read.models), read.ignored) == (len(models), ())


def test_few_records_in_one_order_are_no_copy_unless_they_are_the_same() -> None:
    """Twenty records may be in one order by two models."""
    sets, first = np.repeat(["query", "holdout"], 20), np.linspace(1, 2, 40)
    second = first + 0.01 * np.sin(7 * first)
    assert (np.argsort(first) == np.argsort(second)).all()
    score_table({"set": sets, "target.loss": first, "used.loss": second})
    with pytest.raises(InputError):
        score_table({"set": sets, "target.loss": first, "used.log_likelihood": 3 - first})


def test_copies_among_thousands_of_columns_are_found() -> None:
    values = np.random.default_rng(2).normal(size=(1200, 40))
    values[1100] = -values[3]
    sets = np.repeat(["query", "holdout"], 20)
    with pytest.raises(InputError, match=r"target\.m3\.loss and target\.m1100\.loss"):
        score_table({"set": sets, **{f"target.m{row}.loss": each for row, each in enumerate(values)}})


@pytest.mark.parametrize(
    ("paths", "refused"),
    [
        *(({"target": ["a"], "unused": [same]}, True) for same in ("a", "./a", "link")),
        *(({"target": ["a"], "unused": ["b", "b"]}, True), ({"target": ["a"], "unused": ["b"], "used": ["b"]}, True)),
        ({"target": ["a"], "before": ["b"], "used": ["b"]}, False),
        ({"target": ["a"], "baseline": ["b"], "unused": ["b"]}, False),
    ],
)
def test_one_path_in_two_roles_is_refused(
    paths: dict[str, list[str]], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
    Path("link").symlink_to("a")
    given = {role: [Path(each) for each in of] for role, of in paths.items()}
    with pytest.raises(InputError) if refused else nullcontext():
        refuse_repeated(given)
