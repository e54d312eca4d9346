"""Tables of scores: every format says the same, and every bad table is one clear error."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from jaxaudit.data import load_scores, score_table, target_on
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
    assert [(model.role, model.name) for model in found.models] == [
        ("target", ""),
        ("baseline", "old.model"),
        ("unused", ""),
    ]
    assert found.texts == tuple(GOOD["text"])
    assert list(found.rows("holdout", "query")) == [2, 3, 0, 1]


def test_a_data_frame_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    assert score_table(pandas.DataFrame(GOOD)).content_hash == score_table(GOOD).content_hash


def test_a_direction_is_said_and_unknown_columns_are_named(tmp_path: Path) -> None:
    columns = {"set": GOOD["set"], "target.mine": GOOD["target.loss"], "note": GOOD["text"]}
    found = load_scores(_write(tmp_path / "s.csv", columns), lower=["mine"])
    assert found.directions == {"mine": -1}
    assert found.ignored == ("note",)


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


def test_directions_must_be_of_the_table() -> None:
    with pytest.raises(InputError):
        score_table(GOOD, lower=["loos"])
    with pytest.raises(InputError):
        score_table(GOOD, lower=["loss"], higher=["loss"])


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
    path = _write(tmp_path / "s.csv", {**columns, "target.loss": GOOD["target.loss"]})
    found = load_scores(path)
    assert found.ignored == ("model.name",)
    assert len(found.of("unused")) == 1


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
