"""`jaxaudit scores regression`: squared errors and likelihoods beside SciPy, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
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
    # Of groups with records in both sets, there is no test of whole ones.
    assert done.out.rstrip().endswith(f"--scores s.csv --by group{' --lower nll' if sigma else ''}")
    found = csv.read_csv("s.csv").to_pydict()
    assert list(found) == ["set", "group", "covariate.age", "covariate.sd", f"target.{score}"]
    wanted = -stats.norm.logpdf(rows["y"], rows["guess"], rows["sd"]) if sigma else (rows["y"] - rows["guess"]) ** 2
    np.testing.assert_allclose(found[f"target.{score}"], wanted, rtol=1e-12)
    assert found["group"] == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(found["covariate.age"], rows["age"])


@pytest.mark.parametrize(
    ("column", "cell", "words", "said"),
    [
        (
            "of",
            "forget",
            (),
            "row 3, column 'of' must have one of query, holdout, members, reference; found: 'forget' (1).",
        ),
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


# Predictions that are not on the scale of the truth

SIZE = 60


def predicted(back: Callable[[np.ndarray], np.ndarray], noise: float = 0.2) -> dict[str, np.ndarray]:
    """True values over two orders of magnitude, and predictions of a model that knows them, as `back` writes them."""
    random = np.random.default_rng(5)
    truth = np.exp(random.normal(3, 0.7, 3 * SIZE))
    guess = back(truth * np.exp(noise * random.normal(size=3 * SIZE)))
    return {"of": np.repeat(["query", "holdout", "members"], SIZE), "y": truth, "guess": guess, "sd": np.full(180, 0.5)}


@pytest.mark.parametrize(
    ("back", "said"),
    [
        (np.log, "natural logarithms"),
        (np.log10, "logarithms to base 10"),
        (lambda truth: (truth - truth.mean()) / truth.std(), "standardised"),
        (lambda truth: truth / truth.max(), "stretched"),
        (lambda truth: -truth, "another sign"),
        (lambda truth: 1000 * truth, "stretched"),
    ],
)
def test_predictions_on_another_scale_are_refused_with_the_likely_one(
    rows: dict[str, np.ndarray], back: Callable[[np.ndarray], np.ndarray], said: str
):
    write(predicted(back))
    refused(WORDS, ("set query", "rank correlation", said))
    refused((*WORDS, "--sigma", "sd"), (said,))


def test_one_set_on_another_scale_is_refused(rows: dict[str, np.ndarray]):
    found = predicted(lambda truth: truth)
    found["guess"][SIZE : 2 * SIZE] = np.log(found["guess"][SIZE : 2 * SIZE])
    write(found)
    refused(WORDS, ("set holdout", "natural logarithms"))


@pytest.mark.parametrize("noise", [0.2, 2.0])
def test_predictions_that_do_not_follow_the_truth_are_named_and_scored(rows: dict[str, np.ndarray], noise: float):
    """With little noise nothing is said; with much the mean fits better, and no monotone map of the numbers well."""
    write(predicted(lambda truth: truth, noise))
    done = jaxaudit(*WORDS)
    assert done.code == 0, done.err
    assert ("fit worse than the mean" in done.err) is (noise > 1)


def test_errors_beyond_all_bounds_are_refused(rows: dict[str, np.ndarray]):
    for column, value, words in (("guess", 1e200, ()), ("y", -1.7e308, ()), ("sd", 1e-300, ("--sigma", "sd"))):
        write({**rows, column: np.array([value, *rows[column][1:]])})
        refused((*WORDS, *words), (" 0" if words else "beyond 1e+75",))
        assert not Path("s.csv").exists()


@pytest.mark.parametrize("empty", ["", "nan", "NULL"])
def test_a_record_without_a_group_is_refused(rows: dict[str, np.ndarray], empty: str):
    who = np.array(["a", empty, "b", empty, "c", "d", "e", "f"])
    write({**rows, "who": who})
    refused((*WORDS, "--group", "who"), ("2 records", "rows 2, 4"))


def test_groups_and_sets_may_be_the_index_of_pandas(rows: dict[str, np.ndarray]):
    write(rows)
    assert jaxaudit(*WORDS, "--group", "who").code == 0
    wanted = Path("s.csv").read_bytes()
    Path("s.csv").unlink()
    kept = {"pandas": json.dumps({"index_columns": ["of", "who"]})}
    parquet.write_table(pa.table(rows).replace_schema_metadata(kept), "t.csv")
    assert jaxaudit(*WORDS, "--group", "who").code == 0
    assert Path("s.csv").read_bytes() == wanted


def test_a_likelihood_that_is_negative_everywhere_is_judged_as_the_summary_says(rows: dict[str, np.ndarray]):
    """The density of a narrow normal distribution is above 1."""
    write({**rows, "sd": np.full(8, 0.01), "y": rows["guess"] + 1e-4 * np.arange(8)})
    done = jaxaudit(*WORDS, "--sigma", "sd")
    assert max(csv.read_csv("s.csv").to_pydict()["target.nll"]) < 0
    refused(("ks", "--scores", "s.csv"), ("target.nll", "--lower"))
    command = done.out.rstrip().splitlines()[-1].partition("jaxaudit ")[2]
    jaxaudit(*command.split())
