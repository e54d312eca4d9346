"""A verdict for each group, from worlds of known truth: who is accused, how often wrongly, and what numbers allow."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit import ScoresTest, judge_scores, load_scores, score_table
from jaxaudit.audits import dealt_groups_of, group_evidence
from jaxaudit.errors import InputError
from jaxaudit.metrics import holm

KEY = jax.random.key(7)
TABLES = 150
SELDOM = stats.binom.ppf(0.999, TABLES, 0.05)
"""Of so many tables, at most so many err if 5% do; the bound is that of 99.9%."""


def _columns(
    random: np.random.Generator,
    *,
    query: int = 8,
    holdout: int = 8,
    records: int = 10,
    used: int = 0,
    models: int = 0,
    targets: int = 1,
    split: bool = False,
) -> dict[str, Any]:
    """Losses of targets that used the first groups of the query set; groups have shifts that every model draws anew.

    With `split`, every group has `records` records in each set, in a random order.
    """
    groups = np.repeat(np.arange(query if split else query + holdout), 2 * records if split else records)
    sets = np.where(groups < query, "query", "holdout")
    if split:
        half = np.tile(np.arange(2 * records) < records, (query, 1))
        sets = np.where(random.permuted(half, axis=1).ravel(), "query", "holdout")
    inside, hard = sets == "query", random.normal(3, 1, len(groups)) + random.standard_t(3, 60)[groups]

    def loss(remembered: np.ndarray) -> np.ndarray:
        return hard - remembered + 0.3 * random.normal(size=len(groups)) + 0.1 * random.normal(size=60)[groups]

    columns = {"set": sets, "group": groups, "baseline.loss": loss(np.zeros(len(groups)))}
    columns |= {f"target.t{index}.loss": loss(1.0 * (inside & (groups < used))) for index in range(targets)}
    for model in range(models):
        columns[f"unused.{model}.loss"] = loss(np.zeros(len(groups)))
        columns[f"used.{model}.loss"] = loss(1.0 * inside)
    return columns


def _judged(columns: dict[str, Any]) -> Any:
    return judge_scores(KEY, score_table(columns), by="group").targets[0]


def _verdicts(target: Any) -> dict[int, str]:
    return {group.name: group.verdict for group in target.grouping.groups}


def _dealt(random: np.random.Generator, query: list[int], holdout: list[int], used: int) -> dict[str, Any]:
    """Losses of whole groups of these numbers of records, of which the target used the first ones of the query set."""
    sizes = [*query, *holdout]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    hard = random.normal(3, 1, len(groups)) + 0.5 * random.normal(size=len(sizes))[groups]
    columns: dict[str, Any] = {"set": np.where(groups < len(query), "query", "holdout"), "group": groups}
    columns["target.loss"] = hard - 1.0 * (groups < used) + 0.3 * random.normal(size=len(groups))
    return columns | {"baseline.loss": hard + 0.3 * random.normal(size=len(groups))}


@pytest.mark.parametrize(
    ("basis", "world"),
    [
        ("own records", {"split": True, "query": 10}),
        ("models", {"models": 4, "query": 10, "records": 20}),
        ("holdout groups", {"query": 1, "holdout": 36, "records": 20}),
    ],
)
def test_remembered_groups_are_found_by_what_there_is(basis: str, world: dict[str, Any]) -> None:
    columns = _columns(np.random.default_rng(1), used=1, **world)
    found = _judged(columns)
    assert {group.basis for group in found.grouping.groups} == {basis}
    # By models, nobody is accused: what a t-test says of 20 groups at once is not proven.
    verdict = "suspected" if basis == "models" else "remembered"
    count = len(found.grouping.groups)
    assert _verdicts(found) == {name: verdict if name == 1 else "not found" for name in range(1, count + 1)}
    first = found.grouping.groups[0]
    assert first.name == 1
    assert first.p_never <= first.p_adjusted <= 0.05
    assert first.effect > 0
    assert first.records == world.get("records", 10)
    assert first.holdout_records == (first.records if basis == "own records" else 0)
    assert found.grouping.finding.verdict == f"1 {verdict}"
    assert found.grouping.finding.tone == ("open" if basis == "models" else "bad")
    assert ("suspected at most" in " ".join(found.grouping.finding.caveats)) == (basis == "models")
    assert found.grouping.finding.confidence.word == ("fair" if basis == "models" else "strong")
    assert "Holm" in found.grouping.adjustment
    if basis == "own records":
        del columns["baseline.loss"]
        assert _judged(columns).grouping.finding.confidence.word == "weak"  # nothing compares the sets


def test_too_few_holdout_groups_are_said_with_the_number_that_is_needed() -> None:
    found = _judged(_columns(np.random.default_rng(3), used=1, query=8, holdout=20))
    assert set(_verdicts(found).values()) == {"cannot be found"}
    assert found.grouping.finding.verdict == "inconclusive"
    assert "at least 159 groups, and has 20" in found.grouping.finding.sentence
    # Below 19 groups no p-value reaches 5% alone, so none is counted.
    found = _judged(_columns(np.random.default_rng(3), used=1, query=8, holdout=18))
    assert set(_verdicts(found).values()) == {"cannot be found"}
    assert {group.p_adjusted for group in found.grouping.groups} == {None}
    assert found.grouping.groups[0].p_never == 1 / 19
    assert found.grouping.tests == 0
    assert found.grouping.adjustment.startswith("No p-value is adjusted: 8 that can never reach 5%")
    assert found.grouping.finding.verdict == "inconclusive"
    assert "at least 159 groups, and has 18" in found.grouping.finding.sentence


@pytest.mark.parametrize(("holdout", "verdict"), [(39, "remembered"), (38, "cannot be found")])
def test_the_number_that_is_needed_is_enough_and_one_less_is_not(holdout: int, verdict: str) -> None:
    columns = _columns(np.random.default_rng(4), used=1, query=1, holdout=holdout, records=20)
    two = {name: np.concatenate([column, column[:20]]) for name, column in columns.items()}
    # A second group of the query set, which was not used: as hard as the first one, by another draw.
    random = np.random.default_rng(5)
    two["group"] = np.r_[columns["group"], np.full(20, holdout + 1)]
    two["baseline.loss"] = np.r_[columns["baseline.loss"], random.normal(3, 1, 20)]
    two["target.t0.loss"] = np.r_[columns["target.t0.loss"], two["baseline.loss"][-20:] + 0.4 * random.normal(size=20)]
    assert _verdicts(_judged(two))[1] == verdict


def test_groups_of_few_records_are_not_counted() -> None:
    """Two records in each set are dealt in 6 ways: p is never below 1/6."""
    columns = _columns(np.random.default_rng(6), used=2, query=10, split=True)
    small = np.isin(columns["group"], range(5, 10))
    counts = [
        np.cumsum((columns["group"] == name) & (columns["set"] == role))
        for name in range(10)
        for role in ("query", "holdout")
    ]
    kept = ~small
    for name in range(5, 10):
        for place, role in enumerate(("query", "holdout")):
            kept |= (columns["group"] == name) & (columns["set"] == role) & (counts[2 * name + place] <= 2)
    found = _judged({name: column[kept] for name, column in columns.items()})
    verdicts = _verdicts(found)
    assert {verdicts[name] for name in range(6, 11)} == {"cannot be found"}
    assert [verdicts[name] for name in range(1, 6)] == ["remembered"] * 2 + ["not found"] * 3
    assert found.grouping.tests == 5


def test_the_set_is_judged_as_without_groups_where_records_were_dealt() -> None:
    columns = _columns(np.random.default_rng(8), used=4, split=True)
    alone = judge_scores(KEY, score_table({name: column for name, column in columns.items() if name != "group"}))
    (found,), (expected,) = _judged(columns).tests, alone.targets[0].tests
    assert (found.details, found.finding.sentence) == (expected.details, expected.finding.sentence)
    with pytest.raises(InputError, match="groups must be dealt whole"):
        judge_scores(KEY, score_table(columns))


def test_groups_change_nothing_of_the_verdict_on_the_set() -> None:
    table = score_table(_columns(np.random.default_rng(9), used=4, models=3))
    alone, beside = judge_scores(KEY, table).targets[0], judge_scores(KEY, table, by="group").targets[0]
    assert (alone.finding, alone.tests, alone.checks) == (beside.finding, beside.tests, beside.checks)
    assert alone.grouping is None


def test_p_values_are_adjusted_over_all_targets() -> None:
    columns = _columns(np.random.default_rng(10), used=3, models=3, targets=2)
    targets: Any = judge_scores(KEY, score_table(columns), by="group").targets
    first, second = targets
    p_values = [group.p_never for target in (first, second) for group in target.grouping.groups]
    assert [group.p_adjusted for target in (first, second) for group in target.grouping.groups] == list(holm(p_values))
    alone = _judged({name: column for name, column in columns.items() if ".t1." not in name})
    assert [group.p_never for group in alone.grouping.groups] == [group.p_never for group in first.grouping.groups]
    for group, beside in zip(alone.grouping.groups, first.grouping.groups, strict=True):
        assert beside.p_adjusted_bh == min(1.0, 2 * group.p_adjusted_bh)


def test_without_a_holdout_models_tell_and_with_too_few_of_them_nothing_does() -> None:
    for models, basis, verdict in ((6, "models", "suspected"), (1, "holdout groups", "cannot be found")):
        columns = _columns(np.random.default_rng(13), used=1, holdout=0, models=models)
        found = _judged(columns)
        assert {group.basis for group in found.grouping.groups} == {basis}
        assert _verdicts(found)[1] == verdict
        assert (found.grouping.groups[0].p_never is None) == (models == 1)


def _with_members(random: np.random.Generator, moved: float) -> dict[str, Any]:
    """Losses of 10 groups with 12 records in each set, of which those of the query set moved, and 200 members' ones."""
    columns = _columns(random, records=12, query=10, split=True)
    columns["target.t0.loss"] = columns["target.t0.loss"] + moved * (columns["set"] == "query")
    hard = random.normal(3, 1, 200)
    members = {
        "set": np.full(200, "members"),
        "group": 1_000 + np.arange(200) // 10,
        "target.t0.loss": hard - 0.8 + 0.3 * random.normal(size=200),
        "baseline.loss": hard + 0.3 * random.normal(size=200),
    }
    return {name: np.concatenate([column, members[name]]) for name, column in columns.items()}


