"""Tables with empty cells among numbers: estimators get NaN; whoever else reads them refuses, or says what it does."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import jaxaudit, own_modules, refused
from support.people import write_rows

import jaxaudit as ja
from jaxaudit.errors import InputError

HEADER = ["age", "dose", "town", "pulse", "patient", "outcome"]
FILL = -9.0
MINE = """
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
imputer = SimpleImputer(strategy="constant", fill_value=-9.0)
columns = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["town"]), (imputer, ["age", "dose", "pulse"])
)
encoded = make_pipeline(columns, DecisionTreeClassifier(max_depth=8))
imputed = make_pipeline(imputer, DecisionTreeClassifier(max_depth=8))
boosted = HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=2, learning_rate=0.5)
linear = LogisticRegression()
def network(input_shape, classes, rngs):
    from jaxaudit.models import MLP
    return MLP(input_shape, classes, rngs=rngs, hidden=(8,))
"""
TRAIN = ("shadows", "train", "--query", "patients.csv", "--label", "outcome", "--groups", "patient", "--coins")


def cells() -> list[list[object]]:
    """80 patients with two visits; a tenth of the cells of two columns of numbers, and of one of words, are empty."""
    random = np.random.default_rng(3)
    rows = list[list[object]]()
    for visit in range(160):
        age, dose, pulse = random.normal(size=3).round(3).tolist()
        town = ("Rome", "Bari", "Turin")[visit % 3]
        outcome = "ill" if age + random.normal() > 0 else "well"
        values: list[object] = [age, dose, town]
        kept = random.random(3) > 0.1
        empty = ("", "NA" if visit % 2 else "", "")
        rows.append(
            [
                *(value if keep else gap for value, keep, gap in zip(values, kept, empty, strict=True)),
                pulse,
                visit // 2,
                outcome,
            ]
        )
    return rows


def write(rows: list[list[object]], path: str = "patients.csv") -> None:
    write_rows(Path(path), HEADER, rows)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """A working folder with the table, and estimators for it."""
    (tmp_path / "mine.py").write_text(MINE)
    with own_modules(tmp_path):
        write(cells())
        yield


def bank_of(model: str, out: str, *more: str) -> list[np.ndarray]:
    done = jaxaudit(*TRAIN, "--model", f"mine.py:{model}", "--models", "6", "--out", out, *more)
    assert done.code == 0, done.err
    return [np.load(f"{out}/outputs/{model:05}.npy") for model in range(6)]


def test_gaps_are_as_if_they_were_filled_by_hand():
    """With the constant that the pipeline's own imputer fills in."""
    pytest.importorskip("pandas")
    gaps = bank_of("encoded", "gaps")
    write([[FILL if place < 2 and cell in ("", "NA") else cell for place, cell in enumerate(row)] for row in cells()])
    for one, other in zip(gaps, bank_of("encoded", "filled"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_takes_nan_itself_gets_to_a_grade():
    outputs = bank_of("boosted", "bank")
    np.save("target.npy", outputs[2])
    result = jaxaudit("attack", "--shadows", "bank", "--target", "target.npy", "--json", "--out", "run").result
    assert result["finding"]["verdict"].startswith("gives ")
    assert (result["groups"], result["records"]) == (80, 160)
    with Path("run/records.csv").open() as file:
        rows = list(csv.DictReader(file))
    # A patient of no model, or of all, has no score.
    scores = [row["score_0"] for row in rows if "0" not in (row["models_with"], row["models_without"])]
    assert len(scores) > 140
    assert np.isfinite(np.array(scores, float)).all()


@pytest.mark.outer
def test_a_deal_with_gaps_is_judged_with_a_bank_and_without():
    """What the records teach fills gaps, and says so."""
    sklearn = pytest.importorskip("sklearn.ensemble")
    shares = ("--holdout-share", "0.3", "--members-share", "0.35", "--seed", "2")
    dealt = jaxaudit("deal", "patients.csv", "--label", "outcome", "--groups", "patient", *shares, "--out", "deal")
    assert dealt.code == 0, dealt.err
    parts = {role: ja.load(f"deal/{role}.csv", label="outcome", gaps=True) for role in ("query", "holdout", "members")}
    model = sklearn.HistGradientBoostingClassifier(max_iter=60, min_samples_leaf=2, learning_rate=0.5, random_state=1)
    used = [parts[role] for role in ("query", "members")]
    model.fit(*(np.concatenate([getattr(part, name) for part in used]) for name in ("inputs", "labels")))
    np.savez("outputs.npz", **{role: model.predict_proba(part.inputs) for role, part in parts.items()})
    trained = jaxaudit(
        "shadows", "train", "--deal", "deal", "--model", "mine.py:boosted", "--models", "20", "--out", "b"
    )
    assert trained.code == 0, trained.err
    for bank in (("--shadows", "b"), ()):
        (target,) = jaxaudit("ks", "--deal", "deal", "--target", "outputs.npz", *bank, "--json").result["targets"]
        assert target["finding"]["verdict"] == "not forgotten"
        assert "NaN" not in json.dumps(target)
        assert ("the mean of their column" in json.dumps(target)) is not bool(bank)


def test_records_that_are_equal_are_copies_with_their_gaps():
    rows = cells()
    rows[3][:4], rows[9][:4] = ["", 1.5, "Rome", 0.5], ["NA", 1.50, "Rome", 0.5]
    write(rows)
    refused((*TRAIN, "--model", "mine.py:boosted", "--out", "bank"), ("2 records have a copy",))
    # A number is no copy of a gap.
    rows[9][0] = 0
    write(rows)
    bank_of("boosted", "bank")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mine.py:linear", ("LogisticRegression failed to learn", "contains NaN", "SimpleImputer()")),
        ("mine.py:network", ("no network", "imputer")),
    ],
)
def test_who_takes_no_gaps_says_in_which_columns_they_are(model: str, said: tuple[str, ...]):
    done = jaxaudit(*TRAIN, "--model", model, "--out", "bank")
    last = done.err.splitlines()[-1]
    assert (done.code, [words for words in ("Error: ", *said, "'age', 'dose'") if words not in last]) == (2, [])


