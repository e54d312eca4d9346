"""One model in two roles, or twice in one, is refused by the numbers of its columns, and by its path."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxaudit.data import ScoreTable, refuse_repeated, score_table
from jaxaudit.errors import InputError

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
        {"target.loss": B, "unused.1.loss": B, "unused.2.loss": C},
        {"target.loss": A, "used.loss": A},
        {"target.loss": A, "before.loss": A},
        {"target.loss": A, "baseline.loss": A},
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
    table(
        {"target.a.loss": a, "before.loss": a + 0.003 * RANDOM.normal(size=200), "unused.2.loss": c, "used.9.loss": b}
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"target.loss": A, "target.log_likelihood": -A, "unused.1.loss": B, "unused.2.loss": C},
        {"target.loss": A, "before.loss": B, "used.loss": B},
        {"target.loss": A, "baseline.loss": B, "unused.loss": B},
        {"target.loss": A, "baseline.loss": B, "covariate.base": B},
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
        ({"target": ["a"], "unused": ["a"]}, True),
        ({"target": ["a"], "unused": ["./a"]}, True),
        ({"target": ["a"], "unused": ["link"]}, True),
        ({"target": ["a", "a"]}, True),
        ({"target": ["a"], "unused": ["b", "b"]}, True),
        ({"target": ["a"], "unused": ["b"], "used": ["b"]}, True),
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
    if not refused:
        refuse_repeated(given)
        return
    with pytest.raises(InputError):
        refuse_repeated(given)