def _worlds_without_a_verdict() -> dict[str, dict[str, Any]]:
    """By the reason: sets that were not dealt, members of a wrong direction, and scores that contradict others."""
    random = np.random.default_rng(21)
    apart, against = (
        _columns(np.random.default_rng(11), used=2, split=True),
        _columns(random, records=40, query=10, used=10, split=True),
    )
    inside, turned = (
        against["set"] == "query",
        (_with_members(np.random.default_rng(20), 0.8), _columns(np.random.default_rng(12), used=2, models=4)),
    )
    members, models = ({name.replace("loss", "log_odds"): column for name, column in each.items()} for each in turned)
    return {
        "holdout like query": apart | {"baseline.loss": apart["baseline.loss"] + 3 * (apart["set"] == "query")},
        "the holdout looks more used than the members": members,
        "is the direction of one wrong": against | {"target.t0.min_k": random.normal(size=len(inside)) + 0.4 * inside},
        "": models,
    }


def test_what_forbids_a_verdict_on_the_set_forbids_those_on_its_groups() -> None:
    for reason, columns in _worlds_without_a_verdict().items():
        found = _judged(columns)
        assert set(_verdicts(found).values()) == {"inconclusive"}, reason
        assert {group.share for group in found.grouping.groups} == {None}
        assert reason in found.grouping.finding.reasons[0]
        assert not reason or min(group.p_adjusted for group in found.grouping.groups) <= 0.05


