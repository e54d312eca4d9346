"""`jaxaudit ks` without a target: the set is dealt into query set, holdout and known members."""

from pathlib import Path

import jax
import numpy as np
import pytest
from support.cli_runs import jaxaudit

from jaxaudit import load
from jaxaudit.cli.ks.demonstration import MANY, dealt_set
from jaxaudit.cli.ks.demonstration import tests_of_dealt as names_of_tests
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import with_values
from jaxaudit.data import Examples
from jaxaudit.data.roles import Role
from jaxaudit.errors import InputError

TINY = ("--hidden", "8", "--epochs", "1", "--sample", "90", "--effort", "full", "--holdout-shadow-models", "19")


def numbers(count: int) -> Examples:
    return Examples(np.arange(count, dtype=np.uint8)[:, None], np.zeros(count, np.int32), ("one", "other"), "numbers")


def test_each_record_is_in_one_of_three_sets_and_a_copy_in_none() -> None:
    whole = numbers(90)
    twice = whole.take(np.r_[:90, :30])
    dealt, again, other = (dealt_set(jax.random.key(seed), twice) for seed in (1, 1, 2))
    parts = {role: examples.inputs[:, 0].tolist() for role, examples in dealt.items()}
    assert [len(part) for part in parts.values()] == [30, 30, 30]
    assert sorted(record for part in parts.values() for record in part) == list(range(90))
    assert [examples.content_hash for examples in again.values()] == [each.content_hash for each in dealt.values()]
    assert other[Role.QUERY].content_hash != dealt[Role.QUERY].content_hash
    assert dealt[Role.MEMBERS].name == "numbers (members)"


def test_a_calibration_set_takes_a_fourth_of_the_records() -> None:
    dealt = dealt_set(jax.random.key(1), numbers(90), with_calibration=True)
    parts = {role: examples.inputs[:, 0].tolist() for role, examples in dealt.items()}
    sizes = {Role.QUERY: 22, Role.HOLDOUT: 23, Role.MEMBERS: 23, Role.CALIBRATION: 22}
    assert {role: len(part) for role, part in parts.items()} == sizes
    assert sorted(record for part in parts.values() for record in part) == list(range(90))


def test_every_record_comes_into_every_set_as_often() -> None:
    """1,000 deals of 30 records: each set has each record in a third of them, within 5 standard deviations."""
    whole, counts = numbers(30), np.zeros((3, 30))
    for seed in range(1000):
        for row, examples in enumerate(dealt_set(jax.random.key(seed), whole).values()):
            counts[row, examples.inputs[:, 0]] += 1
    assert np.abs(counts - 1000 / 3).max() < 5 * np.sqrt(1000 * 2 / 9)


def test_too_few_records_are_refused() -> None:
    with pytest.raises(InputError):
        dealt_set(jax.random.key(1), numbers(5))


@pytest.mark.parametrize(
    "given",
    [
        {"calibration": "c.npz"},
        {"holdout": "h.npz"},
        {"reference": "r.npz"},
        {"tests": "shadow"},
        {"target": (Path("o.csv"),)},
        {"target_data": ("digits:0.5",)},
        {"shadows": Path("bank")},
    ],
)
def test_whoever_gives_another_set_a_test_or_a_target_deals_himself(given: dict[str, object]) -> None:
    assert KSOptions().has_set_alone
    assert with_values(KSOptions(), query="mnist", sample=100, replicates=0).has_set_alone
    assert not with_values(KSOptions(), **given).has_set_alone


def test_small_sets_get_shadow_models_beside() -> None:
    assert names_of_tests(MANY - 1) == ("members", "holdout")
    assert names_of_tests(MANY) == ("members",)


@pytest.mark.outer
def test_a_set_alone_is_judged_by_known_members_and_the_run_can_be_repeated() -> None:
    done = jaxaudit("ks", *TINY, "--json")
    assert done.code == 0, done.err
    targets = done.result["targets"]
    assert [target["truth"]["expected"] for target in targets] == ["not forgotten", "forgotten", "not forgotten"]
    assert [target["truth"]["used_fraction"] for target in targets] == pytest.approx([1, 0, 0.5], abs=0.01)
    assert [test["name"] for test in targets[0]["tests"]] == ["members", "holdout", "rho"]
    assert targets[0]["tests"][0]["details"]["difficulty"] == "taught"
    again = jaxaudit("ks", *TINY, "--json")
    assert (again.result["targets"], again.result["noise_floor"]) == (targets, done.result["noise_floor"])
    assert jaxaudit("ks", *TINY, "--seed", "1", "--json").result["targets"] != targets


@pytest.mark.outer
def test_a_file_alone_is_dealt_in_fourths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    digits = load("digits")
    np.savez("own.npz", x=digits.inputs[:400], y=digits.labels[:400])
    done = jaxaudit("ks", "--query", "own.npz", "--hidden", "8", "--model", "mlp", *TINY[2:4], *TINY[6:], "--json")
    assert done.code == 0, done.err
    data = done.result["provenance"]["data"]
    assert [data[name]["records"] for name in ("query", "holdout", "members", "calibration")] == [100] * 4
    assert [target["truth"]["expected"] for target in done.result["targets"]][:2] == ["not forgotten", "forgotten"]


@pytest.mark.outer
def test_texts_alone_are_dealt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"text": "the record number {index} is {index % 7} and {index * 31 % 97}"}}' for index in range(240)]
    Path("texts.jsonl").write_text("\n".join(lines), "utf-8")
    done = jaxaudit("ks", "--query", "texts.jsonl", "--epochs", "1", "--effort", "full", "--json")
    assert done.code == 0, done.err
    assert done.result["targets"][0]["tests"][0]["name"] == "members"
