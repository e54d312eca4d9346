"""The three words of Python: a deal, outputs on its sets, and the verdict that the parts give one by one."""

import inspect
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import jaxaudit as ja
from jaxaudit.errors import InputError

DIGITS = ja.load("digits").take(np.arange(600))
FLAT = ja.Examples(DIGITS.inputs.reshape(600, -1) / np.float32(255), DIGITS.labels, DIGITS.class_names, "digits")
DEAL = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)
NOISE = {str(role): np.random.default_rng(len(role)).dirichlet(np.ones(10), len(part)) for role, part in DEAL.items()}


@cache
def votes(*used: str) -> dict[str, np.ndarray]:
    """What a forest says that used these sets."""
    parts = [DEAL.sets[ja.Role(role)] for role in used]
    forest = RandomForestClassifier(random_state=1)
    forest.fit(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))
    return {role.value: np.asarray(forest.predict_proba(part.inputs)) for role, part in DEAL.items()}


BOTH, LEFT = ("query", "members"), ("members",)
"""What a model used that has not forgotten the query set, and one that has."""


def test_a_deal_has_each_record_once_and_keeps_copies_and_groups_together() -> None:
    again = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)
    assert [len(part) for _, part in DEAL.items()] == [180, 180, 240]
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
    """Whatever outputs are given as: arrays, tables with columns in another order, or what was read of them."""
    used, key = votes(*BOTH), jax.random.key(7)
    result = ja.ks(DEAL, {"first": used, "anew": votes(*LEFT)})
    assert [target.verdict for target in result.targets] == ["not forgotten", "forgotten"]
    assert str(result).splitlines()[0].startswith("first: not forgotten. Use of the query set was detected")
    assert result._repr_html_().count("<p>") == 2
    query, holdout, members = (
        ja.outputs_of(used[role], FLAT.class_names, len(part), name="a") for role, part in DEAL.items()
    )
    target = ja.FileTarget(ja.Sets(query=query, holdout=holdout, members=members))
    shadows = ja.train_shadows(key, DEAL.query, targets=[target], holdout=DEAL.holdout, members=DEAL.members)
    parts = ja.judge(key, shadows, [target]).targets[0]
    turned = framed(used["holdout"][:, ::-1], FLAT.class_names[::-1])
    assert ja.ks(DEAL, {"query": query, "holdout": turned, "members": used["members"]}).targets[0].usage == parts.usage


def test_the_strongest_test_that_the_outputs_allow() -> None:
    """An honest deletion whose files before and after were exchanged would read as none at all, and is asked about."""
    used, unused = ({role: votes(*of)[role] for role in ("query", "holdout")} for of in (BOTH, LEFT))
    alone = ja.ks(DEAL, used).targets[0]
    assert (alone.method, alone.verdict, alone.usage[0].has_fraction) == ("holdout", "not forgotten", False)
    assert ja.ks(DEAL, unused).targets[0].verdict == "inconclusive"
    for after, before, exchanged in ((unused, used, False), (used, used, False), (used, unused, True)):
        found = ja.ks(DEAL, after, before=before).targets[0]
        assert found.method == "deletion"
        assert found.finding.sentence.endswith("are the outputs before and after exchanged?") is exchanged


def test_a_folder_is_the_deal_that_was_saved(tmp_path: Path) -> None:
    groups = np.arange(600) // 2
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
        ({"query": NOISE["query"]}, "holdout"),
        ({"holdout": NOISE["holdout"]}, "no outputs on the query set"),
        ({**NOISE, "train": NOISE["query"]}, "outputs on 'train'"),
        ({**NOISE, "holdout": NOISE["holdout"][:-1]}, "179 rows"),
        ({**NOISE, "holdout": NOISE["query"]}, "same rows"),
        ({**NOISE, "query": NOISE["query"].argmax(axis=1)}, "labels"),
    ],
)
def test_outputs_that_do_not_fit_are_one_clear_line(outputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ja.ks(DEAL, outputs)


class Frame:
    """What tables of pandas and Polars have in common: columns by their names."""

    def __init__(self, values: dict[Any, np.ndarray]) -> None:
        self.values, self.columns = values, list(values)

    def __getitem__(self, name: Any) -> np.ndarray:
        return self.values[name]

    def __len__(self) -> int:
        return len(self.values[self.columns[0]])


def framed(outputs: np.ndarray, names: Any) -> Frame:
    return Frame(dict(zip(names, outputs.T, strict=True)))


def test_columns_of_a_table_are_read_by_their_names_and_numbered_ones_are_classes_in_their_order() -> None:
    """As pandas numbers the columns of an array; sorted as texts, class 10 comes third, and is no column 10."""
    names, rows = sorted(map(str, range(12))), np.eye(12, dtype=np.float32)[[2, 3]] * 0.5 + 0.5 / 12
    read = ja.outputs_of(framed(rows, range(12)), names, 2, name="numbered")
    np.testing.assert_array_equal(read.probabilities, rows)
    read = ja.outputs_of(framed(rows[:, ::-1], names[::-1]), names, 2, name="named")
    np.testing.assert_array_equal(read.probabilities, rows)
    for wrong, lacking in ((["zero", *names[1:]], names[0]), ([*names[:11], "12"], names[11])):
        with pytest.raises(InputError, match=f"no column named '{lacking}'"):
            ja.outputs_of(framed(rows, wrong), names, 2, name="of others")


@pytest.mark.parametrize("value", [NOISE["query"], "model", None])
def test_what_is_no_mapping_and_what_is_no_examples_is_one_clear_line(value: Any) -> None:
    with pytest.raises(InputError, match="a mapping is needed"):
        inspect.unwrap(ja.ks)(DEAL, value)
    with pytest.raises(InputError, match="Examples are needed"):
        inspect.unwrap(ja.deal)(value, holdout=0.3, seed=1)


def test_sets_of_other_classes_or_columns_are_no_deal(tmp_path: Path) -> None:
    """Matched by place, the words of one language would be those of another."""
    for name, words in {"query": ("hoch", "mittel", "niedrig"), "holdout": ("high", "low", "medium")}.items():
        rows = [f"{37 * row % 101 / 4},{row % 7},{words[row % 3]}" for row in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,Klasse", *rows, ""]))
    with pytest.raises(InputError, match="does not name"):
        ja.open_deal(tmp_path, label="Klasse")
    english = (tmp_path / "holdout.csv").read_text()
    for word, same in {"high": "hoch", "medium": "mittel", "low": "niedrig"}.items():
        english = english.replace(word, same)
    (tmp_path / "holdout.csv").write_text(english.replace("a,b,", "a,c,"))
    with pytest.raises(InputError, match="lacks the columns 'b'"):
        ja.open_deal(tmp_path, label="Klasse")


def test_a_set_that_was_not_dealt_is_said() -> None:
    with pytest.raises(InputError, match="no members"):
        _ = ja.deal(FLAT, holdout=0.5, seed=3).members
