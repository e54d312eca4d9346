"""`jaxaudit scores regression`: squared errors and likelihoods beside SciPy, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv
from scipy import stats
from support.cli_runs import jaxaudit, refused

WORDS = ("scores", "regression", "t.csv", "--prediction", "guess", "--truth", "y", "--set", "of", "--out", "s.csv")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    found = {name: random.normal(size=8) for name in ("guess", "y", "age")} | {"sd": random.uniform(0.1, 2, 8)}
    return {**found, "of": np.array(["query", "holdout"] * 3 + ["members", "reference"]), "who": 7 - np.arange(8) // 2}


def write(rows: dict[str, np.ndarray]) -> None:
    lines = [",".join(rows), *(",".join(map(str, each)) for each in zip(*rows.values(), strict=True))]
    Path("t.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("sigma", [False, True])
def test_errors_are_those_of_scipy_and_columns_pass_through(rows: dict[str, np.ndarray], sigma: bool):
    write(rows)
    further = ("--group", "who", "--covariate", "age", "--covariate", "sd", *(("--sigma", "sd") if sigma else ()))
    done = jaxaudit(*WORDS, *further)
    score = "nll" if sigma else "squared_error"
    assert done.out.startswith(f"s.csv: 8 records (query 3, holdout 3, members 1, reference 1), scored by {score}.\n")
    found = csv.read_csv("s.csv").to_pydict()
    assert list(found) == ["set", "group", "covariate.age", "covariate.sd", f"target.{score}"]
    wanted = -stats.norm.logpdf(rows["y"], rows["guess"], rows["sd"]) if sigma else (rows["y"] - rows["guess"]) ** 2
    np.testing.assert_allclose(found[f"target.{score}"], wanted, rtol=1e-12)
    assert found["group"] == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(found["covariate.age"], rows["age"])


@pytest.mark.parametrize(
    ("column", "cell", "words", "said"),
    [
        ("of", "forget", (), "row 3, column 'of' must have one of query, holdout, members, reference"),
        ("guess", "nan", (), "row 3, column 'guess' is not finite"),
        ("y", "many", (), "row 3, column 'y' holds text"),
        ("sd", "-1", ("--sigma", "sd"), "row 3, column 'sd' is not above 0; --sigma names"),
        ("sd", "1", ("--sigma", "spread"), "has no column 'spread'"),
        ("sd", "1", ("--covariate", "none"), "has no column 'none'"),
    ],
)
def test_a_cell_or_column_that_cannot_be_is_named(
    rows: dict[str, np.ndarray], column: str, cell: str, words: tuple[str, ...], said: str
):
    rows[column] = rows[column].astype("U32")
    rows[column][2] = cell
    write(rows)
    refused((*WORDS, *words), (said,))