def test_groups_of_other_sizes_than_the_holdouts_get_no_verdict() -> None:
    """A small unused group beside a huge used one: neither is accused, and those in between are."""
    random = np.random.default_rng(23)
    found = _judged(_dealt(random, [300, 20, 3], [*[20] * 30, *[30] * 30], used=2))
    verdicts = _verdicts(found)
    assert verdicts == {1: "inconclusive", 2: "remembered", 3: "inconclusive"}
    assert {group.p_adjusted is None for group in found.grouping.groups if group.name != 2} == {True}
    assert found.grouping.tests == 1
    assert found.grouping.finding.confidence.word == "fair"
    assert "2 groups have more records than every group of the holdout" in " ".join(found.grouping.finding.caveats)
    found = _judged(_dealt(random, [300, 3], [20] * 60, used=1))
    assert found.grouping.finding.verdict == "inconclusive"
    assert "2 groups have more records" in found.grouping.finding.sentence


def test_groups_of_sizes_that_were_not_dealt_get_no_rank() -> None:
    """Large groups beside a holdout of mostly small ones: the used one is not called so, for no rank is exact."""
    random = np.random.default_rng(30)
    columns = _dealt(random, [12] * 5, [12, *[3] * 120], used=1)
    found = _judged(columns)
    assert set(_verdicts(found).values()) == {"inconclusive"}
    assert "other numbers of records than those of the holdout" in found.grouping.finding.reasons[0]
    names = columns["group"]
    kept = np.concatenate([np.flatnonzero(names == name)[:3] for name in np.unique(names)])
    verdicts = _verdicts(_judged({name: column[kept] for name, column in columns.items()}))
    assert verdicts == {1: "remembered", **dict.fromkeys(range(2, 6), "not found")}