@pytest.mark.parametrize(
    ("place", "cell", "said"),
    [
        (0, "unknown", ("row 5", "'age'", "holds words", "frame.replace('?'")),
        (0, "inf", ("row 5", "'age'", "is not finite")),
        (5, "", ("row 5", "no label")),
    ],
)
def test_no_other_cell_is_a_gap(place: int, cell: str, said: tuple[str, ...]):
    rows = cells()
    rows[4][place] = cell
    write(rows)
    refused((*TRAIN, "--model", "mine.py:boosted", "--out", "bank"), said)


@pytest.mark.parametrize(
    "words",
    [
        ("ks", "--query", "patients.csv", "--label", "outcome"),
        ("pdtp", "--data", "patients.csv", "--label", "outcome", "--model", "mine.py:imputed"),
        ("attack", "--data", "patients.csv", "--label", "outcome"),
        ("power", "--query", "patients.csv", "--label", "outcome"),
    ],
)
def test_commands_that_train_networks_refuse_gaps_as_they_read(words: tuple[str, ...]):
    refused(words, ("'age' is empty", "dropna"))


def test_a_number_of_each_patient_is_not_shared_for_its_gaps():
    share, by_row = ("--label", "outcome", "--holdout-share", "0.5", "--out", "deal"), "row by row, or one value"
    dealt = ("deal", "patients.csv", *share, "--groups", "patient")

    def write_column(place: int, cell: Callable[[int, list[object]], object]) -> list[list[object]]:
        rows = cells()
        for visit, row in enumerate(rows):
            row[place] = cell(visit, row)
        write(rows)
        return rows

    for gaps, other in ((6, 1000), (120, 0)):
        write_column(3, lambda visit, row: "" if visit < gaps else abs(other - int(str(row[4]))))  # noqa: B023
        refused(dealt, ("'pulse'", by_row))
    # Words are read with their gaps, too.
    for gap in ("", " NA"):
        write_column(2, lambda visit, _: gap if visit == 7 else f"street {visit // 2}")  # noqa: B023
        refused(dealt, ("'town'", by_row))
    # An empty cell may itself name a group.
    rows = write_column(2, lambda visit, _: ("north", "south", "")[min(visit // 30, 2)])
    for visit, row in enumerate(rows):
        row[4] = ("A1", "B1", "C1")[min(visit // 30, 2)]
    write(rows)
    refused(("deal", "patients.csv", *share, "--by", "patient"), ("'town'", by_row))
    # Numbers of visits, where each patient has one: of anybody, not of the patient.
    for visit, row in enumerate(rows):
        row[3] = "" if visit % 2 and visit < 60 else 5 * (97 * visit % 160) + 0.5
        row[4] = visit // 2 if visit < 60 else visit
    write(rows)
    assert jaxaudit(*dealt).code == 0


def test_gaps_are_dealt_in_tables_alone():
    rows = cells()
    rows[0][5] = "rare"
    write(rows)
    refused(
        ("deal", "patients.csv", "--label", "outcome", "--holdout-share", "0.5", "--out", "deal"), (".npz", "'age'")
    )
    records = ja.load("patients.csv", label="outcome", gaps=True)
    with pytest.raises(InputError, match=r"no \.npz has"):
        ja.deal(records, holdout=0.5, seed=1).save("saved")
    assert not Path("saved").exists()
