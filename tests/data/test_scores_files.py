"""Tables of scores from files of other tools: no group is lost, no digit, and nothing grows without bound."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from jaxaudit.data import checked_groups, load_scores, score_table
from jaxaudit.errors import InputError

SIZE = 40
FORMATS = ("s.csv", "s.parquet")


def columns(**more: Any) -> dict[str, Any]:
    random = np.random.default_rng(3)
    scores = {"target.loss": random.gamma(2, size=SIZE), "unused.1.loss": random.gamma(2, size=SIZE)}
    return {"set": ["query", "holdout"] * (SIZE // 2), **scores, "covariate.tokens": np.arange(SIZE), **more}


def written(path: Path, found: dict[str, Any], index: tuple[str, ...] = ()) -> Path:
    """A table, with None where a cell is empty; in Parquet these columns are pandas' index, which stands last."""
    rows = {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in found.items()}
    if path.suffix == ".parquet":
        table = pa.table({name: rows[name] for name in [*(each for each in rows if each not in index), *index]})
        table = table.replace_schema_metadata({"pandas": json.dumps({"index_columns": list(index)})})
        parquet.write_table(table, path)
    else:
        table = zip(*rows.values(), strict=True)
        cells = (",".join("" if cell is None else str(cell) for cell in row) for row in table)
        path.write_text("\n".join([",".join(rows), *cells]) + "\n")
    return path


@pytest.mark.parametrize("index", [("group",), ("set",), ("target.loss", "group"), ("set", "unused.1.loss")])
def test_what_pandas_has_as_index_is_read_as_a_column(index: tuple[str, ...], tmp_path: Path):
    found = columns(group=[f"author {row // 4}" for row in range(SIZE)])
    wanted = load_scores(written(tmp_path / "s.csv", found))
    assert load_scores(written(tmp_path / "s.parquet", found, index)).content_hash == wanted.content_hash
    assert wanted.groups is not None
    assert wanted.groups.max() == 9


@pytest.mark.parametrize(
    "missing",
    [
        *(None, float("nan"), np.float32("nan"), np.datetime64("NaT")),
        *("", "NaN", "null", "NA", "#N/A", "-", "--", ".", "\\N", "(null)", "Unknown", "missing"),
    ],
)
def test_whatever_stands_for_no_group_is_refused(missing: object):
    groups = np.array([f"g{row // 2}" for row in range(SIZE)], object)
    groups[3] = missing
    for values in (groups, groups.tolist()):
        with pytest.raises(InputError, match=r"1 records .*rows 4\)"):
            score_table(columns(group=values))