def test_what_cannot_be_found_could_not_have_been_by_any_scores() -> None:
    """By Holm's method, a group of 4 records in each set (p at least 1/70) is accused where three others are."""
    columns = _columns(np.random.default_rng(24), records=12, query=4, used=3, split=True)
    small = columns["group"] == 3
    kept = ~small
    for role in ("query", "holdout"):
        kept[np.flatnonzero(small & (columns["set"] == role))[:4]] = True
    few = {name: column[kept] for name, column in columns.items()}
    assert _verdicts(_judged(few)) == {1: "remembered", 2: "remembered", 3: "remembered", 4: "not found"}
    few["target.t0.loss"] = few["target.t0.loss"] - 9.0 * ((few["group"] == 3) & (few["set"] == "query"))
    assert set(_verdicts(_judged(few)).values()) == {"remembered"}


def test_members_of_other_groups_than_the_sets_that_were_dealt_within_groups_measure_nothing() -> None:
    random = np.random.default_rng(27)
    columns = _columns(random, split=True)
    for name, group in (("members dealt, too", random.integers(0, 8, 80)), ("others", random.integers(8, 16, 80))):
        rows = {"set": np.repeat("members", 80), "group": group, "baseline.loss": random.normal(3, 1, 80)}
        rows["target.t0.loss"] = rows["baseline.loss"] - 1 + 0.3 * random.normal(size=80)
        found = _judged({column: np.r_[values, rows[column]] for column, values in columns.items()})
        states = {check.name: check.state for check in found.finding.checks}
        assert (states["members like query"] == "failed") == (name == "others"), name


def test_members_of_a_group_of_another_set_are_refused_by_their_name() -> None:
    columns = _dealt(np.random.default_rng(25), [5] * 6, [5] * 6, used=0)
    for shared in (0, -1):
        members = np.arange(10)
        more = {name: np.concatenate([column, column[members]]) for name, column in columns.items()}
        more["set"] = np.concatenate([columns["set"], np.full(10, "members")])
        more["group"][-10:] = more["group"][: len(columns["set"])][shared]
        more["target.loss"][-10:] += 0.1
        more["baseline.loss"][-10:] += 0.2
        for by in (None, "group"):
            with pytest.raises(InputError, match="1 groups have records among the known members"):
                judge_scores(KEY, score_table(more), by=by)


def test_a_group_is_found_in_the_file_by_its_first_record(tmp_path: Path) -> None:
    """Records of the reference have no group."""
    columns = _columns(np.random.default_rng(26), query=2, holdout=20)
    order = np.random.default_rng(27).permutation(len(columns["set"]))
    columns = {name: column[order] for name, column in columns.items()}
    columns["set"] = np.where(columns["group"] == 21, "reference", columns["set"])
    named = dict.fromkeys(columns["group"][columns["set"] != "reference"].tolist())
    firsts = {
        number: int(np.flatnonzero(columns["group"] == name)[0]) for number, name in enumerate(named, 1) if name < 2
    }
    rows = [dict(zip(columns, map(str, cells), strict=True)) for cells in zip(*columns.values(), strict=True)]
    header = ",".join(columns)
    lines = [",".join(row.values()) for row in rows]
    (tmp_path / "s.csv").write_text("\n".join([header, *lines, ""]))
    found: Any = judge_scores(KEY, load_scores(tmp_path / "s.csv"), by="group").targets[0]
    assert {group.name: group.first - 1 for group in found.grouping.groups} == firsts


