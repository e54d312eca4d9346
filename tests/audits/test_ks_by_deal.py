"""The three words of Python: a deal, outputs on its sets, and the verdict that the parts give one by one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import jaxaudit as ja
from jaxaudit.errors import InputError

DIGITS = ja.load("digits").take(np.arange(800))
FLAT = ja.Examples(DIGITS.inputs.reshape(800, -1) / np.float32(255), DIGITS.labels, DIGITS.class_names, "digits")
DEAL = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)


def votes(*used: ja.Role) -> dict[str, np.ndarray]:
    """What a forest says that used these sets."""
    inputs = np.concatenate([DEAL.sets[role].inputs for role in used])
    labels = np.concatenate([DEAL.sets[role].labels for role in used])
    forest = RandomForestClassifier(random_state=1).fit(inputs, labels)
    return {role.value: forest.predict_proba(part.inputs) for role, part in DEAL.items()}


USED, UNUSED = votes(ja.Role.QUERY, ja.Role.MEMBERS), votes(ja.Role.MEMBERS)


def test_a_deal_has_each_record_once_and_keeps_copies_and_groups_together() -> None:
    again = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)
    assert [len(part) for _, part in DEAL.items()] == [240, 240, 320]
    assert all(np.array_equal(part.inputs, again.sets[role].inputs) for role, part in DEAL.items())
    hashes = np.concatenate([part.record_hashes for _, part in DEAL.items()])
    assert {*map(bytes, hashes)} == {*map(bytes, FLAT.record_hashes)}
    twice = FLAT.take(np.r_[np.arange(100), np.arange(100)])
    groups = np.repeat(np.arange(20), 10)
    parts = ja.deal(replace(twice, groups=groups), holdout=0.3, seed=2)
    assert parts.query.groups is not None
    assert parts.holdout.groups is not None
    assert not {*parts.query.groups.tolist()} & {*parts.holdout.groups.tolist()}
    assert not {*map(bytes, parts.query.record_hashes)} & {*map(bytes, parts.holdout.record_hashes)}


def test_the_verdict_is_that_of_the_parts() -> None:
    result = ja.ks(DEAL, {"first": USED, "anew": UNUSED})
    assert [target.verdict for target in result.targets] == ["not forgotten", "forgotten"]
    assert str(result).splitlines()[0].startswith("first: not forgotten. Use of the query set was detected")
    assert result._repr_html_().count("<p>") == 2
    key = jax.random.key(7)
    query, holdout, members = (
        ja.outputs_of(USED[role], FLAT.class_names, len(part), name="a") for role, part in DEAL.items()
    )
    target = ja.FileTarget(ja.Sets(query=query, holdout=holdout, members=members))
    shadows = ja.train_shadows(key, DEAL.query, targets=[target], holdout=DEAL.holdout, members=DEAL.members)
    parts = ja.judge(key, shadows, [target]).targets[0]
    assert ja.ks(DEAL, USED).targets[0].usage == parts.usage


def test_the_strongest_test_that_the_outputs_allow() -> None:
    two = {role: USED[role] for role in ("query", "holdout")}
    alone = ja.ks(DEAL, two).targets[0]
    assert (alone.method, alone.verdict, alone.usage[0].has_fraction) == ("holdout", "not forgotten", False)
    unused = {role: UNUSED[role] for role in two}
    assert ja.ks(DEAL, unused).targets[0].verdict == "inconclusive"
    assert ja.ks(DEAL, unused, before=two).targets[0].method == "deletion"


def test_a_folder_is_the_deal_that_was_saved(tmp_path: Path) -> None:
    groups = np.arange(800) // 2
    parts = ja.deal(replace(FLAT, groups=groups), holdout=0.3, members=0.4, seed=1)
    opened = ja.open_deal(parts.save(tmp_path / "deal"))
    for role, part in parts.items():
        assert opened.sets[role].content_hash == part.content_hash
        np.testing.assert_array_equal(opened.sets[role].groups, part.groups)
    with pytest.raises(InputError, match="cannot be written"):
        parts.save(tmp_path / "deal")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "no outputs on the query set"),
        ({"query": USED["query"]}, "holdout"),
        ({"holdout": USED["holdout"]}, "no outputs on the query set"),
        ({**USED, "train": USED["query"]}, "outputs on 'train'"),
        ({**USED, "holdout": USED["holdout"][:-1]}, "239 rows"),
        ({**USED, "holdout": USED["query"]}, "same rows"),
        ({**USED, "query": USED["query"].argmax(axis=1)}, "labels"),
    ],
)
def test_outputs_that_do_not_fit_are_one_clear_line(outputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ja.ks(DEAL, outputs)


def test_a_set_that_was_not_dealt_is_said() -> None:
    with pytest.raises(InputError, match="no members"):
        _ = ja.deal(FLAT, holdout=0.5, seed=3).members