def test_reference_records_need_no_group(tmp_path: Path):
    """Empty cells take no digit of long numbers beside them."""
    found = columns(group=[None if row > 35 else 10**17 + row // 4 for row in range(SIZE)])
    found["set"] = ["reference" if row > 35 else ("query", "holdout")[row % 2] for row in range(SIZE)]
    for name in FORMATS:
        groups = load_scores(written(tmp_path / name, found)).groups
        assert groups is not None
        assert groups.tolist() == [-1 if row > 35 else row // 4 for row in range(SIZE)]


def test_groups_as_whole_floats_are_those_as_integers():
    whole = np.arange(SIZE) // 4
    first, second = (score_table(columns(group=group)).content_hash for group in (whole, whole.astype(float)))
    assert first == second


HOLES = [None if row in (4, 7) else row // 2 for row in range(SIZE)]
LARGE = [1.7e308, *np.arange(SIZE - 1.0).tolist()]
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({column: HOLES}, r"2 records of the .* have no group .*rows 5, 8\)") for column in ("group", "pair")),
    ({"group": (1e17 + 100 * np.arange(SIZE)).tolist()}, "rounded"),
    *(({column: LARGE}, "no number up to 1e") for column in ("target.loss", "covariate.tokens")),
]
IN_CSV = [
    ({"target.loss": [10**400, *range(SIZE - 1)]}, "no number|not a number"),
    ({"target.loss": [True, *LARGE[1:]]}, r"target\.loss.*not a number"),
]


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [*((name, *case) for name in FORMATS for case in REFUSED), *(("s.csv", *case) for case in IN_CSV)],
)
def test_files_are_refused_without_a_warning(name: str, more: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message):
        load_scores(written(tmp_path / name, columns(**more)))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        *(({"target.loss": numbers}, "shape") for numbers in (np.float64(1), np.arange(9.0), np.ones((SIZE, 2)))),
        *(({"text": texts}, "shape") for texts in (np.array([f"{row}" for row in range(SIZE + 1)]), np.array("one"))),
        *(({"set": np.array("query")}, "shape"), ({"group": np.arange(3)}, "shape")),
        *(({"index": np.arange(SIZE + 5)}, "shape"), ({"group": np.arange(SIZE) // 4 + 0.5}, "fractions")),
        ({"group": [1, "1"] * (SIZE // 2)}, "look alike"),
    ],
)
def test_columns_of_other_lengths_and_unclear_groups_are_refused(more: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        score_table(columns(**more))


ALIKE = [("7", "007"), ("7", "7.0"), ("-7", "-07"), ("J.\u00a0B.", "J. B."), ("\u00e9", "e\u0301")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        # As two groups, records of one would count as more evidence than they are.
        *(([one, other, "8", "9"], "1 pairs that look alike") for one, other in ALIKE),
        # As spreadsheets shorten numbers: 1.23457E+11 stands for many.
        (["1.23457E+11", "1.23458E+11"], "rounded"),
        *((values, "2 records of group -1") for values in ([-1, 0, -1, 5], ["-1", "4", "-1", "b"])),
    ],
)
def test_groups_that_may_be_others_are_refused(values: list[Any], message: str):
    with pytest.raises(InputError, match=message):
        checked_groups(np.array(values), "set")


@pytest.mark.parametrize(
    "values",
    [
        *([other, "8", "9"] for _, other in ALIKE),
        *(["1.23457E+11", "b"], ["12345e67", "12345e68", "ab"]),
        # As numbers and as texts; -1 and 1 are two classes.
        *([-1, 0, 1, 5], [-2, -1, -1, 3], [-3, -2, 0, 0], [-1, 1, -1, 1], ["-1", "+1"] * 2, ["-2", "-1", "-1"]),
    ],
)
def test_clear_groups_are_read_as_they_are(values: list[Any]):
    assert checked_groups(np.array(values), "set").tolist() == values


@pytest.mark.parametrize("code", [-999.0, 99.0, 9999.0])
def test_codes_of_missing_scores_are_refused(code: float):
    losses = np.random.default_rng(3).gamma(2, size=SIZE)
    losses[[3, 8]] = code
    with pytest.raises(InputError, match=f"has records of {code:g}, far from all others"):
        score_table(columns(**{"target.loss": losses}))
    losses[8] = 1.0
    score_table(columns(**{"target.loss": losses}))
    # Within the others' range, or of few different numbers, it is a number.
    score_table(columns(**{"target.score": np.where(np.arange(SIZE) < 5, code, 2e4 * (np.arange(SIZE) - 20.0))}))
    score_table(columns(**{"target.score": np.where(np.arange(SIZE) < 5, code, np.arange(SIZE) % 3.0)}))


@pytest.mark.parametrize(
    ("names", "models"),
    [
        (["target.x_wd0.01.loss", "target.llama-3.1.loss"], [("x_wd0.01", ["loss"]), ("llama-3.1", ["loss"])]),
        (["target.old.model.loss"], [("old.model", ["loss"])]),
        (["target.A.min_k", "target.A.loss"], [("A", ["min_k", "loss"])]),
    ],
)
def test_the_last_dot_is_before_the_score(names: list[str], models: list[tuple[str, list[str]]]):
    values = {name: np.random.default_rng(place).gamma(2, size=4) for place, name in enumerate(names)}
    table = score_table({"set": ["query", "holdout"] * 2, **values})
    assert [(model.name, list(model.scores)) for model in table.of("target")] == models


@pytest.mark.parametrize(
    "names",
    [
        *(["target.mink_0.2"], ["target.min_k.p20"], ["target.loss", "target.zlib.ratio"], ["target.A."]),
        *(["target.mink.p10", "target.zlibs.ratio"], ["unused.1.loss", "unused.zlib", "target.loss"]),
    ],
)
def test_names_in_which_the_model_is_unclear_are_refused(names: list[str]):
    """Scores that are taken for models would be as many targets, each judged for itself."""
    values = {name: np.random.default_rng(place).gamma(2, size=4) for place, name in enumerate(names)}
    with pytest.raises(InputError):
        score_table({"set": ["query", "holdout"] * 2, **values})


def test_covariates_keep_their_whole_names():
    values = {f"covariate.{name}": np.arange(4.0) for name in ("a.x", "b.x", "q_0.5")}
    table = score_table({"set": ["query", "holdout"] * 2, "target.loss": [1.0, 2, 3, 4], **values})
    assert list(table.covariates) == ["a.x", "b.x", "q_0.5"]


@pytest.mark.parametrize("score", ["loss", "min_k", "min_k_plus_plus", "zlib", "squared_error", "probability", "nll"])
def test_a_score_with_the_sign_of_the_other_direction_is_refused(score: str):
    """As the log-likelihoods that other tools call loss, or min_k where higher is more likely a member's."""
    found = {"set": ["query", "holdout"] * 2, f"target.{score}": [-1.0, -2.0, -0.5, -0.25]}
    with pytest.raises(InputError, match=score):
        score_table(found)
    for way, sign in (("higher", 1), ("lower", -1)):
        table = score_table(found, **{way: [score]})  # pyright: ignore[reportArgumentType]
        assert (table.directions, table.guessed) == ({score: sign}, ())
    # Some numbers below 0 are no contradiction, except of a share.
    if score != "probability":
        assert score_table({**found, f"target.{score}": [-1.0, 2.0, -0.5, 0.25]}).guessed == (score,)


def test_a_log_likelihood_above_0_is_refused_and_scores_of_either_sign_pass():
    found = {"set": ["query", "holdout"] * 2, "target.log_likelihood": [1.0, 2.0, 0.5, 0.25]}
    with pytest.raises(InputError):
        score_table(found)
    assert score_table(found, higher=["log_likelihood"]).directions == {"log_likelihood": 1}
    for score in ("log_odds", "reference", "mine"):
        table = score_table({"set": ["query", "holdout"] * 2, f"target.{score}": [-1.0, -2.0, -0.5, -0.25]})
        assert table.of("target")[0].scores[score].tolist() == [-1.0, -2.0, -0.5, -0.25]


def test_shares_on_one_set_and_percentages_on_another_are_refused():
    shares = np.random.default_rng(5).random(SIZE)
    on_query = np.arange(SIZE) % 2 == 0
    for mixed in (np.where(on_query, 100 * shares, shares), np.where(on_query, shares, 100 * shares)):
        with pytest.raises(InputError, match=r"target\.rouge .* on all sets alike"):
            score_table(columns(**{"target.rouge": mixed}))
        assert score_table(columns(**{"target.rouge": mixed}), higher=["rouge"]).directions["rouge"] == 1
    # Percentages of which a set has none above 0, or a few small ones beside larger, are on one scale.
    for honest in (np.where(on_query, 100 * shares, 0), np.where(on_query, 100 * shares, 3 * shares), 100 * shares):
        assert len(score_table(columns(**{"target.rouge": honest})).of("target")[0].scores["rouge"]) == SIZE


@pytest.mark.parametrize("score", ["probability", "confidence", "accuracy", "rouge", "exact_memorization"])
def test_shares_that_are_none_are_refused_until_a_direction_is_said(score: str):
    sets = ["query", "holdout"] * 2
    for numbers in ([0.1, 2.5, 3.0, 0.2], [0.5, -0.5, 0.2, 0.1], [20.0, 300.0, 5.0, 1.0]):
        found = {"set": sets, f"target.{score}": numbers}
        with pytest.raises(InputError, match=r"lower.*higher"):
            score_table(found)
        for way, sign in (("higher", 1), ("lower", -1)):
            assert score_table(found, **{way: [score]}).directions == {score: sign}  # pyright: ignore[reportArgumentType]
    for numbers in ([0.1, 1.0, 0.3, 0.2], [10.0, 100.0, 30.0, 0.0]):
        assert score_table({"set": sets, f"target.{score}": numbers}).directions == {score: 1}
    assert score_table({"set": sets, "target.likelihood": [0.1, 2.5, 3.0, 0.2]}).directions == {"likelihood": 1}


@pytest.mark.parametrize(("score", "direction"), [("nll", -1), ("rouge", 1), ("NLL", 0), ("mink", 0), ("minkowski", 0)])
def test_only_names_as_they_are_written_here_have_a_direction(score: str, direction: int):
    table = score_table({"set": ["query", "holdout"] * 2, f"target.{score}": [0.1, 0.4, 0.3, 0.2]})
    assert table.directions == {score: direction}
    assert table.guessed == ((score,) if direction else ())


def test_what_is_not_used_may_be_of_any_shape_and_kind():
    found = columns()
    wanted = score_table(found).content_hash
    for note in (np.arange(SIZE + 5), np.float64(3), np.ones((2, 2)), np.zeros(0), 3):
        table = score_table({**found, "note": note})
        assert (table.content_hash, table.ignored) == (wanted, ("note",))


@pytest.mark.parametrize("name", FORMATS)
def test_true_and_false_are_1_and_0(name: str, tmp_path: Path):
    """Whether an answer is right, as pandas and JSON write it."""
    right = (np.random.default_rng(5).random(SIZE) < 0.5).tolist()
    table = load_scores(written(tmp_path / name, columns(**{"target.accuracy": right})))
    assert table.of("target")[0].scores["accuracy"].tolist() == [float(one) for one in right]


@pytest.mark.parametrize("missing", ["NA", "nan", "", "N/A", "NULL"])
def test_what_stands_for_no_number_is_a_model_that_was_not_asked(missing: str, tmp_path: Path):
    asked = [row % 2 == 0 for row in range(SIZE)]
    numbers = np.random.default_rng(5).gamma(2, size=SIZE)
    used = [float(number) if one else None for number, one in zip(numbers, asked, strict=True)]
    found = columns(**{"used.1.loss": used})
    wanted = score_table(found).content_hash
    texts = {**found, "used.1.loss": [missing if cell is None else cell for cell in found["used.1.loss"]]}
    assert score_table(texts).content_hash == wanted
    assert load_scores(written(tmp_path / "s.csv", texts)).content_hash == wanted
    with pytest.raises(InputError) as refused:
        load_scores(written(tmp_path / "s.csv", {**found, "used.1.loss": ["many"] * SIZE}))
    assert "drop" not in str(refused.value)


@pytest.mark.parametrize("name", ["s.npz", "s.json", "s"])
def test_other_files_are_no_table_of_scores(name: str, tmp_path: Path):
    written(tmp_path / "s.csv", columns()).rename(tmp_path / name)
    with pytest.raises(InputError, match="table of scores"):
        load_scores(tmp_path / name)
    (tmp_path / "s.csv").write_text("set,target.loss\n")
    with pytest.raises(InputError, match="no record in it"):
        load_scores(tmp_path / "s.csv")


@pytest.mark.parametrize(("most", "width"), [(99.0, 40.0), (-99.0, 40.0), (999.0, 300.0)])
def test_scores_that_are_cut_at_99_are_no_codes(most: float, width: float):
    """Confidences up to 99, log-odds within -99 and 99, perplexities up to 999: the next score is near."""
    wide = most - np.sign(most) * width * np.abs(np.random.default_rng(5).normal(size=SIZE))
    wide[[3, 8, 13]] = most
    values = score_table(columns(**{"target.score": wide})).of("target")[0].scores["score"]
    assert (values == most).sum() == 3
    beyond = np.abs(wide)
    beyond[[3, 8]] = -99
    with pytest.raises(InputError, match="has records of -99, far from all others"):
        score_table(columns(**{"target.score": beyond}))