@pytest.mark.parametrize(("models", "query", "holdout"), [(2, 8, 8), (2, 8, 0), (3, 6, 2), (8, 6, 0)])
def test_two_models_or_few_groups_suspect_nobody(models: int, query: int, holdout: int) -> None:
    """Whatever the scores are: how far groups drift is then not known."""
    columns = _columns(np.random.default_rng(29), used=1, query=query, holdout=holdout, models=models)
    found = _judged(columns | {"target.t0.loss": columns["target.t0.loss"] - 50.0 * (columns["group"] == 0)})
    assert set(_verdicts(found).values()) == {"cannot be found"}
    assert "at least three models without the query set" in found.grouping.finding.sentence
    # Without a holdout nothing shows that the target is of the models' recipe.
    assert any(group.share is not None for group in found.grouping.groups) == (holdout > 0)


def test_groups_get_no_share_where_the_set_gets_none() -> None:
    table = score_table(_columns(np.random.default_rng(30), used=2, query=8, holdout=0, models=3))
    alone, stated = (
        judge_scores(KEY, table, test=ScoresTest(same_recipe=word), by="group").targets[0] for word in (False, True)
    )
    told: Any = alone, stated
    for found in told:
        given = {group.share is not None for group in found.grouping.groups}
        assert given == {found.usage[0].has_fraction} == {found is stated}
        assert ("not given" in " ".join(found.grouping.finding.caveats)) is (found is alone)
    first, second = ([group.p_never for group in found.grouping.groups] for found in told)
    assert first == second


def test_what_cannot_be_told_by_group_is_refused() -> None:
    columns = _columns(np.random.default_rng(14))
    with pytest.raises(InputError, match="no column `group`"):
        _judged({name: column for name, column in columns.items() if name != "group"})
    with pytest.raises(InputError, match="which way a score points"):
        _judged({name.replace("loss", "number"): column for name, column in columns.items()})
    # One record of a whole group lies in the other set.
    columns["set"][0] = "holdout"
    with pytest.raises(InputError, match="neither whole groups nor single records"):
        _judged(columns)


@pytest.mark.outer
def test_records_that_were_dealt_one_by_one_are_seldom_taken_for_a_mixture() -> None:
    """Groups of 1 to 4 records, dealt with a share of 0.3: some of them always lie in one set."""
    random, refused = np.random.default_rng(15), 0
    for _ in range(TABLES):
        groups = np.repeat(np.arange(30), random.integers(1, 5, 30))
        sets = np.where(random.uniform(size=len(groups)) < 0.3, "query", "holdout")
        table = score_table({"set": sets, "group": groups, "target.loss": random.normal(size=len(groups))})
        try:
            assert dealt_groups_of(table).within
        except InputError:
            refused += 1
    assert refused <= 3


@pytest.mark.outer
@pytest.mark.parametrize(
    "world",
    [
        {"models": 3, "query": 8, "holdout": 8},
        {"models": 3, "query": 8, "holdout": 0},
        {"models": 8, "query": 8, "holdout": 0},
        {"split": True, "query": 8},
        {"query": 2, "holdout": 45},
    ],
    ids=["models", "three models alone", "models alone", "own records", "holdout groups"],
)
@pytest.mark.parametrize("used", [0, 1])
def test_a_group_that_was_not_used_is_seldom_accused(world: dict[str, Any], used: int) -> None:
    """Of random tables at most 5% accuse any, after Holm; with and without another group that was used."""
    random, wrong, right = np.random.default_rng(16), 0, 0
    for _ in range(TABLES):
        table = score_table(_columns(random, used=used, **world))
        evidence = group_evidence(KEY, table, table.of("target")[0], dealt_groups_of(table))
        p_values = holm([part.test.p_never for part in evidence if part.test is not None])
        wrong += min(p_values[used:]) <= 0.05
        right += used and p_values[0] <= 0.05
    assert wrong <= SELDOM
    assert right >= 0.3 * TABLES * used
